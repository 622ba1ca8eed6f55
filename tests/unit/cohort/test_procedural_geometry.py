"""The parts that heads are put together from, against closed forms."""

import itertools
import math

import pytest
import torch

from tensorldm import rng
from tensorldm.cohort.procedural import REGIONS, draw_shape
from tensorldm.cohort.procedural.bundles import all_names, control_points
from tensorldm.cohort.procedural.coordinates import draw_frame
from tensorldm.cohort.procedural.distance import chain, ellipsoid
from tensorldm.cohort.procedural.fibres import BundlePart, collect
from tensorldm.cohort.procedural.noise import draw_waves
from tensorldm.cohort.procedural.tubes import Tube, follow, make_tube
from tensorldm.errors import DataError


def _points(count: int, spread: float = 60.0) -> torch.Tensor:
    return spread * torch.randn(count, 3, generator=torch.Generator().manual_seed(1))


def _straight_cone(radius_start: float, radius_end: float, length: float = 60.0) -> Tube:
    """A tube along z whose radius grows evenly."""
    heights = torch.linspace(0, length, 241)
    centres = torch.stack([torch.zeros_like(heights), torch.zeros_like(heights), heights], dim=-1)
    radii = (radius_start + (radius_end - radius_start) * heights / length)[:, None].expand(-1, 2)
    axis = torch.eye(3)[:, :, None].expand(3, 3, len(heights)).permute(0, 2, 1)
    return Tube(
        centres=centres,
        tangents=axis[2],
        major_axes=axis[0],
        minor_axes=axis[1],
        radii=radii,
        growth=(radius_end - radius_start) / length / radii,
        trunk=torch.ones_like(heights),
        density=1.0,
    )


def test_fibres_of_a_widening_tube_are_straight_lines_from_the_apex_of_its_cone():
    tube = _straight_cone(3.0, 15.0)
    apex = torch.tensor([0.0, 0.0, -15.0])
    points = torch.rand(500, 3, generator=torch.Generator().manual_seed(0)) * torch.tensor([8.0, 8.0, 40.0])
    points[:, 2] += 10
    amount, direction, _ = follow(points, tube, softness=0.5)
    inside = amount > 0.5
    expected = torch.nn.functional.normalize(points - apex, dim=-1)
    cosine = (direction * expected).sum(dim=-1).abs()[inside]
    assert inside.sum() > 50
    assert torch.rad2deg(torch.acos(cosine.clamp(max=1))).max() < 1.5


def test_a_tube_is_full_on_its_axis_half_at_its_radius_and_empty_beyond_its_ends():
    tube = _straight_cone(5.0, 5.0)
    amount, _, _ = follow(
        torch.tensor([[0.0, 0.0, 30.0], [5.0, 0.0, 30.0], [9.0, 0.0, 30.0], [0.0, 0.0, 75.0]]), tube, softness=0.5
    )
    assert amount[0] > 0.99
    assert amount[1] == pytest.approx(0.5, abs=0.05)
    assert amount[2] < 0.01
    assert amount[3] < 0.01


@pytest.mark.parametrize("name", all_names())
def test_a_bundle_passes_through_its_control_points_and_never_bends_tighter_than_it_is_thick(name):
    generator = torch.Generator().manual_seed(0)
    tube = make_tube(name, generator, scale=1.0, shift=0.0)
    points = torch.tensor(control_points(name)[1], dtype=torch.float32)[:, :3]
    assert torch.cdist(points, tube.centres).amin(dim=1).max() < 1e-3
    bend = torch.linalg.vector_norm(torch.gradient(tube.tangents, dim=0)[0], dim=-1)
    steps = torch.linalg.vector_norm(torch.gradient(tube.centres, dim=0)[0], dim=-1)
    assert ((bend / steps) * tube.radii.amin(dim=-1)).max() < 1


def test_left_and_right_bundles_mirror_each_other():
    left = make_tube("CST_left", torch.Generator().manual_seed(0), scale=1.0, shift=0.0)
    right = make_tube("CST_right", torch.Generator().manual_seed(0), scale=1.0, shift=0.0)
    mirror = torch.tensor([-1.0, 1.0, 1.0])
    torch.testing.assert_close(left.centres * mirror, right.centres)
    points = _points(400, 30.0)
    amount_left, direction_left, _ = follow(points * mirror, left, softness=1.0)
    amount_right, direction_right, _ = follow(points, right, softness=1.0)
    torch.testing.assert_close(amount_left, amount_right, atol=1e-4, rtol=0)
    torch.testing.assert_close(direction_left * mirror, direction_right, atol=1e-4, rtol=0)


