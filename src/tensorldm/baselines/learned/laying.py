"""A scan laid into a volume of the size that a rival was trained in, and its tensors cut out again.

Group norm and transformers see all of a volume, the background too: a head that fills a crop around it is another
input than the same head in the middle of a training volume [choice: rival-volume]. So the brain is put in the middle
of the volume, however much lies around it in the scan; nothing outside a mask is ever read, so that may be cut.
Axes: b batch, f channel, x y z space.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Shaped
from pydantic import Field
from torch import Tensor

from tensorldm.shapes import Masks

LARGEST_SIDE = 512
"""Voxels. A stranger's bundle may ask for a volume that no memory holds."""
Side = Annotated[int, Field(ge=4, le=LARGEST_SIDE)]
Volume = tuple[Side, Side, Side]
Multiples = tuple[int, int, int]


@dataclass(frozen=True)
class Laying:
    """Voxels to add before and after each axis; below zero, to cut."""

    around: tuple[tuple[int, int], ...]

    def there(self, values: Shaped[Tensor, "b *f x y z"]) -> Shaped[Tensor, "b *f _ _ _"]:
        """The scan in its volume."""
        return self._moved(values, sign=1)

    def back(self, values: Shaped[Tensor, "b *f x y z"]) -> Shaped[Tensor, "b *f _ _ _"]:
        """The volume's part that is the scan; zero where the scan was cut."""
        return self._moved(values, sign=-1)

    def _moved(self, values: Shaped[Tensor, "b *f x y z"], *, sign: int) -> Shaped[Tensor, "b *f _ _ _"]:
        flat = [sign * side for pair in reversed(self.around) for side in pair]
        return F.pad(values, flat) if any(flat) else values


def behind(mask: Masks, multiples: Multiples) -> Laying:
    """The scan as it is, its sides made whole multiples."""
    sides = mask.shape[1:]
    return Laying(tuple((0, -side % multiple) for side, multiple in zip(sides, multiples, strict=True)))


def laid_into(mask: Masks, volume: Volume, multiples: Multiples) -> Laying:
    """The brain in the middle of a volume; along an axis where it is longer, of the next multiple that holds it."""
    return Laying(
        tuple(
            _around(mask[0].any(dim=tuple({0, 1, 2} - {axis})), volume[axis], multiple)
            for axis, multiple in enumerate(multiples)
        )
    )


def _around(brain: Bool[Tensor, " n"], side: int, multiple: int) -> tuple[int, int]:
    extent, held = len(brain), torch.nonzero(brain).flatten().tolist()
    first, last = (held[0], held[-1]) if held else (0, extent - 1)
    length = last + 1 - first
    wanted = side if length <= side else -(-length // multiple) * multiple
    before = wanted // 2 - (first + last + 1) // 2
    return before, wanted - extent - before
