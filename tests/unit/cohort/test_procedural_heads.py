"""Whole procedural heads: physics, anatomy and repeatability, on a coarse grid."""

from functools import cache

import pytest
import torch

from tensorldm.cohort.anatomy import Anatomy, Bundle
from tensorldm.cohort.procedural import PAPER_BUNDLES, ProceduralSource
from tensorldm.dti.eigen import eigenvalues
from tensorldm.dti.maps import fractional_anisotropy, mean_diffusivity, principal_direction
from tensorldm.errors import DataError

GRID, VOXEL = (56, 64, 56), (3.5, 3.5, 3.5)
SPLITS = ("train", "validation", "test")


@cache
def _head(split: str, index: int = 0) -> Anatomy:
    source = ProceduralSource(split, shape=GRID, voxel_size=VOXEL)
    return source.load(source.names[index])


@pytest.fixture(scope="module", params=SPLITS)
def head(request: pytest.FixtureRequest) -> Anatomy:
    return _head(request.param)


def _x(mask: torch.Tensor) -> torch.Tensor:
    """Millimetres to the right of the grid's middle."""
    return (mask.nonzero()[:, 0] - (GRID[0] - 1) / 2) * VOXEL[0]


def test_fractions_sum_to_one_in_the_brain_and_vanish_outside(head):
    for shares in (head.fractions, head.tissue):
        total = shares.sum(dim=0)
        assert (total[head.mask] - 1).abs().max() < 1e-5
        assert shares[:, ~head.mask].abs().max() == 0
        assert shares.min() >= 0
    assert head.s0[~head.mask].abs().max() == 0


def test_every_compartment_diffuses_in_the_physical_range(head):
    values = eigenvalues(head.tensors[..., head.mask].movedim(1, -1))
    assert values.min() > 0.1e-3
    assert values.max() < 3.5e-3


def test_tissues_have_the_diffusivities_and_brightness_of_a_brain(head):
    packed = head.components[0].movedim(0, -1)
    fa, md = fractional_anisotropy(packed), mean_diffusivity(packed)
    csf, grey, white = (share > 0.85 for share in head.tissue)
    assert 2.2e-3 < md[csf].median() < 3.2e-3
    assert 0.7e-3 < md[grey].median() < 1.2e-3
    assert 0.65e-3 < md[white].median() < 0.9e-3
    assert fa[csf].median() < 0.05
    assert 0.05 < fa[grey].median() < 0.25
    assert 0.35 < fa[white].median() < 0.55
    assert fa[white].quantile(0.98) > 0.6
    assert head.s0[white].median().item() == pytest.approx(1, abs=0.15)
    assert head.s0[grey].median() < head.s0[csf].median()


def test_the_brain_has_a_brains_volume(head):
    millilitres = head.tissue.sum(dim=(1, 2, 3)) * VOXEL[0] ** 3 / 1000
    csf, grey, white = millilitres.tolist()
    assert 1000 < grey + white < 1500
    assert 0.6 < white / grey < 1.4
    assert 150 < csf < 500


def test_all_twelve_bundles_run_where_and_as_anatomy_has_them(head):
    assert set(head.bundles) == set(PAPER_BUNDLES)
    strength = {}
    for name, bundle in head.bundles.items():
        assert bundle.mask.sum() > 25, name
        length = torch.linalg.vector_norm(bundle.directions, dim=0)
        torch.testing.assert_close(length, bundle.mask.float(), atol=1e-4, rtol=0)
        strength[name] = bundle.directions[:, bundle.mask].abs().mean(dim=1)
        side = _x(bundle.mask).median()
        if name.endswith("_left"):
            assert side < -3, name
        if name.endswith("_right"):
            assert side > 3, name
    for side in ("left", "right"):
        assert strength[f"CST_{side}"][2] > 0.85
        assert strength[f"CG_{side}"].argmax() == 1
        assert strength[f"ILF_{side}"][1] > 0.75
        assert strength[f"IFO_{side}"][1] > 0.75
        assert strength[f"AF_{side}"].argmax() == 1


@pytest.mark.parametrize("name", ["CC_2", "CC_7"])
def test_the_callosum_crosses_the_midline_from_side_to_side(head, name):
    bundle = head.bundles[name]
    middle = _x(bundle.mask).abs() < 5
    assert middle.sum() >= 3
    assert bundle.directions[:, bundle.mask][0, middle].abs().mean() > 0.8
    assert (_x(bundle.mask) < -8).any()
    assert (_x(bundle.mask) > 8).any()


def _share_inside(bundle: Bundle, field: torch.Tensor, *, steps: int) -> float:
    """Share of the ways along ``field``, half a voxel a step in both senses, that end inside the bundle."""
    seeds = bundle.mask.nonzero().float()
    heights = seeds[:, 2].quantile(torch.tensor([0.3, 0.6]))
    seeds = seeds[(seeds[:, 2] > heights[0]) & (seeds[:, 2] < heights[1])]
    place = torch.cat([seeds, seeds])
    heading = torch.tensor([0.0, 0.0, 1.0]).expand_as(seeds)
    heading = torch.cat([heading, -heading])
    inside = torch.ones(len(place), dtype=torch.bool)
    for _ in range(steps):
        i, j, k = place.round().long().unbind(dim=-1)
        inside &= bundle.mask[i, j, k]
        ahead = field[:, i, j, k].T
        ahead = ahead * torch.where((ahead * heading).sum(dim=-1, keepdim=True) < 0, -1.0, 1.0)
        heading = torch.where(inside[:, None], ahead, heading)
        place = torch.where(inside[:, None], place + 0.5 * ahead, place)
    return inside.float().mean().item()


