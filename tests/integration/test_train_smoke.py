"""The whole method in miniature: five stages learn one head by heart, and its tensors come back out of pure noise."""

from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import pytest
import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from tensorldm.batch import Batch
from tensorldm.build import build_scaling
from tensorldm.bundle import load_bundle
from tensorldm.config.reading import read_config
from tensorldm.config.run import RunConfig
from tensorldm.dti.analytic import ade
from tensorldm.model import TensorLDM
from tensorldm.shapes import Components, Latents
from tensorldm.training.paper_stage import starting_model
from tensorldm.training.run import bundle_of, run_training, start_of
from tensorldm.training.sources import open_source
from tensorldm.training.stages import STAGES, joint_modes, settings_of
from tensorldm.training.validation import measure

LEAST_FALL = {1: 0.6, 2: 0.6, 3: 0.005, 4: 0.8, 5: 0.005}
"""Share by which each stage's loss must fall; 3 and 5 refine what has already been learned."""
NUM_DRAWS = 32
SPREAD_OF_SAMPLES = (0.8, 1.25)
"""Between these the standard deviation of sampled latents must lie, over that of the reference's."""


@pytest.fixture(scope="module")
def config() -> RunConfig:
    return read_config(RunConfig, "smoke", ["hardware.accelerator=cpu"])


@pytest.fixture(scope="module")
def run(config, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("smoke")
    assert run_training(config, "cohort:procedural", out=out, stages=[1, 2, 3, 4, 5])
    return out


@pytest.fixture(scope="module")
def head(config) -> Batch:
    """The one head that it was trained on."""
    source = open_source("cohort:procedural", config.data, device=torch.device("cpu"))
    return source.volumes(settings_of(config, 5).box).batch(seed=config.seed, position=0, size=1)


def _loss(config: RunConfig, number: int, *, start: Path | None, latent_scale_of: Path, head: Batch) -> float:
    """The stage's loss of a model, over the same draws of step and noise for every model."""
    model, before, _ = starting_model(config, start)
    finished, _ = load_bundle(latent_scale_of)
    model.latent_mean, model.latent_spread = finished.latent_mean, finished.latent_spread
    model.set_joint(*joint_modes(STAGES[number], config.model, before=before))
    objective = STAGES[number].objective(model, config, number).eval()
    draws = NUM_DRAWS if STAGES[number].samples else 1
    with torch.no_grad():
        return sum(float(objective(head, torch.tensor([10**6 + draw]))[0]) for draw in range(draws)) / draws


@pytest.mark.slow
@pytest.mark.parametrize("number", LEAST_FALL)
def test_the_loss_of_every_stage_falls_by_its_share(number, run, config, head):
    end = bundle_of(run, number)
    first, last = (
        _loss(config, number, start=start, latent_scale_of=end, head=head)
        for start in (start_of(number, out=run, start=None), end)
    )
    print(f"stage {number}: {first:.4f} -> {last:.4f}, fell by {1 - last / first:.3f}")
    assert last < (1 - LEAST_FALL[number]) * first


class Sampled(NamedTuple):
    """The learned head out of pure noise, in network units; and the reference's own latents."""

    model: TensorLDM
    noise: Latents
    latents: Latents
    components: Components
    reference: Latents


@pytest.fixture(scope="module")
def sampled(run, config, head) -> Sampled:
    model, _ = load_bundle(bundle_of(run, 5))
    x, y, z = head.mask.shape[1:]
    noise = torch.randn(model.latent_shape(1, (x, y, z)), generator=torch.Generator().manual_seed(1))
    with patch.object(model, "decode", wraps=model.decode) as decode:
        components = model.reconstruct(
            head.dwi,
            head.bvals,
            directions=head.directions,
            mask=head.mask,
            voxel_size=head.voxel_size,
            noise=noise,
            num_steps=10,
        )
    with torch.no_grad():
        reference = model.encode(build_scaling(config.model).scale(head.components), model.scan_features(**head.scan))
    return Sampled(model, noise, decode.call_args.args[0], components, reference)


def _inside(latents: Latents, *, model: TensorLDM, head: Batch) -> Float[Tensor, "n d f"]:
    return rearrange(latents, "b d f x y z -> b x y z d f")[model.latent_mask(head.mask)]


@pytest.mark.slow
def test_latents_sampled_from_noise_are_spread_as_the_references_and_lie_near_them(sampled, head):
    found, reference = (
        _inside(latents, model=sampled.model, head=head) for latents in (sampled.latents, sampled.reference)
    )
    ratio = float(found.std() / reference.std())
    distance = float((found - reference).square().mean().sqrt() / reference.std())
    print(f"standard deviation over the reference's {ratio:.3f}, distance from it {distance:.3f}")
    assert SPREAD_OF_SAMPLES[0] < ratio < SPREAD_OF_SAMPLES[1]
    assert distance < 0.7  # 1.4 for independent latents of the same spread, 1 for their mean


@pytest.mark.slow
def test_the_decoders_need_the_latents(sampled, config, head):
    model, scaling = sampled.model, build_scaling(config.model)
    x, y, z = head.mask.shape[1:]
    with torch.no_grad():
        features = model.scan_features(**head.scan)
        of_reference, of_mean, of_noise = (
            measure(head, scaling.unscale(model.decode(latents, features, size=(x, y, z))) * head.mask[:, None])
            for latents in (sampled.reference, torch.zeros_like(sampled.noise), sampled.noise)
        )
    of_sample = measure(head, scaling.unscale(sampled.components))
    for name in ("LEM", "off-diagonal LEM", "v1 angle"):
        row = [measures[name] for measures in (of_reference, of_sample, of_mean, of_noise)]
        print(name, "reference {:.3f}, sample {:.3f}, mean {:.3f}, noise {:.3f}".format(*row))
        assert of_reference[name] < 0.5 * min(of_mean[name], of_noise[name])
        assert of_sample[name] < 0.5 * min(of_mean[name], of_noise[name])


@pytest.mark.slow
def test_the_learned_head_sampled_from_noise_beats_ade_in_every_tensor_measure(sampled, config, head):
    signal = rearrange(head.dwi[0], "c x y z -> x y z c")
    analytic = rearrange(ade(signal, head.bvals[0], head.directions[0]), "x y z d -> 1 d x y z") * head.mask[:, None]
    ours, rival = measure(head, build_scaling(config.model).unscale(sampled.components)), measure(head, analytic)
    print("sampled", ours, "\nADE", rival)
    assert ours["LEM"] < 0.8 * rival["LEM"]
    assert ours["off-diagonal LEM"] < 0.75 * rival["off-diagonal LEM"]
    assert ours["v1 angle"] < 0.5 * rival["v1 angle"]
    assert ours["PSNR off-diagonal"] > rival["PSNR off-diagonal"] + 2
