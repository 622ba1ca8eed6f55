import numpy as np
import pytest

from tensorldm.errors import DataError
from tensorldm.imaging.volume import Space
from tensorldm.tracts.regions import Region, look_up
from tensorldm.tracts.seeds import CELLS, CHUNK_SEEDS, draw_seeds


@pytest.fixture
def mask():
    mask = np.zeros((12, 15, 10), dtype=bool)
    mask[3:9, 4:12, 2:8] = True
    return mask


@pytest.fixture
def space():
    affine = np.array([[-2.0, 0, 0.1, 9], [0, 1.8, 0.5, -7], [0, -0.4, 2.2, 3], [0, 0, 0, 1]])
    return Space((12, 15, 10), affine)


def test_seeds_lie_in_the_mask_each_at_its_own_place(mask, space):
    chunks = draw_seeds(mask, seeds=7000, seed=0)
    places = np.concatenate([chunk.positions(space) for chunk in chunks])
    assert len(places) == 7000 == len(np.unique(places.round(4), axis=0))
    assert look_up(Region(mask, space), places).all()
    assert all(len(chunk.cells) <= CHUNK_SEEDS for chunk in chunks)


def test_seeds_fill_the_mask_evenly_within_and_over_voxels(mask, space):
    (chunk,) = draw_seeds(mask, seeds=4000, seed=1)
    share = chunk.cells % CELLS
    assert np.allclose(share.mean(axis=0), (CELLS - 1) / 2, atol=0.1)
    middle = np.append(np.argwhere(mask).mean(axis=0), 1) @ space.affine[:3].T
    assert np.allclose(chunk.positions(space).mean(axis=0), middle, atol=0.3)


def test_all_cells_can_be_asked_for(mask):
    assert sum(len(chunk.cells) for chunk in draw_seeds(mask, seeds=int(mask.sum()) * CELLS**3, seed=0)) == 18432


def test_the_image_of_a_chunk_holds_exactly_its_seeds(mask, space):
    chunk = draw_seeds(mask, seeds=7000, seed=0)[1]
    image, fine = chunk.image(space)
    centres = np.argwhere(image) @ fine.affine[:3, :3].T + fine.affine[:3, 3]
    both = [each[np.lexsort(each.round(4).T)] for each in (centres, chunk.positions(space))]
    assert np.allclose(*both, atol=1e-9)


def test_the_seed_decides_seeds_and_random_numbers(mask):
    one, same, other = (draw_seeds(mask, seeds=6000, seed=seed) for seed in (0, 0, 1))
    assert all(
        np.array_equal(a.cells, b.cells) and a.random_seed == b.random_seed for a, b in zip(one, same, strict=True)
    )
    assert not np.array_equal(one[0].cells, other[0].cells)
    assert len({chunk.random_seed for chunk in (*one, *other)}) == 4


def test_more_seeds_than_there_is_room_for_are_refused(mask):
    with pytest.raises(DataError, match="288 voxels, which holds 18432"):
        draw_seeds(mask, seeds=18433, seed=0)
