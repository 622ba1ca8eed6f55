"""One anatomy in one small file, so that a folder of them can travel without the scans they were made from.

A gzip of safetensors. Only the mask's voxels are kept, of each compartment only those where it is present; tensors
in half precision and µm²/ms, fractions in bytes, bundle directions in signed bytes (within 0.5°).
"""

import gzip
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import safetensors
import safetensors.torch
import torch
from jaxtyping import Bool, Float, Float16, Float32, UInt8
from torch import Tensor

from tensorldm import bounded
from tensorldm.cohort.anatomy import Anatomy, Bundle
from tensorldm.cohort.templates.volumes import volume_of
from tensorldm.errors import DataError
from tensorldm.imaging.atomic import write_bytes

SUFFIX: Final = ".anatomy"
FORMAT: Final = "tensorldm anatomy 1"
NOTES: Final = "anatomy"
"""One key of metadata: the library writes several in any order, and the same anatomy is to give the same bytes."""
LARGEST_BYTES: Final = 2**30
"""Unpacked. Four compartments of six half-precision numbers in the two million voxels of a head at 1 mm are 96 MB."""
LONGEST_REASON: Final = 120
UM2_PER_MS: Final = 1e3
"""From mm²/s: half precision keeps eleven bits between 0.06 and 65504, and diffusivities are 0.1 to 3.3 here."""


def save_anatomy(path: Path, anatomy: Anatomy) -> None:
    """Write an anatomy, whole or not at all."""
    mask = anatomy.mask.cpu()
    shares = _bytes(anatomy.fractions.cpu()[:, mask])
    arrays = {
        "mask": _bits(mask),
        "fractions": shares,
        "tissue": _bytes(anatomy.tissue.cpu()[:, mask]),
        "s0": _planes(anatomy.s0.cpu()[mask].half()),
    }
    for k, share in enumerate(shares):
        arrays[f"tensors{k}"] = _planes((anatomy.tensors[k].cpu()[:, mask][:, share > 0] * UM2_PER_MS).half())
    for name, bundle in anatomy.bundles.items():
        inside = bundle.mask.cpu()
        arrays[f"bundle.{name}.mask"] = _bits(inside[mask])
        arrays[f"bundle.{name}.directions"] = (bundle.directions.cpu()[:, inside] * 127).round().to(torch.int8)
    notes = {
        "format": FORMAT,
        "name": anatomy.name,
        "source": anatomy.source,
        "shape": list(mask.shape),
        "voxel_size": list(anatomy.voxel_size),
    }
    packed = safetensors.torch.save(
        {key: value.contiguous() for key, value in arrays.items()}, {NOTES: json.dumps(notes)}
    )
    write_bytes(path, gzip.compress(packed, compresslevel=9, mtime=0))


def load_anatomy(path: Path) -> Anatomy:
    """Read what ``save_anatomy`` wrote."""
    try:
        content = bounded.unpack_gzip(path, limit=LARGEST_BYTES)
        arrays = safetensors.torch.load(content)
        notes = _notes(content)
    except (OSError, EOFError, ValueError, zlib.error, safetensors.SafetensorError) as error:
        raise DataError(f"{path}: not a packed anatomy, or cut short ({error}). Pack it again.") from error
    if notes.get("format") != FORMAT:
        raise DataError(f"{path}: the format is '{notes.get('format')}', expected '{FORMAT}'. Pack it again.")
    try:
        return _assembled(arrays, notes)
    except (KeyError, TypeError, ValueError, IndexError, RuntimeError, OverflowError) as error:
        # Whatever does not fit together was not written here; the first thing that does not is as good as any.
        raise DataError(f"{path}: its parts do not fit together ({_brief(error)}). Pack it again.") from error


