import pytest
import torch

from tensorldm.baselines.learned.maps import MAP_SCALES, PUBLISHED, WITH_SIGNS, maps_of, tensor_of
from tensorldm.baselines.learned.slices import AT_ONCE, by_slices, draw_slices, take_slices


def _randoms(*seeds):
    return [torch.Generator().manual_seed(seed) for seed in seeds]


def test_drawn_slices_hold_brain_and_none_comes_twice_where_there_are_enough(heads):
    places = draw_slices(heads.mask, 6, _randoms(1, 2))
    for head, which in zip(heads.mask, places, strict=True):
        assert head[..., which].any(dim=(0, 1)).all()
        assert len(set(which.tolist())) == 6


def test_more_slices_than_there_are_come_again_evenly(heads):
    few = heads.mask[:1].clone()
    few[..., :7] = few[..., 9:] = False
    places = draw_slices(few, 6, _randoms(1))[0].tolist()
    assert sorted(places) == [7, 7, 7, 8, 8, 8]


def test_a_heads_slices_depend_on_its_own_generator_alone(heads):
    together = draw_slices(heads.mask, 5, _randoms(1, 2))
    alone = draw_slices(heads.mask[1:], 5, _randoms(2))
    assert torch.equal(together[1:], alone)


def test_a_head_without_brain_still_gives_slices():
    empty = torch.zeros(1, 4, 4, 4, dtype=torch.bool)
    assert draw_slices(empty, 3, _randoms(0)).shape == (1, 3)


def test_slices_are_axial_planes_in_the_order_of_heads():
    volume = torch.arange(2 * 3 * 2 * 2 * 5, dtype=torch.float32).reshape(2, 3, 2, 2, 5)
    slices = take_slices(volume, torch.tensor([[4, 0], [1, 2]]))
    assert torch.equal(slices[1], volume[0, ..., 0])
    assert torch.equal(slices[2], volume[1, ..., 1])


def test_a_volume_goes_through_slice_by_slice_whatever_its_height():
    volume = torch.randn(1, 2, 3, 3, AT_ONCE + 5, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(by_slices(lambda part: 2 * part[:, :1], volume), 2 * volume[:, :1])


def test_maps_of_a_cylinder_in_the_first_octant_come_back_as_its_tensor():
    fibre = torch.tensor([1.0, 2.0, 0.5])
    fibre = fibre / fibre.norm()
    matrix = 0.4e-3 * torch.eye(3) + 1.1e-3 * torch.outer(fibre, fibre)
    packed = torch.stack([matrix[i, j] for i, j in ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))])
    components = packed.reshape(1, 6, 1, 1, 1).expand(1, 6, 2, 2, 2).contiguous()
    maps = maps_of(components, torch.ones(1, 2, 2, 2, dtype=torch.bool))
    # FA of eigenvalues 1.5, 0.4, 0.4: sqrt(3/2) |deviation| / |values|
    values = torch.tensor([1.5e-3, 0.4e-3, 0.4e-3])
    fa = (1.5**0.5 * (values - values.mean()).norm() / values.norm()).item()
    wanted = torch.tensor([fa, values.mean().item(), 0.4e-3, *(fa * fibre).tolist()]) / torch.tensor(
        MAP_SCALES[:PUBLISHED]
    )
    assert torch.allclose(maps[0, :, 0, 0, 0], wanted, atol=1e-4)
    assert torch.allclose(tensor_of(maps), components, atol=1e-8)


def test_colour_has_lost_the_sign_so_a_mirrored_fibre_comes_back_in_the_first_octant():
    fibre = torch.tensor([1.0, -1.0, 0.0]) / 2**0.5
    matrix = 0.4e-3 * torch.eye(3) + 1.1e-3 * torch.outer(fibre, fibre)
    packed = torch.stack([matrix[i, j] for i, j in ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))])
    components = packed.reshape(1, 6, 1, 1, 1)
    found = tensor_of(maps_of(components, torch.ones(1, 1, 1, 1, dtype=torch.bool)))
    assert torch.allclose(found[:, 3], -components[:, 3], atol=1e-8)
    assert torch.allclose(found[:, :3], components[:, :3], atol=1e-8)


@pytest.mark.parametrize("fibre", [(1, -1, 0), (-2, 1, 3), (0, 1, -1), (1, 1, 1), (0, 0, 1)])
def test_with_signs_a_cylinder_of_any_direction_comes_back(fibre):
    components = _cylinder(fibre)
    maps = maps_of(components, torch.ones(1, 1, 1, 1, dtype=torch.bool), signs=True)
    assert maps.shape[1] == WITH_SIGNS
    assert torch.equal(maps[:, :PUBLISHED], maps_of(components, torch.ones(1, 1, 1, 1, dtype=torch.bool)))
    assert torch.allclose(tensor_of(maps), components, atol=1e-8)


def test_with_signs_a_direction_that_is_blurred_with_its_opposite_keeps_its_axis():
    """A regression averages what a scan leaves open: signed vectors would cancel, products do not."""
    inside = torch.ones(1, 1, 1, 1, dtype=torch.bool)
    one, other = (maps_of(_cylinder(fibre), inside, signs=True) for fibre in ((2, -1, 0), (-2, 1, 0)))
    assert torch.allclose(tensor_of((one + other) / 2), _cylinder((2, -1, 0)), atol=1e-8)


def test_with_signs_the_length_of_the_tensor_is_still_that_of_e13():
    maps = maps_of(_cylinder((1, -1, 0)), torch.ones(1, 1, 1, 1, dtype=torch.bool), signs=True)
    maps[:, PUBLISHED:] *= 0.4  # a shrunken dyad is a direction, and no anisotropy
    assert torch.allclose(tensor_of(maps), _cylinder((1, -1, 0)), atol=1e-8)


def _cylinder(fibre):
    axis = torch.tensor(fibre, dtype=torch.float32) / torch.tensor(fibre, dtype=torch.float32).norm()
    matrix = 0.4e-3 * torch.eye(3) + 1.1e-3 * torch.outer(axis, axis)
    packed = torch.stack([matrix[i, j] for i, j in ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))])
    return packed.reshape(1, 6, 1, 1, 1)


@pytest.mark.parametrize("count", [PUBLISHED, WITH_SIGNS])
def test_maps_that_cannot_be_give_tensors_that_can(count):
    wild = torch.tensor([9.0, -3.0, -2.0, 5.0, -5.0, 0.1] * 2)[:count].reshape(1, count, 1, 1, 1)
    found = tensor_of(wild)
    assert torch.isfinite(found).all()
    assert (found[:, :3] >= 0).all()
