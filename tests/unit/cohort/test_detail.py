"""Edges, fluid, texture and views: each does what its settings say, and nothing that is not physical."""

from dataclasses import replace

import pytest
import torch

from tensorldm.cohort.clinical import ArtefactSettings, DetailSettings
from tensorldm.cohort.draws import smooth_field
from tensorldm.cohort.fluid import steepened, sulci, vary_fluid
from tensorldm.cohort.grain import add_grain, white_field
from tensorldm.cohort.refining import level, refine, sharpen
from tensorldm.cohort.variation import water_share
from tensorldm.cohort.view import cut_slab, draw_rim, erode
from tensorldm.dti.eigen import eigenvalues
from tensorldm.dti.maps import angle_degrees, fractional_anisotropy, mean_diffusivity, principal_direction

SIZE = (4.0, 4.0, 4.0)


def fluid_of(anatomy):
    tensors = anatomy.tensors[..., anatomy.mask]
    return (water_share(tensors) * anatomy.fractions[:, anatomy.mask]).sum(dim=0)


def is_whole(anatomy):
    mask = anatomy.mask
    sums = [anatomy.fractions[:, mask].sum(dim=0), anatomy.tissue[:, mask].sum(dim=0)]
    smallest = eigenvalues(anatomy.tensors[..., mask].movedim(1, -1)).min()
    return all(torch.allclose(each, torch.ones(()), atol=1e-4) for each in sums) and float(smallest) > 0


def test_sharpening_makes_the_waters_edge_steeper_and_leaves_even_tissue_alone(helical_anatomy):
    soft = replace(helical_anatomy, bundles={})
    sharp = sharpen(soft, 1.0, fwhm_mm=5.0)
    assert is_whole(sharp)
    border = (helical_anatomy.fractions[1] > 0.2) & (helical_anatomy.fractions[1] < 0.8)
    before, after = soft.fractions[1][border], sharp.fractions[1][border]
    assert ((after - 0.5).abs() > (before - 0.5).abs() - 1e-6).float().mean() > 0.8
    assert torch.equal(sharp.mask, soft.mask)
    far = (soft.fractions[1] < 1e-4) & soft.mask
    assert (sharp.s0 - soft.s0)[far].abs().median() < 0.01


def test_sharpening_undoes_part_of_a_blur_of_the_tensors(helical_anatomy):
    """FA falls where helices wind tightly and are blurred; sharpening brings some of it back."""
    from tensorldm.cohort.axes import along_axes, gaussian_matrices

    mask = helical_anatomy.mask
    blur = gaussian_matrices(tuple(mask.shape), (2.0, 2.0, 2.0), fwhm=6.0, device=torch.device("cpu"))
    cover = along_axes(mask.float()[None], blur).clamp(min=1e-3)
    soft = replace(
        helical_anatomy,
        tensors=torch.stack([along_axes(helical_anatomy.tensors[0], blur) / cover * mask, helical_anatomy.tensors[1]]),
    )
    inner = mask & (helical_anatomy.fractions[0] > 0.98) & (cover[0] > 0.98)
    fa = [
        fractional_anisotropy(each.tensors[0][:, inner].T).mean()
        for each in (helical_anatomy, soft, sharpen(soft, 1.0, fwhm_mm=6.0))
    ]
    assert fa[1] < fa[2] < fa[0] + 0.02
    assert fa[2] - fa[1] > 0.3 * (fa[0] - fa[1])


def test_levelling_brings_white_matter_to_one_diffusivity_and_leaves_water(helical_anatomy):
    darker = replace(
        helical_anatomy, tensors=helical_anatomy.tensors * torch.tensor([0.7, 1.0])[:, None, None, None, None]
    )
    levelled = level(darker, 0.75e-3)
    white = helical_anatomy.mask & (helical_anatomy.tissue[2] > 0.9)
    assert float(mean_diffusivity(levelled.components[0][:, white].T).median()) == pytest.approx(0.75e-3, rel=0.01)
    assert torch.allclose(levelled.tensors[1], darker.tensors[1])


def test_settings_that_ask_for_nothing_change_nothing(helical_anatomy, generator):
    plain = DetailSettings()
    assert refine(helical_anatomy, plain) is helical_anatomy
    assert vary_fluid(helical_anatomy, plain, generator=generator) is helical_anatomy
    assert add_grain(helical_anatomy, plain, generator=generator, field_generator=generator) is helical_anatomy
    assert cut_slab(helical_anatomy, ArtefactSettings(), generator=generator) is helical_anatomy
    assert erode(helical_anatomy, 0) is helical_anatomy
    assert draw_rim(ArtefactSettings(), (0.1, 0.2), generator=generator) == ((0.1, 0.2), 0)


@pytest.mark.parametrize("share", [0.01, 0.03])
def test_the_share_of_fluid_is_the_one_asked_for_and_the_signal_brightens_with_it(helical_anatomy, generator, share):
    settings = DetailSettings(fluid=(share, share), fluid_steepness=(3.0, 3.0))
    wetter = vary_fluid(helical_anatomy, settings, generator=generator)
    assert is_whole(wetter)
    assert float((fluid_of(wetter) > 0.699).float().mean()) == pytest.approx(share, abs=0.005)
    more = fluid_of(wetter) - fluid_of(helical_anatomy)
    brighter = (wetter.s0 / helical_anatomy.s0.clamp(min=1e-6))[helical_anatomy.mask]
    assert (brighter[more > 0.1] > 1).all()
    assert (brighter[more < -0.1] < 1).all()


