"""Procedural heads as a source of anatomies: ``procedural/train/0000`` and so on, each the same every time."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch

from tensorldm.cohort.anatomy import Anatomy
from tensorldm.cohort.bundle_names import PAPER_BUNDLES
from tensorldm.cohort.procedural.bundles import all_names
from tensorldm.cohort.procedural.head import draw_head
from tensorldm.cohort.procedural.parameters import REGIONS, draw_shape
from tensorldm.errors import DataError

NAME: Final = re.compile(r"procedural/(\w+)/(\d{4})")


@dataclass(frozen=True)
class ProceduralSource:
    """Heads of one split on one grid.

    ``bundles`` are the ones described with mask and directions; all bundles are drawn in every head. Give an empty
    tuple for training: dense direction fields are the largest part of an anatomy.
    """

    split: str = "train"
    count: int = 1000
    shape: tuple[int, int, int] = (96, 112, 96)
    voxel_size: tuple[float, float, float] = (2.0, 2.0, 2.0)
    bundles: tuple[str, ...] = PAPER_BUNDLES

    def __post_init__(self) -> None:
        if self.split not in REGIONS:
            raise DataError(f"There is no split '{self.split}' of procedural heads. Give one of {', '.join(REGIONS)}.")
        unknown = sorted(set(self.bundles) - set(all_names()))
        if unknown:
            raise DataError(f"Procedural heads have no bundle '{unknown[0]}'. Give some of {', '.join(all_names())}.")

    @property
    def names(self) -> Sequence[str]:
        """Every head of this split."""
        return [f"procedural/{self.split}/{index:04d}" for index in range(self.count)]

    def load(self, name: str, *, device: torch.device | str = "cpu") -> Anatomy:
        """Draw one head."""
        found = NAME.fullmatch(name)
        if not found or found[1] != self.split or int(found[2]) >= self.count:
            raise DataError(f"There is no head '{name}' here. Give {self.names[0]} to {self.names[-1]}.")
        return draw_head(
            name,
            draw_shape(self.split, int(found[2])),
            grid=self.shape,
            voxel_size=self.voxel_size,
            bundles=self.bundles,
            device=device,
        )
