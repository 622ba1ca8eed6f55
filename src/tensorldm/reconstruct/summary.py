"""One screen about a reconstruction: is it what a brain looks like, how long did it take, what to beware of."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from tensorldm.reconstruct.result import Reconstruction

WHITE_MATTER_FA: Final = 0.25
WHITE_MATTER_MD: Final = 1.0e-3
"""mm²/s. White matter is taken to be where FA is above and MD below these: no tissue map is needed."""
EXPECTED_FA: Final = (0.35, 0.55)
EXPECTED_MD: Final = (0.60e-3, 0.90e-3)
"""mm²/s. Medians over white matter so defined, of healthy adults scanned at b = 1000 s/mm² and 2 mm."""


FOUR: Final = 4
"""Volumes of the paper's task."""


@dataclass(frozen=True)
class Summary:
    """Figures of one reconstruction."""

    name: str
    mask_voxels: int
    white_matter_voxels: int
    median_fa: float | None
    median_md: float | None
    spd_touched_share: float
    volumes: tuple[int, ...]
    angles_degrees: tuple[float, ...]
    seconds: tuple[tuple[str, float], ...]
    warnings: tuple[str, ...]

    def lines(self) -> Iterable[str]:
        """Plain sentences, in the order of importance."""
        if self.median_fa is None or self.median_md is None:
            yield f"No voxel looks like white matter (FA > {WHITE_MATTER_FA}, MD < {WHITE_MATTER_MD:g} mm²/s)."
        else:
            yield f"white matter, median FA   {self.median_fa:.2f} {judged(self.median_fa, EXPECTED_FA, '.2f')}"
            yield f"white matter, median MD   {self.median_md:.2e} {judged(self.median_md, EXPECTED_MD, '.2e')} mm²/s"
        yield f"not positive definite     {self.spd_touched_share:.2%} of {self.mask_voxels} voxels, before projection"
        angles = ", ".join(f"{axis} {angle:.0f}°" for axis, angle in zip("xyz", self.angles_degrees, strict=False))
        which = (
            "angles to the axes" if len(self.volumes) == FOUR else "of the three nearest to the axes, angles to them"
        )
        yield f"volumes used              {', '.join(map(str, self.volumes))} ({which}: {angles})"
        total = sum(seconds for _, seconds in self.seconds)
        parts = "; ".join(f"{part} {seconds:.1f}" for part, seconds in self.seconds)
        yield f"seconds                   {total:.1f} ({parts})"


def summarise(name: str, result: Reconstruction) -> Summary:
    """The figures of a reconstruction."""
    fa, md = result.fa[result.mask], result.md[result.mask]
    white = (fa > WHITE_MATTER_FA) & (md < WHITE_MATTER_MD)
    return Summary(
        name=name,
        mask_voxels=int(result.mask.sum()),
        white_matter_voxels=int(white.sum()),
        median_fa=float(np.median(fa[white])) if white.any() else None,
        median_md=float(np.median(md[white])) if white.any() else None,
        spd_touched_share=result.spd_touched_share,
        volumes=result.volumes,
        angles_degrees=result.angles_degrees,
        seconds=tuple(result.seconds.items()),
        warnings=result.warnings,
    )


def judged(value: float, expected: tuple[float, float], form: str) -> str:
    """Whether a figure, as it is written, lies in its expected range."""
    low, high = expected
    value = float(f"{value:{form}}")  # as it is shown
    word = "as expected" if low <= value <= high else "below the usual" if value < low else "above the usual"
    return f"({word} {low:{form}} to {high:{form}})"
