"""The autoencoders of the rivals that diffuse latents: alive from the first step, and validated by what they carry."""

from dataclasses import replace

import pytest
import torch
from einops import rearrange

from tensorldm.baselines.learned.catalogue import build_rival
from tensorldm.baselines.learned.runs import open_run
from tensorldm.baselines.learned.told import tell_batch

POSITION = torch.tensor([0])


def _stage(name: str, number: int):
    method, settings = open_run(name, "smoke", [])
    return method.prepare(settings, number, start=None)


def test_first_weights_of_ldm_carry_a_head_into_latents_and_begin_with_silence(one_head):
    _, settings = open_run("ldm", "base", [])
    rival = build_rival(settings.model, name="ldm")
    told = tell_batch(one_head, rival.scaling.per_component)
    target = rival.scaling.scale(one_head.components)
    with torch.no_grad():
        for coder, volume in ((rival.tensors, target), (rival.scans, told.channels)):
            latents = rival.inside(coder.encode(volume), one_head.mask)
            assert 0.1 < latents.std(dim=0).mean() < 10
            assert coder.decode(coder.encode(volume)).abs().mean() < 0.5 * volume.abs().mean() + 0.1


def test_each_sixth_of_a_position_has_the_code_nearest_to_it(one_head):
    rival = _stage("ldm", 1).model.eval()
    codes = rival.tensors.quantizer.quantizer.embedding.weight
    latents = torch.randn(1, 12, 3, 3, 3, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        found, _ = rival.tensors.quantize(latents)
    sixths = rearrange(latents, "1 (six f) x y z -> (x y z six) f", six=6)
    nearest = codes[torch.cdist(sixths, codes).argmin(dim=1)]
    assert torch.allclose(rearrange(found, "1 (six f) x y z -> (x y z six) f", six=6), nearest, atol=1e-6)


def test_what_diffusion_is_told_of_the_scan_has_mean_zero_and_variance_one_in_the_brain(one_head):
    rival = _stage("ldm", 2).model.eval()
    rival.begin(2, [one_head], seed=0)
    condition = rival.condition(tell_batch(one_head, rival.scaling.per_component))
    inside = rival.inside(condition[:, : rival.latent_channels], one_head.mask)
    assert torch.allclose(inside.mean(dim=0), torch.zeros(12), atol=1e-4)
    assert torch.allclose(inside.std(dim=0), torch.ones(12), atol=1e-3)


@pytest.mark.parametrize(("name", "stages"), [("ldm", (1,)), ("coupled", (1, 2))])
def test_the_stages_of_an_autoencoder_are_validated_by_what_it_makes_of_the_reference(name, stages, one_head):
    for number in stages:
        work = _stage(name, number)
        work.model.eval()
        if name == "ldm":
            work.model.begin(1, [one_head], seed=0)
        found = work.reconstruct(one_head, POSITION)
        assert found.shape == one_head.components.shape
        assert (found * ~one_head.mask[:, None]).abs().max() == 0
        assert torch.equal(found, work.reconstruct(one_head, POSITION + 1)), "noise of another head has no part in it"
        other = replace(one_head, components=one_head.components.flip(1))
        assert not torch.equal(found, work.reconstruct(other, POSITION)), "it is the reference that is decoded"


@pytest.mark.parametrize(("name", "stage"), [("ldm", 2), ("coupled", 3), ("pix2pix", 1)])
def test_the_other_stages_are_validated_by_reconstruction(name, stage, one_head):
    assert _stage(name, stage).model.recoded(one_head, stage=stage) is None
