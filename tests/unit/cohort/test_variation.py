"""Heads of one shape differ in tissue, ventricles, contrast and lesions, and stay physical."""

import pytest
import torch

from tensorldm.cohort.deformation import pull_back
from tensorldm.cohort.draws import smooth_field
from tensorldm.cohort.lesions import add_lesions, lesion_extent
from tensorldm.cohort.rim import add_rim, shell_around
from tensorldm.cohort.settings import VariationSettings
from tensorldm.cohort.variation import scale_anisotropy, vary_signal, vary_tissue, ventricle_velocity
from tensorldm.cohort.warp import velocity_grid, warp_anatomy
from tensorldm.dti.eigen import eigenvalues
from tensorldm.dti.maps import angle_degrees, fractional_anisotropy, mean_diffusivity, principal_direction

STILL = {
    "white_diffusivity": (1.0, 1.0),
    "grey_diffusivity": (1.0, 1.0),
    "csf_diffusivity": (1.0, 1.0),
    "anisotropy": (1.0, 1.0),
    "diffusivity_texture": 0.0,
    "anisotropy_texture": 0.0,
}


def fibres(anatomy):
    return anatomy.tensors[0][:, anatomy.mask].T


def test_settings_of_one_change_nothing(helical_anatomy, generator):
    varied = vary_tissue(helical_anatomy, VariationSettings(**STILL), generator=generator)
    assert torch.allclose(varied.tensors, helical_anatomy.tensors, atol=1e-9)


def test_white_matter_scales_and_free_water_does_not(helical_anatomy, generator):
    settings = VariationSettings(**{**STILL, "white_diffusivity": (1.3, 1.3)})
    varied = vary_tissue(helical_anatomy, settings, generator=generator)
    ratio = [
        mean_diffusivity(varied.tensors[k][:, varied.mask].T)
        / mean_diffusivity(helical_anatomy.tensors[k][:, varied.mask].T)
        for k in (0, 1)
    ]
    assert torch.allclose(ratio[0], torch.tensor(1.3), atol=1e-4)
    assert torch.allclose(ratio[1], torch.tensor(1.0), atol=1e-4)


@pytest.mark.parametrize("stretch", [0.5, 1.1, 3.0])
def test_scaling_anisotropy_keeps_direction_and_mean_and_never_leaves_positive_tensors(helical_anatomy, stretch):
    inside = helical_anatomy.tensors[..., helical_anatomy.mask]
    scaled = scale_anisotropy(inside, torch.full((len(inside), inside.shape[-1]), stretch))
    before, after = inside[0].T, scaled[0].T
    assert torch.allclose(mean_diffusivity(after), mean_diffusivity(before), rtol=1e-4)
    assert angle_degrees(principal_direction(after), principal_direction(before)).max() < 0.1
    assert eigenvalues(after).min() > 4e-5
    change = fractional_anisotropy(after) - fractional_anisotropy(before)
    assert (change > 0).all() if stretch > 1 else (change < 0).all()


def test_texture_differs_from_voxel_to_voxel_by_the_amount_asked_for(helical_anatomy, generator):
    settings = VariationSettings(**{**STILL, "diffusivity_texture": 0.05})
    varied = vary_tissue(helical_anatomy, settings, generator=generator)
    ratio = mean_diffusivity(fibres(varied)) / mean_diffusivity(fibres(helical_anatomy))
    assert float(ratio.std()) == pytest.approx(0.05, rel=0.15)


def test_the_receive_field_multiplies_all_volumes_and_is_smooth(helical_anatomy, generator):
    settings = VariationSettings(grey_contrast=(1.0, 1.0), csf_contrast=(1.0, 1.0), bias=0.3, bias_spacing_mm=40.0)
    varied = vary_signal(helical_anatomy, settings, generator=generator)
    ratio = torch.where(varied.mask, varied.s0 / helical_anatomy.s0.clamp(min=1e-6), torch.nan)
    inside = ratio[varied.mask]
    assert torch.equal(varied.tensors, helical_anatomy.tensors)
    assert inside.std() / inside.mean() > 0.05
    steps = (ratio[1:] / ratio[:-1]).log().abs()
    assert steps[~steps.isnan()].max() < 0.15


def test_contrast_changes_csf_against_white_matter(helical_anatomy, generator):
    settings = VariationSettings(csf_contrast=(0.5, 0.5), bias=0.0)
    varied = vary_signal(helical_anatomy, settings, generator=generator)
    pure_white, water = helical_anatomy.tissue[2] > 0.999, helical_anatomy.tissue[0] > 0.99
    assert torch.allclose(varied.s0[pure_white], helical_anatomy.s0[pure_white], rtol=1e-3)
    assert torch.allclose(varied.s0[water], 0.5 * helical_anatomy.s0[water], rtol=0.01)