def test_fibres_stay_tangent_to_their_bundle_when_a_head_is_deformed():
    frame = draw_frame(draw_shape("train", 3), rng.generator(0, "test"))
    points, vectors = _points(300), torch.nn.functional.normalize(_points(300), dim=-1)
    moved = frame.directions_to_head(points, vectors[:, None])[:, 0]
    step = 0.05
    travelled = frame.to_average(points + step * moved) - frame.to_average(points - step * moved)
    cosine = (torch.nn.functional.normalize(travelled, dim=-1) * vectors).sum(dim=-1)
    assert cosine.min() > 0.9999


@pytest.mark.parametrize("split", REGIONS)
def test_no_head_is_folded_onto_itself(split):
    points = _points(2000, 45.0)
    for index in range(10):
        frame = draw_frame(draw_shape(split, index), rng.generator(0, split, index))
        basis = torch.eye(3).expand(len(points), 3, 3)
        step = 0.1
        columns = [(frame.to_average(points + step * basis[:, i]) - frame.to_average(points)) / step for i in range(3)]
        assert torch.linalg.det(torch.stack(columns, dim=-1)).min() > 0.2


def test_plane_waves_have_unit_variance_and_their_exact_gradient():
    waves = draw_waves(torch.Generator().manual_seed(4), 20.0, count=64)
    points = _points(20000, 300.0).requires_grad_()
    values = waves(points)
    assert values.std().item() == pytest.approx(1.0, abs=0.05)
    (slope,) = torch.autograd.grad(values.sum(), points)
    torch.testing.assert_close(waves.gradient(points.detach()), slope, atol=1e-4, rtol=1e-3)


def test_distances_of_spheres_and_capsules_are_exact():
    points = _points(500, 20.0)
    from_centre = torch.linalg.vector_norm(points - torch.tensor([1.0, 2.0, 3.0]), dim=-1)
    torch.testing.assert_close(ellipsoid(points, (1.0, 2.0, 3.0), radii=(9.0, 9.0, 9.0)), 9 - from_centre)
    ball = chain(points, [(0.0, 0.0, 0.0), (0.0, 0.0, 10.0)], radii=[4.0, 4.0])
    height = points[:, 2].clamp(0, 10)
    expected = 4 - torch.hypot(torch.hypot(points[:, 0], points[:, 1]), points[:, 2] - height)
    torch.testing.assert_close(ball, expected)


def test_parallel_bundles_share_a_population_and_crossing_ones_do_not():
    rows = torch.arange(4)

    def part(direction: list[float], amount: float) -> BundlePart:
        amounts = torch.full((4,), amount)
        return BundlePart(rows, amounts, torch.tensor(direction).expand(4, 3), amounts)

    tilted = [math.sin(0.1), 0.0, math.cos(0.1)]
    populations = collect(
        {
            "up": part([0.0, 0.0, 1.0], 1.0),
            "down": part([-x for x in tilted], 1.0),
            "across": part([1.0, 0.0, 0.0], 1.0),
        },
        densities={"up": 1.0, "down": 1.0, "across": 1.0},
        background=torch.tensor([[0.0, 1.0, 0.0]]).expand(4, 3),
        background_weight=0.25,
        texture=torch.ones(4),
    )
    weights, order = populations.weights[0].sort(descending=True)
    torch.testing.assert_close(weights, torch.tensor([2.0, 1.0, 0.25]) / 3.25)
    strongest = populations.directions[0, order[0]].abs()
    assert strongest[2] > math.cos(0.06)
    assert populations.directions[0, order[1], 0].abs() == 1


def test_held_out_heads_lie_outside_the_training_heads_range_in_every_held_out_parameter():
    for parameter in ("width_to_length", "fold_wavelength", "ventricle_scale"):
        intervals = sorted(getattr(region, parameter) for region in REGIONS.values())
        assert all(before[1] < after[0] for before, after in itertools.pairwise(intervals))
        for split, region in REGIONS.items():
            low, high = getattr(region, parameter)
            values = [getattr(draw_shape(split, index), parameter) for index in range(200)]
            assert low <= min(values) < max(values) <= high
            assert max(values) - min(values) > 0.8 * (high - low)


def test_a_split_that_does_not_exist_is_refused_by_name():
    with pytest.raises(DataError, match=r"no split 'tset'.*train, validation, test"):
        draw_shape("tset", 0)
