"""What makes a folder of BIDS-named results a BIDS derivative: the dataset's own files, and keys of every sidecar."""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from tensorldm import __version__, bounded
from tensorldm.errors import DataError
from tensorldm.imaging.atomic import write_text
from tensorldm.reconstruct.inputs import InputFiles
from tensorldm.reconstruct.naming import Naming

BIDS_VERSION: Final = "1.10.0"
RAW: Final = "raw"
"""What sidecars call the dataset that the series come from; ``DatasetLinks`` says where it is."""
NOT_YET_KNOWN: Final = "*_dwimap.*\n"
"""Diffusion maps are a draft of BIDS: its validator does not know their suffix yet."""
README: Final = """# Diffusion tensors made by TensorLDM

`sub-*/[ses-*/]dwi/` holds, for every diffusion series, the tensor (`param-tensor`), its maps (`param-FA`, `param-MD`
and others) and maps of doubt, named as in BIDS's draft for diffusion derivatives, and the brain mask that was used.
Diffusivities are in mm²/s. The sidecar of each tensor says which volumes of the series were used, by which method or
model, with which settings, and what to beware of. `space-orig` is the series' own space.

The tensors come from a few diffusion directions and, in part, from what a model has learnt: see the map
`param-priorShare` for where. They are for research, not for diagnosis.
"""


def describe_dataset(out: Path, files: InputFiles) -> None:
    """Write the dataset's own files where they are missing or out of date; nothing for plain names."""
    if files.entities is None:
        return
    description = json.dumps(_description(out, dataset_root(files.image)), indent=2, ensure_ascii=False) + "\n"
    _write_if_other(out / "dataset_description.json", description)
    for name, text in ((".bidsignore", NOT_YET_KNOWN), ("README.md", README)):
        if not (out / name).exists():
            write_text(out / name, text)


def check_place(out: Path) -> None:
    """Refuse to write into a dataset that is not ours: its description would be replaced."""
    there = _read_description(out)
    makers = there.get("GeneratedBy") if there else None
    ours = isinstance(makers, list) and any(
        isinstance(each, dict) and each.get("Name") == "tensorldm" for each in makers
    )
    if there and not (ours and there.get("DatasetType") == "derivative"):
        raise DataError(
            f"{out}: holds a BIDS dataset that tensorldm did not make ({there.get('Name', 'without a name')}). "
            "Choose another folder, such as DATASET/derivatives/tensorldm."
        )


def sidecar_notes(files: InputFiles, naming: Naming) -> dict[str, Any]:
    """Keys of every image's sidecar; nothing for plain names."""
    if naming.entities is None:
        return {}
    root = dataset_root(files.image)
    series = [_uri(path, root) for path in files.images]
    notes = {"SkullStripped": True, "SpatialReference": series[0], "Sources": series}
    resolution = naming.entities.partition("_res-")[2]
    return notes | ({"Resolution": f"{resolution} voxels, in the directions of the series' own"} if resolution else {})


def dataset_root(image: Path) -> Path:
    """The dataset that an image with a BIDS name lies in: the folder above ``sub-*``, else its own."""
    absolute = image.absolute()
    above = [folder.parent for folder in absolute.parents if folder.name.startswith("sub-")]
    return above[-1] if above else absolute.parent


def _uri(path: Path, root: Path) -> str:
    return f"bids:{RAW}:{path.absolute().relative_to(root).as_posix()}"


def _description(out: Path, root: Path) -> dict[str, Any]:
    source = _read_description(root)
    name = source.get("Name")
    origin = {"DOI": source["DatasetDOI"]} if isinstance(source.get("DatasetDOI"), str) else {}
    copied: dict[str, Any] = {key: source[key] for key in ("License", "Authors") if key in source}
    return {
        "Name": f"Diffusion tensors of {name}" if isinstance(name, str) and name else "Diffusion tensors",
        "BIDSVersion": BIDS_VERSION,
        "DatasetType": "derivative",
        **copied,
        "GeneratedBy": [
            {"Name": "tensorldm", "Version": __version__, "Description": "diffusion tensor from few directions"}
        ],
        **({"SourceDatasets": [origin]} if origin else {}),
        "DatasetLinks": {RAW: Path(os.path.relpath(root, out.absolute())).as_posix()},
    }


def _read_description(root: Path) -> dict[str, Any]:
    """What a dataset says of itself; nothing where there is none."""
    with suppress(OSError, ValueError):
        found = bounded.read_json(root / "dataset_description.json")
        return found if isinstance(found, dict) else {}
    return {}


def _write_if_other(path: Path, text: str) -> None:
    with suppress(OSError):
        if path.read_text(encoding="utf-8") == text:
            return
    write_text(path, text)