@pytest.mark.parametrize(("amount", "grows"), [(3.0, True), (-2.0, False)])
def test_ventricles_grow_and_shrink(helical_anatomy, generator, amount, grows):
    settings = VariationSettings(ventricles_mm=(amount, amount))
    velocity = ventricle_velocity(helical_anatomy, settings, generator=generator)
    voxel_size = velocity_grid(helical_anatomy)[1]
    deformation = pull_back(
        torch.eye(3, 4), velocity, velocity_voxel_size=voxel_size, shape=(30, 34, 32), voxel_size=(2.0, 2.0, 2.0)
    )
    warped = warp_anatomy(helical_anatomy, deformation)
    ratio = warped.tissue[0].sum() / helical_anatomy.tissue[0].sum()
    assert velocity.norm(dim=0).max() == pytest.approx(abs(amount), rel=1e-4)
    assert ratio > 1.3 if grows else ratio < 0.8
    assert torch.equal(warped.mask, helical_anatomy.mask), "the outside of the head stays"


def test_lesions_raise_diffusivity_lower_anisotropy_and_brighten_b0(helical_anatomy, generator):
    settings = VariationSettings(lesion_probability=1.0, lesions=3)
    lesioned = add_lesions(helical_anatomy, settings, generator=generator)
    changed = (lesioned.s0 - helical_anatomy.s0).abs() > 0.05
    assert 3 < changed.sum() < 0.3 * helical_anatomy.mask.sum()
    before, after = (each.tensors[0][:, changed].T for each in (helical_anatomy, lesioned))
    assert (mean_diffusivity(after) > mean_diffusivity(before)).all()
    assert (fractional_anisotropy(after) < fractional_anisotropy(before)).all()
    assert (lesioned.s0[changed] > helical_anatomy.s0[changed]).all()
    assert torch.equal(
        lesioned.tensors[0][:, ~changed & (lesioned.s0 == helical_anatomy.s0)],
        helical_anatomy.tensors[0][:, ~changed & (lesioned.s0 == helical_anatomy.s0)],
    )


def test_lesions_lie_in_white_matter_only(helical_anatomy, generator):
    extent = lesion_extent(helical_anatomy, 8, generator=generator)
    assert extent.max() > 0.5
    assert extent[helical_anatomy.tissue[2] < 0.05].max() < 0.05


def test_lesions_are_as_rare_as_asked_for(helical_anatomy):
    settings = VariationSettings(lesion_probability=0.0)
    assert add_lesions(helical_anatomy, settings, generator=torch.Generator().manual_seed(0)) is helical_anatomy


def test_smooth_fields_have_unit_variance_and_the_scale_asked_for(generator):
    field = smooth_field(
        (60, 60, 60), (2.0, 2.0, 2.0), spacing_mm=16.0, channels=4, generator=generator, device=torch.device("cpu")
    )
    assert float(field.std()) == pytest.approx(1, rel=0.1)
    near = (field[:, 1:] * field[:, :-1]).mean() / field.square().mean()
    far = (field[:, 16:] * field[:, :-16]).mean() / field.square().mean()
    assert near > 0.97
    assert abs(far) < 0.2


def test_the_rim_takes_in_its_share_of_the_shell_around_the_brain_and_is_dark(helical_anatomy, generator):
    shell = shell_around(helical_anatomy.mask)
    with_rim = add_rim(helical_anatomy, (0.4, 0.4), generator=generator)
    added = with_rim.mask & ~helical_anatomy.mask
    assert (added & ~shell).sum() == 0
    assert float(added.sum() / shell.sum()) == pytest.approx(0.4, abs=0.12)
    assert with_rim.s0[added].max() < 0.3
    assert with_rim.s0[added].min() > 0.01  # bone, not air
    assert torch.allclose(with_rim.fractions[:, with_rim.mask].sum(dim=0), torch.ones(()), atol=1e-5)
    assert torch.equal(with_rim.s0[helical_anatomy.mask], helical_anatomy.s0[helical_anatomy.mask])
    assert fractional_anisotropy(with_rim.tensors[0][:, added].T).max() < 1e-3


def test_no_rim_leaves_the_brain_as_it_is(helical_anatomy, generator):
    with_rim = add_rim(helical_anatomy, (0.0, 0.0), generator=generator)
    assert torch.equal(with_rim.mask, helical_anatomy.mask)
    assert torch.equal(with_rim.tensors, helical_anatomy.tensors)
