"""Every reconstruction below some folders, each as a few figures and a thumbnail."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from jaxtyping import UInt8
from numpy import ndarray

from tensorldm.errors import DataError, TensorldmError
from tensorldm.reconstruct.result import Reconstruction
from tensorldm.reconstruct.summary import WHITE_MATTER_MD, summarise
from tensorldm.report.colours import ANISOTROPY, paint
from tensorldm.report.details import brain_litres
from tensorldm.report.method_text import white_matter
from tensorldm.report.reading import HOW, Recorded, find_tensors, read_recorded
from tensorldm.report.result_maps import tensor_images
from tensorldm.report.slices import choose_cuts

Tell = Callable[[str], None]


class Figure(NamedTuple):
    """A column of the table."""

    key: str
    heading: str
    unit: str
    form: str
    one: float = 1.0
    """The value that is written as 1."""

    def written(self, value: float | None) -> str:
        """The value as the table shows it; a dash where there is none."""
        return "–" if value is None else f"{value / self.one:{self.form}}"


FIGURES: Final = (
    Figure("fa", "FA", "", ".3f"),
    Figure("md", "MD", "10⁻³ mm²/s", ".3f", 1e-3),
    Figure("brain", "brain", "l", ".2f"),
    Figure("white", "white matter", "l", ".2f"),
    Figure("spd", "not positive definite", "%", ".2f", 0.01),
    Figure("prior", "prior share", "", ".2f"),
    Figure("cone", "v1 cone", "°", ".0f"),
    Figure("consistency", "consistency", "", ".2f"),
    Figure("angle", "angle to axis", "°", ".0f"),
)
MEANING: Final = (
    "FA, MD, prior share and v1 cone are medians over white matter, consistency over the brain; the angle is that of "
    "the direction farthest from its axis."
)


@dataclass(frozen=True, eq=False)
class Member:
    """One reconstruction of a cohort."""

    name: str
    """Of the subject; with its folder where several have the same."""
    method: str
    folder: Path
    report: Path | None
    """Its own page, where there is one."""
    figures: Mapping[str, float | None]
    """By the keys of ``FIGURES``; None where a map is missing."""
    warnings: tuple[str, ...]
    thumbnail: UInt8[ndarray, "h w 3"]
    size_mm: tuple[float, float]


def gather_members(places: Sequence[Path], *, tell: Tell) -> tuple[list[Member], dict[str, str]]:
    """The readable reconstructions in order, and why the others could not be read; none at all is an error."""
    tensors = list(dict.fromkeys(tensor for place in places for tensor in find_tensors(place)))
    if not tensors:
        raise DataError(f"{places[0]}: no reconstruction in or below it. {HOW}")
    members, failures = [], {}
    for number, tensor in enumerate(tensors, start=1):
        tell(f"reading {number} of {len(tensors)}: {tensor.parent.name}")
        try:
            members.append(_member(read_recorded(tensor)))
        except TensorldmError as error:
            failures[str(tensor)] = str(error)
    if not members:
        raise DataError(next(iter(failures.values())))
    return _told_apart(members), failures


def _told_apart(members: list[Member]) -> list[Member]:
    times = Counter(member.name for member in members)
    return [
        replace(member, name=f"{member.folder.name}/{member.name}") if times[member.name] > 1 else member
        for member in members
    ]


def _member(recorded: Recorded) -> Member:
    result = recorded.result
    page = recorded.tensor.parent / recorded.naming.report
    thumbnail, size = _thumbnail(result)
    return Member(
        name=recorded.name,
        method=str(recorded.notes["Method"]),
        folder=recorded.tensor.parent,
        report=page if page.is_file() else None,
        figures=_figures(result),
        warnings=result.warnings,
        thumbnail=thumbnail,
        size_mm=size,
    )


def _figures(result: Reconstruction) -> dict[str, float | None]:
    summary = summarise("", result)
    white = white_matter(result) & (result.md < WHITE_MATTER_MD)
    litres_per_voxel = brain_litres(result) / int(result.mask.sum())

    def median(name: str, where: ndarray) -> float | None:
        return float(np.median(result.extra[name][where])) if name in result.extra and where.any() else None

    return {
        "fa": summary.median_fa,
        "md": summary.median_md,
        "brain": brain_litres(result),
        "white": summary.white_matter_voxels * litres_per_voxel,
        "spd": result.spd_touched_share,
        "prior": median("prior_share", white),
        "cone": median("v1_cone", white),
        "consistency": median("consistency", result.mask),
        "angle": max(result.angles_degrees, default=None),
    }


def _thumbnail(result: Reconstruction) -> tuple[UInt8[ndarray, "h w 3"], tuple[float, float]]:
    """FA and colour FA in one axial slice through the middle of the brain."""
    cuts = choose_cuts(result.space, result.mask, count=1)
    fa, _, colours = tensor_images(result.tensor, space=result.space, mask=result.mask)
    parts = [paint(cuts.row(fa, "axial"), ANISOTROPY), paint(cuts.row(colours, "axial"), None)]
    width, height = cuts.size_mm("axial")
    return np.concatenate(parts, axis=1), (2 * width, height)
