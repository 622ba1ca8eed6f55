"""Warps move tissue, and tensors turn with it."""

from dataclasses import replace

import pytest
import torch

from tensorldm.cohort.deformation import Deformation, coordinates, exponential, pull_back, sample
from tensorldm.cohort.draws import rotation, smooth_field
from tensorldm.cohort.reorientation import carry, determinant, reorient, rotation_part
from tensorldm.cohort.settings import WarpSettings
from tensorldm.cohort.warp import (
    draw_deformation,
    draw_pose,
    mirror_anatomy,
    mirrored_name,
    velocity_grid,
    warp_anatomy,
)
from tensorldm.dti.eigen import eigenvalues
from tensorldm.dti.maps import angle_degrees, principal_direction
from tensorldm.dti.packing import rotate

CPU = torch.device("cpu")
TURN = torch.tensor([0.25, -0.2, 0.3])


def warp_back(anatomy, pose, velocity) -> Deformation:
    """A⁻¹ ∘ exp(-v), the inverse of ``warp_of``: from the old head back to the new one."""
    _, voxel_size = velocity_grid(anatomy)
    start = coordinates(tuple(anatomy.s0.shape), anatomy.voxel_size, device=CPU)
    flow = exponential(-velocity, voxel_size)
    moved = start + sample(flow, start, voxel_size=voxel_size, beyond="border")
    offset = pose[:, 3].float()[:, None, None, None]
    linear = torch.linalg.inv(pose[:, :3]).float()
    return Deformation(torch.einsum("ij,jxyz->ixyz", linear, moved - offset), anatomy.voxel_size)


def warp_of(anatomy, pose=None, velocity=None) -> Deformation:
    shape, voxel_size = velocity_grid(anatomy)
    pose = torch.eye(3, 4, dtype=torch.float64) if pose is None else pose
    velocity = torch.zeros(3, *shape) if velocity is None else velocity
    return pull_back(
        pose,
        velocity,
        velocity_voxel_size=voxel_size,
        shape=tuple(anatomy.s0.shape),
        voxel_size=anatomy.voxel_size,
    )


def random_velocity(anatomy, generator, spacing_mm=24.0, displacement_mm=3.0):
    shape, voxel_size = velocity_grid(anatomy)
    field = smooth_field(shape, voxel_size, spacing_mm=spacing_mm, channels=3, generator=generator, device=CPU)
    return displacement_mm * field


def uniform_anatomy(anatomy, packed):
    tensors = packed[:, None, None, None].expand_as(anatomy.tensors[0]) * anatomy.mask
    return replace(anatomy, tensors=tensors[None], fractions=anatomy.mask.float()[None], bundles={})


@pytest.mark.parametrize("how", ["finite-strain", "ppd"])
def test_a_pure_rotation_turns_every_tensor_by_exactly_that_rotation(helical_anatomy, how):
    packed = torch.tensor([1.7, 0.5, 0.3, 0.1, -0.2, 0.05]) * 1e-3
    turn = rotation(TURN)
    pose = torch.cat([turn, torch.zeros(3, 1)], dim=1)
    warped = warp_anatomy(uniform_anatomy(helical_anatomy, packed), warp_of(helical_anatomy, pose), reorientation=how)
    # The pose looks from the new head into the old one, so tissue turns the other way.
    expected = rotate(packed, turn.T.float())
    found = warped.tensors[0][:, warped.mask].T
    assert angle_degrees(principal_direction(found), principal_direction(expected.expand_as(found))).max() < 0.01
    assert torch.allclose(found, expected.expand_as(found), atol=2e-8)


def test_finite_strain_finds_the_rotation_in_a_strained_map(generator):
    turn = rotation(TURN).float()
    strain = torch.randn(50, 3, 3, generator=generator) * 0.15
    strain = torch.eye(3) + (strain + strain.mT) / 2
    found = rotation_part(turn @ strain)
    assert torch.allclose(found, turn.expand_as(found), atol=1e-5)


def test_reorientation_keeps_the_eigenvalues(generator):
    factors = torch.randn(2, 40, 3, 3, generator=generator, dtype=torch.float64)
    full = factors @ factors.mT
    packed = torch.stack([full[..., i, j] for i, j in ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))], dim=-1)
    jacobian = torch.eye(3, dtype=torch.float64) + 0.2 * torch.randn(40, 3, 3, generator=generator, dtype=torch.float64)
    for how in ("finite-strain", "ppd"):
        turned = reorient(packed, jacobian, how=how)
        assert torch.allclose(eigenvalues(turned), eigenvalues(packed), rtol=1e-5, atol=1e-7)