def test_following_a_bundles_directions_stays_in_it_and_following_their_mirror_image_leaves_it():
    head = ProceduralSource(bundles=("CST_left", "CST_right", "AF_left", "CG_left", "CC_7")).load(
        "procedural/train/0001"
    )
    for bundle in head.bundles.values():
        mirrored = bundle.directions * torch.tensor([-1.0, 1.0, 1.0])[:, None, None, None]
        along, against = (_share_inside(bundle, field, steps=16) for field in (bundle.directions, mirrored))
        assert along > 0.35
        assert against < along - 0.1


def test_the_mean_tensor_points_along_a_bundle_in_its_core(head):
    v1 = principal_direction(head.components[0].movedim(0, -1))
    packed = head.components[0].movedim(0, -1)
    for name in ("CC_7", "CG_left", "CST_right"):
        bundle = head.bundles[name]
        core = bundle.mask & (fractional_anisotropy(packed) > 0.5)
        cosine = (v1[core] * bundle.directions[:, core].T).sum(dim=-1).abs()
        assert cosine.median() > 0.95, name


def test_cortex_is_anisotropic_across_its_ribbon(head):
    inward = torch.stack(torch.gradient(head.tissue[2] - head.tissue[0], dim=(0, 1, 2)), dim=-1)
    steep = torch.linalg.vector_norm(inward, dim=-1) > 0.25
    cortex = (head.tissue[1] > 0.5) & steep
    columns = principal_direction(head.tensors[3].movedim(0, -1)[cortex])
    cosine = (columns * torch.nn.functional.normalize(inward[cortex], dim=-1)).sum(dim=-1).abs()
    assert cosine.mean() > 0.66  # 0.5 by chance; voxels are as thick as the ribbon


def test_fibre_populations_cross_in_a_good_part_of_the_white_matter(head):
    white = head.tissue[2] > 0.8
    weight = head.fractions[:3, white]
    directions = principal_direction(head.tensors[:3].movedim(1, -1)[:, white])
    first, second = weight.topk(2, dim=0).indices
    index = torch.arange(weight.shape[1])
    cosine = (directions[first, index] * directions[second, index]).sum(dim=-1).abs()
    crossing = (weight[second, index] > 0.2) & (cosine < 0.7)
    assert 0.15 < crossing.float().mean() < 0.8


def test_a_name_gives_the_same_head_each_time_and_another_name_another_head():
    first, again, other = _head("train", 0), _head.__wrapped__("train", 0), _head("train", 1)
    assert torch.equal(first.tensors, again.tensors)
    assert torch.equal(first.fractions, again.fractions)
    both = first.mask & other.mask
    assert (first.tissue - other.tissue)[:, both].abs().mean() > 0.1


def test_a_head_is_the_same_on_a_finer_grid():
    coarse = ProceduralSource(shape=(28, 32, 28), voxel_size=(7.0, 7.0, 7.0), bundles=()).load("procedural/train/0000")
    fine = _head("train", 0)
    blocks = fine.tissue.unfold(1, 2, 2).unfold(2, 2, 2).unfold(3, 2, 2).mean(dim=(4, 5, 6))
    inside = fine.mask.float().unfold(0, 2, 2).unfold(1, 2, 2).unfold(2, 2, 2).mean(dim=(3, 4, 5)) == 1
    pair = torch.stack([coarse.tissue[2][inside], blocks[2][inside]])
    assert torch.corrcoef(pair)[0, 1] > 0.75


def test_ventricles_grow_with_their_parameter_and_hold_out_heads_have_larger_ones():
    def middle_fluid(anatomy: Anatomy) -> float:
        x, y, z = (n // 2 for n in GRID)
        return anatomy.tissue[0, x - 8 : x + 9, y - 12 : y + 12, z - 4 : z + 8].mean().item()

    train = max(middle_fluid(_head("train", index)) for index in range(2))
    assert min(middle_fluid(_head("test", index)) for index in range(2)) > 1.1 * train


@pytest.mark.parametrize(
    ("arguments", "words"),
    [({"split": "tset"}, "no split 'tset'"), ({"bundles": ("CST_middle",)}, "no bundle 'CST_middle'")],
)
def test_a_wrong_setting_is_refused_with_what_there_is(arguments, words):
    with pytest.raises(DataError, match=words):
        ProceduralSource(**arguments)


@pytest.mark.parametrize("name", ["procedural/test/0000", "procedural/train/9999", "elition"])
def test_a_head_of_another_source_or_split_is_refused(name):
    with pytest.raises(DataError, match="no head"):
        ProceduralSource("train", count=10).load(name)