def _assembled(arrays: Mapping[str, Tensor], notes: Mapping[str, Any]) -> Anatomy:
    x, y, z = (int(side) for side in notes["shape"])
    if x * y * z > 8 * arrays["mask"].numel():
        raise ValueError(f"a grid of {x} × {y} × {z} but a mask of {arrays['mask'].numel()} bytes")
    mask = _from_bits(arrays["mask"], x * y * z).reshape(x, y, z)
    shares = arrays["fractions"]
    tensors = torch.stack([_compartment(arrays[f"tensors{k}"], present) for k, present in enumerate(shares > 0)])
    sides = notes["voxel_size"]
    return Anatomy(
        name=notes["name"],
        source=notes["source"],
        tensors=volume_of(tensors.permute(2, 0, 1), mask),
        fractions=volume_of(shares.T.float() / 255, mask),
        s0=volume_of(_from_planes(arrays["s0"]), mask),
        tissue=volume_of(arrays["tissue"].T.float() / 255, mask),
        mask=mask,
        voxel_size=(float(sides[0]), float(sides[1]), float(sides[2])),
        bundles=_bundles(arrays, mask),
    )


def _brief(error: Exception) -> str:
    return " ".join(str(error).split())[:LONGEST_REASON] or type(error).__name__


def _compartment(stored: UInt8[Tensor, "2 6 r"], present: Bool[Tensor, " v"]) -> Float[Tensor, "6 v"]:
    """Tensors of all voxels; where the compartment is absent, its mean, which weighs nothing."""
    kept = _from_planes(stored) / UM2_PER_MS
    tensors = kept.new_zeros(6, len(present))
    if kept.shape[1]:
        tensors[:] = kept.mean(dim=1, keepdim=True)
        tensors[:, present] = kept
    return tensors


def _bundles(arrays: Mapping[str, Tensor], mask: Bool[Tensor, "x y z"]) -> dict[str, Bundle]:
    bundles = {}
    for key in arrays:
        if not key.startswith("bundle.") or not key.endswith(".mask"):
            continue
        name = key.removeprefix("bundle.").removesuffix(".mask")
        inside = volume_of(_from_bits(arrays[key], int(mask.sum())), mask)
        directions = torch.nn.functional.normalize(arrays[f"bundle.{name}.directions"].float(), dim=0)
        bundles[name] = Bundle(mask=inside, directions=volume_of(directions.T, inside))
    return bundles


def _bytes(shares: Float[Tensor, "k v"]) -> UInt8[Tensor, "k v"]:
    """Shares of 1 in 255 steps that sum to 255: the largest share takes what rounding left over."""
    steps = (shares * 255).round()
    largest = shares.argmax(dim=0, keepdim=True)
    left_over = 255 - steps.sum(dim=0, keepdim=True)
    return steps.scatter_add(0, largest, left_over).to(torch.uint8)


def _bits(mask: Bool[Tensor, "*n"]) -> UInt8[Tensor, " bytes"]:
    return torch.from_numpy(np.packbits(mask.numpy().ravel()))


def _from_bits(bits: UInt8[Tensor, " bytes"], count: int) -> Bool[Tensor, " n"]:
    return torch.from_numpy(np.unpackbits(bits.numpy(), count=count)).bool()


def _planes(values: Float16[Tensor, "*n"]) -> UInt8[Tensor, "2 *n"]:
    """Low bytes, then high bytes: high bytes of neighbours are alike, and gzip finds that."""
    return values.contiguous().view(torch.uint8).reshape(*values.shape, 2).movedim(-1, 0).contiguous()


def _from_planes(planes: UInt8[Tensor, "2 *n"]) -> Float32[Tensor, "*n"]:
    return planes.movedim(0, -1).contiguous().view(torch.float16)[..., 0].float()


def _notes(content: bytes) -> dict[str, Any]:
    """What was noted in the header, which the library reads from files only."""
    length = int.from_bytes(content[:8], "little")
    header = bounded.parse_json(content[8 : 8 + length])
    notes = bounded.parse_json(header.get("__metadata__", {}).get(NOTES, "{}"))
    return notes if isinstance(notes, dict) else {}