def test_a_shear_carries_the_first_eigenvector_along_the_fibre_with_ppd_and_not_with_finite_strain():
    fibre = torch.tensor([0.0, 1.0, 0.0])
    packed = torch.tensor([0.3, 1.7, 0.3, 0.0, 0.0, 0.0])[None, None]
    tissue_moves_by = torch.tensor([[1.0, 0.4, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    jacobian = torch.linalg.inv(tissue_moves_by)[None]
    expected = tissue_moves_by @ fibre
    with_ppd, with_strain = (
        angle_degrees(principal_direction(reorient(packed, jacobian, how=how))[0, 0], expected)
        for how in ("ppd", "finite-strain")
    )
    assert with_ppd < 0.01
    assert with_strain > 5


def test_a_fibre_curve_stays_tangent_to_the_warped_first_eigenvector(helical_anatomy, generator):
    pose = draw_pose(WarpSettings(scale=0.1, shear=0.1), generator)
    velocity = random_velocity(helical_anatomy, generator)
    there = warp_of(helical_anatomy, pose, velocity)
    back = warp_back(helical_anatomy, pose, velocity)

    angles = torch.linspace(-1.2, 1.2, 200)
    curve = torch.stack([14.0 * angles.cos(), 14.0 * angles.sin(), 12.0 * angles])  # a helix of the anatomy
    moved = sample(back.positions, curve[:, :, None, None], voxel_size=helical_anatomy.voxel_size)[:, :, 0, 0]
    before, after = (torch.gradient(each, dim=1)[0].T[5:-5] for each in (curve, moved))
    assert angle_degrees(before, after).median() > 5, "the warp must turn the fibres for this test to mean anything"

    apart = {}
    for how in ("ppd", "finite-strain"):
        warped = warp_anatomy(helical_anatomy, there, reorientation=how)
        tensors = sample(warped.tensors[0], moved[:, 5:-5, None, None], voxel_size=warped.voxel_size)[:, :, 0, 0].T
        apart[how] = angle_degrees(principal_direction(tensors), after)
    assert apart["ppd"].median() < 1
    assert apart["ppd"].max() < 2.5
    assert apart["finite-strain"].median() < 20
    assert apart["finite-strain"].median() > 3 * apart["ppd"].median(), "why PPD is the default"


def test_flowing_there_and_back_returns_every_point(helical_anatomy, generator):
    velocity = random_velocity(helical_anatomy, generator, displacement_mm=4.0)
    pose = draw_pose(WarpSettings(), generator)
    there = warp_of(helical_anatomy, pose, velocity)
    back = warp_back(helical_anatomy, pose, velocity)
    start = coordinates(tuple(helical_anatomy.s0.shape), helical_anatomy.voxel_size, device=CPU)
    around = sample(there.positions, back.positions, voxel_size=helical_anatomy.voxel_size, beyond="border")
    middle = (slice(None),) + (slice(8, -8),) * 3
    error = (around - start)[middle].norm(dim=0)
    assert (there.positions - start)[middle].norm(dim=0).median() > 3
    assert error.max() < 0.25  # mm, an eighth of a voxel


def test_warping_a_field_there_and_back_returns_it(helical_anatomy, generator):
    pose = draw_pose(WarpSettings(rotation_degrees=10.0, translation_mm=1.0), generator)
    velocity = random_velocity(helical_anatomy, generator, displacement_mm=2.0)
    there = warp_anatomy(helical_anatomy, warp_of(helical_anatomy, pose, velocity))
    again = warp_anatomy(there, warp_back(helical_anatomy, pose, velocity))
    positions = coordinates(tuple(again.s0.shape), again.voxel_size, device=CPU)
    inner = again.mask & helical_anatomy.mask & (positions.norm(dim=0) > 12) & (positions.norm(dim=0) < 22)
    apart = angle_degrees(*(principal_direction(each.tensors[0][:, inner].T) for each in (again, helical_anatomy)))
    assert inner.sum() > 3000
    assert apart.median() < 1
    assert apart.max() < 6
    assert (again.s0 - helical_anatomy.s0)[inner].abs().max() < 0.05


def test_a_known_flow_is_integrated_right():
    # v = A p has the flow exp(A) p.
    voxel_size = (2.0, 2.0, 2.0)
    positions = coordinates((24, 24, 24), voxel_size, device=CPU)
    linear = torch.tensor([[0.0, 0.2, 0.0], [-0.2, 0.05, 0.0], [0.0, 0.1, -0.1]])
    velocity = torch.einsum("ij,jxyz->ixyz", linear, positions)
    expected = torch.einsum("ij,jxyz->ixyz", torch.linalg.matrix_exp(linear), positions) - positions
    middle = (slice(None),) + (slice(6, -6),) * 3
    assert torch.allclose(exponential(velocity, voxel_size)[middle], expected[middle], atol=0.05)


@pytest.mark.parametrize("seed", range(4))
def test_drawn_deformations_never_fold(helical_anatomy, seed):
    generator = torch.Generator().manual_seed(seed)
    settings = WarpSettings(spacing_mm=(40.0, 20.0, 12.0))
    volumes = determinant(draw_deformation(helical_anatomy, settings, generator=generator).jacobian().flatten(0, 2))
    assert volumes.min() > 0.1
    assert volumes.max() > 1.1, "a warp that changes no volume would pass unseen"


def test_warped_fractions_sum_to_one_in_the_mask_and_vanish_outside(helical_anatomy, generator):
    deformation = draw_deformation(helical_anatomy, WarpSettings(), generator=generator)
    warped = warp_anatomy(helical_anatomy, deformation)
    total = warped.fractions.sum(dim=0)
    assert torch.allclose(total[warped.mask], torch.ones(()), atol=1e-5)
    assert total[~warped.mask].abs().max() == 0
    assert warped.s0[warped.mask].min() > 0.9, "air outside must not darken the rim"
    assert eigenvalues(warped.tensors[0][:, warped.mask].T).min() > 0.9 * 0.3e-3


def test_the_mean_tensor_is_interpolated_linearly(helical_anatomy):
    half_voxel = torch.cat([torch.eye(3), torch.tensor([[1.0], [0.0], [0.0]])], dim=1).double()
    warped = warp_anatomy(helical_anatomy, warp_of(helical_anatomy, half_voxel))
    mean = helical_anatomy.components[0]
    both = helical_anatomy.mask[:-1] & helical_anatomy.mask[1:] & warped.mask[:-1]
    expected = (mean[:, :-1] + mean[:, 1:]) / 2
    assert torch.allclose(warped.components[0][:, :-1][:, both], expected[:, both], atol=2e-9)


def test_mirroring_twice_is_the_identity_and_once_is_the_mirrored_helix(helical_anatomy):
    once = mirror_anatomy(helical_anatomy)
    twice = mirror_anatomy(once)
    assert torch.equal(twice.tensors, helical_anatomy.tensors)
    assert set(twice.bundles) == set(helical_anatomy.bundles)
    positions = coordinates(tuple(once.s0.shape), once.voxel_size, device=CPU)
    x, y, _ = positions[:, once.mask]
    # The helix about z turned left-handed: the point (x, y) shows the mirror image of what was at (-x, y).
    expected = torch.stack([y, -x, torch.full_like(x, 12.0)], dim=1)
    assert angle_degrees(principal_direction(once.tensors[0][:, once.mask].T), expected).max() < 0.1


def test_mirroring_moves_a_bundle_to_the_other_side_and_renames_it(helical_anatomy):
    once = mirror_anatomy(helical_anatomy)
    assert set(once.bundles) == {"CST_left", "CC_7"}
    x = coordinates(tuple(once.s0.shape), once.voxel_size, device=CPU)[0]
    assert (x[once.bundles["CST_left"].mask] < 0).all()
    assert [mirrored_name(name) for name in ("AF_left", "CG_R", "CC_2", "MCP")] == ["AF_right", "CG_L", "CC_2", "MCP"]


def test_bundles_follow_the_tensors_through_a_warp(helical_anatomy, generator):
    deformation = draw_deformation(helical_anatomy, WarpSettings(), generator=generator)
    warped = warp_anatomy(helical_anatomy, deformation, with_bundles=True)
    bundle = warped.bundles["CST_right"]
    inside = bundle.mask & warped.mask
    apart = angle_degrees(principal_direction(warped.tensors[0][:, inside].T), bundle.directions[:, inside].T)
    assert inside.sum() > 1000
    assert apart.median() < 1
    assert torch.allclose(bundle.directions[:, inside].norm(dim=0), torch.ones(()), atol=1e-5)
    assert bundle.directions[:, ~bundle.mask].abs().max() == 0


def test_carried_directions_follow_the_inverse_jacobian(generator):
    jacobian = torch.eye(3) + 0.2 * torch.randn(20, 3, 3, generator=generator)
    directions = torch.nn.functional.normalize(torch.randn(20, 3, generator=generator), dim=1)
    expected = torch.linalg.solve(jacobian, directions[..., None])[..., 0]
    assert angle_degrees(carry(directions, jacobian), expected).max() < 0.05