def test_steeper_borders_have_fewer_half_wet_voxels():
    wet = torch.linspace(0, 1, 1000)
    half = [((each > 0.2) & (each < 0.8)).sum() for each in (steepened(wet, 0.4, 2.0), steepened(wet, 0.4, 6.0))]
    assert half[1] < 0.6 * half[0]
    assert (steepened(wet, 0.4, 3.0).diff() >= 0).all()


def test_sulci_are_thin_shallow_and_outside_white_matter(helical_anatomy, generator):
    grey = replace(helical_anatomy, tissue=helical_anatomy.tissue[[0, 2, 1]], voxel_size=SIZE)
    folds = smooth_field(
        tuple(grey.mask.shape), SIZE, spacing_mm=10.0, channels=1, generator=generator, device=torch.device("cpu")
    )[0]
    sheets = sulci(grey, folds, half_width_mm=0.8)
    white = helical_anatomy.mask & (helical_anatomy.tissue[2] > 0.95)
    assert sulci(helical_anatomy, folds, half_width_mm=0.8)[white].max() < 0.05, "no grey matter, no sulci"
    distance = torch.linalg.vector_norm(
        torch.stack(torch.meshgrid(*(torch.arange(n) - (n - 1) / 2 for n in grey.mask.shape), indexing="ij")), dim=0
    )
    assert 0.01 < float((sheets[grey.mask] > 0.3).float().mean()) < 0.5
    assert sheets[grey.mask & (distance > 11)].mean() > 2 * sheets[grey.mask & (distance < 6)].mean()


def test_texture_has_the_strength_asked_for_and_spares_water(helical_anatomy, generator):
    mask, solid = helical_anatomy.mask, helical_anatomy.tensors[0][:, helical_anatomy.mask].T

    def grained(**changes):
        settings = DetailSettings(texture_mm=(0.0,), **changes)
        done = add_grain(helical_anatomy, settings, generator=generator, field_generator=generator)
        assert torch.allclose(done.tensors[1], helical_anatomy.tensors[1])
        assert eigenvalues(done.tensors[0][:, mask].T).min() > 0
        return done.tensors[0][:, mask].T

    level_only = mean_diffusivity(grained(diffusivity=(0.1, 0.1))) / mean_diffusivity(solid)
    assert float(level_only.std()) == pytest.approx(0.1, rel=0.06)
    turned = grained(turn_degrees=(5.0, 5.0))
    apart = angle_degrees(principal_direction(turned), principal_direction(solid))
    # Two of the three turns move the direction: a Rayleigh law with 5° in each.
    assert float(apart.square().mean().sqrt()) == pytest.approx(5 * 2**0.5, rel=0.06)
    shaped = fractional_anisotropy(grained(shape=(0.1, 0.1))) - fractional_anisotropy(solid)
    assert shaped.std() > 0.01


@pytest.mark.parametrize("fwhm", [0.0, 3.0, 6.0])
def test_texture_fields_have_unit_variance_at_every_width(helical_anatomy, generator, fwhm):
    fields = white_field(helical_anatomy, 6, fwhm_mm=fwhm, generator=generator)
    assert float(fields.std()) == pytest.approx(1.0, abs=0.06)


def test_a_slab_has_its_height_and_lies_within_the_brain(helical_anatomy, generator):
    cut = cut_slab(helical_anatomy, ArtefactSettings(slab=1.0, slab_mm=(20.0, 20.0)), generator=generator)
    slices = cut.mask.any(dim=0).any(dim=0)
    assert 9 <= int(slices.sum()) <= 11
    assert int(cut.mask.sum()) < int(helical_anatomy.mask.sum())
    assert cut.s0[~cut.mask].abs().max() == 0
    assert (helical_anatomy.mask | ~cut.mask).all()


def test_an_eroded_mask_lacks_its_outermost_layer(helical_anatomy):
    once, twice = (erode(helical_anatomy, layers).mask for layers in (1, 2))
    assert (twice & ~once).sum() == 0
    assert int(twice.sum()) < int(once.sum()) < int(helical_anatomy.mask.sum())
    from tensorldm.cohort.rim import shell_around

    assert (shell_around(once) & ~helical_anatomy.mask).sum() == 0


def test_masks_are_tight_usual_or_generous_in_the_shares_asked_for(generator):
    settings = ArtefactSettings(eroded=0.3, generous=0.2, generous_rim=(0.5, 1.0))
    drawn = [draw_rim(settings, (0.0, 0.2), generator=generator) for _ in range(400)]
    assert sum(layers > 0 for _, layers in drawn) / 400 == pytest.approx(0.3, abs=0.07)
    assert sum(rim == (0.5, 1.0) for rim, _ in drawn) / 400 == pytest.approx(0.2, abs=0.06)
    assert {layers for _, layers in drawn} == {0, 1, 2}


@pytest.mark.parametrize(
    ("group", "wrong"),
    [
        (DetailSettings, {"sulci": 2.0}),
        (DetailSettings, {"texture_mm": ()}),
        (DetailSettings, {"fluid": (0.2, 0.1)}),
        (ArtefactSettings, {"eroded": 0.6, "generous": 0.6}),
        (ArtefactSettings, {"distortion_mm": (0.0, 20.0)}),
    ],
)
def test_details_and_artefacts_that_make_no_sense_are_refused(group, wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        group(**wrong)
