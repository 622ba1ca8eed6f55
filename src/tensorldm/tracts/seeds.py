"""Where streamlines start: a fixed list of points, the same for every method and engine, cut into fixed chunks.

Voxels of the mask are divided into 4³ cells and cells are drawn without replacement, so seeds lie at the cells'
centres, scattered at random and never twice at one place. A chunk is a slab of them with a random seed of its own:
one process tracks it with one thread, so nothing depends on how many run at once.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from tensorldm.errors import DataError
from tensorldm.imaging.volume import Space
from tensorldm.rng import derive_seed, numpy_generator
from tensorldm.shapes import MaskImage

CELLS: Final = 4
"""Along each side of a voxel."""
CHUNK_SEEDS: Final = 5_000
"""Half a minute's work, and half a minute lost at most when a run is stopped."""
LARGEST_SEED: Final = 2**31 - 2
"""What both engines take for a seed; never 0, which means none to DIPY."""


@dataclass(frozen=True, eq=False)
class SeedChunk:
    """Some cells of the fine grid, in its order, and the random seed of the streamlines that start there."""

    index: int
    cells: Int[ndarray, "n 3"]
    random_seed: int

    def image(self, space: Space) -> tuple[MaskImage, Space]:
        """The cells as a mask on the fine grid, cut to the smallest box around them."""
        first = self.cells.min(axis=0)
        shape = self.cells.max(axis=0) - first + 1
        mask = np.zeros(tuple(shape), dtype=bool)
        mask[tuple((self.cells - first).T)] = True
        shift = np.eye(4)
        shift[:3, 3] = first
        return mask, _fine(space).moved(tuple(int(side) for side in shape), shift)

    def positions(self, space: Space) -> Float[ndarray, "n 3"]:
        """World coordinates in mm."""
        affine = _fine(space).affine
        return np.asarray(self.cells @ affine[:3, :3].T + affine[:3, 3])


def draw_seeds(mask: MaskImage, *, seeds: int, seed: int) -> list[SeedChunk]:
    """Chunks of at most ``CHUNK_SEEDS`` seeds that together hold ``seeds``."""
    voxels = np.argwhere(mask)
    available = len(voxels) * CELLS**3
    if seeds > available:
        raise DataError(
            f"{seeds} seeds do not fit into a mask of {len(voxels)} voxels, which holds {available}. Ask for fewer."
        )
    chosen = numpy_generator(seed, "seeds").choice(available, size=seeds, replace=False, shuffle=False)
    within = np.stack(np.unravel_index(chosen % CELLS**3, (CELLS,) * 3), axis=-1)
    cells = voxels[chosen // CELLS**3] * CELLS + within
    # By slab, so that a chunk's own image is small; tckgen visits x first, then y, then z.
    cells = cells[np.lexsort((cells[:, 0], cells[:, 1], cells[:, 2]))]
    parts = np.array_split(cells, -(-seeds // CHUNK_SEEDS))
    return [
        SeedChunk(index, part, 1 + derive_seed(seed, "chunk", index) % LARGEST_SEED) for index, part in enumerate(parts)
    ]


def _fine(space: Space) -> Space:
    """The grid of cells."""
    to_voxels = np.diag([1 / CELLS] * 3 + [1.0])
    to_voxels[:3, 3] = (1 / CELLS - 1) / 2
    return space.moved(tuple(side * CELLS for side in space.shape), to_voxels)
