"""Every rival at both sizes: it can be built, fits the budget, and is what its settings say."""

import numpy as np
import pytest
import torch
from einops import rearrange

from tensorldm.baselines.learned.bundles import load_rival, write_rival
from tensorldm.baselines.learned.catalogue import RIVALS, build_rival
from tensorldm.baselines.learned.choice import choose
from tensorldm.baselines.learned.engine import rival_traits
from tensorldm.baselines.learned.rival import Sampling
from tensorldm.baselines.learned.runs import open_run
from tensorldm.bundle_files import Card
from tensorldm.errors import ConfigError, DataError
from tensorldm.reconstruct.api import reconstruct
from tensorldm.reconstruct.guard import check_settings
from tensorldm.reconstruct.settings import Settings as ReconstructSettings

BUDGET = 15e6
ABLATION_BUDGET = 6.44e6
"""Of TensorLDM without an expectation, which ``coupled`` is an ablation of."""


def _built(name: str, size: str):
    _, settings = open_run(name, size, [])
    return build_rival(settings.model, name=name), settings


def _noise(number: int, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(number))


@pytest.mark.parametrize("name", RIVALS)
def test_every_rival_reconstructs_with_about_as_many_parameters_as_what_it_stands_beside(name):
    _, settings = open_run(name, "base", [])
    with torch.device("meta"):
        rival = build_rival(settings.model, name=name)
    used = {n: p.numel() for n, p in rival.named_parameters() if not n.startswith(rival.training_only or ("\0",))}
    assert sum(used.values()) == pytest.approx(ABLATION_BUDGET if name == "coupled" else BUDGET, rel=0.1)


@pytest.mark.parametrize("name", RIVALS)
def test_first_weights_depend_on_the_seed_alone(name):
    _, settings = open_run(name, "smoke", [])
    torch.manual_seed(1)
    first = build_rival(settings.model, name=name, seed=5).state_dict()
    state = torch.random.get_rng_state()
    again = build_rival(settings.model, name=name, seed=5).state_dict()
    assert torch.equal(torch.random.get_rng_state(), state)
    other = build_rival(settings.model, name=name, seed=6).state_dict()
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert any(not torch.equal(first[key], other[key]) for key in first)


@pytest.mark.parametrize("name", RIVALS)
def test_a_bundle_gives_the_same_tensors_back_without_critics(name, one_head, tmp_path):
    rival, settings = _built(name, "smoke")
    with torch.no_grad():
        for parameter in rival.parameters():
            parameter.add_(0.01)
    info = write_rival(tmp_path, rival.state_dict(), rival=rival, config=settings.model, card=Card())
    assert info.method == name
    loaded, _ = load_rival(tmp_path)
    box = slice(0, 13)
    scan = {
        "dwi": one_head.dwi[..., box],
        "bvals": one_head.bvals,
        "directions": one_head.directions,
        "mask": one_head.mask[..., box],
        "voxel_size": one_head.voxel_size,
        "sampling": Sampling(_noise, num_steps=2),
    }
    before, after = (each.eval().reconstruct(**scan) for each in (rival, loaded))
    assert torch.equal(before, after)
    assert before.shape == (1, 6, 16, 16, 13)
    assert (before * ~scan["mask"][:, None]).abs().max() == 0
    assert not any(key.startswith(rival.training_only or ("\0",)) for key in _stored(tmp_path))


def test_a_rival_serves_the_python_call_too(one_head, tmp_path):
    rival, settings = _built("unet", "smoke")
    write_rival(tmp_path, rival.state_dict(), rival=rival, config=settings.model, card=Card(title="unet"))
    dwi = rearrange(one_head.dwi[0], "c x y z -> x y z c").numpy()
    affine = np.diag([-2.0, 2.0, 2.0, 1.0])  # a negative determinant: FSL's vectors are the image's own
    noisy = 400 * dwi + np.random.default_rng(0).normal(scale=2, size=dwi.shape)
    bvecs = one_head.directions[0].numpy()
    table = {"bvals": one_head.bvals[0].numpy(), "bvecs": bvecs, "mask": one_head.mask[0].numpy()}
    options = ReconstructSettings(grid="2mm", force=True)
    found = reconstruct(noisy, affine, **table, choice=choose(model=tmp_path), settings=options, device="cpu")
    plain = reconstruct(noisy, affine, **table, method="minimum-norm", settings=options)
    assert found.notes["Method"] == "unet"
    # Untrained, this rival is the minimum-norm tensor.
    difference = np.abs(found.tensor - plain.tensor)[found.mask]
    assert np.median(difference) < 1e-6


def _stored(folder):
    from safetensors.torch import load_file

    return load_file(folder / "weights.safetensors")


@pytest.mark.parametrize("name", RIVALS)
def test_more_than_three_directions_and_samples_of_what_does_not_draw_are_refused(name):
    traits = rival_traits(name)
    with pytest.raises(ConfigError, match=f"--directions all: '{name}' takes one b=0 and the three directions"):
        check_settings(traits, ReconstructSettings(directions="all"))
    if not RIVALS[name].stochastic:
        with pytest.raises(ConfigError, match=f"--samples 3: '{name}' always gives the same tensor"):
            check_settings(traits, ReconstructSettings(samples=3))


def test_a_bundle_of_our_own_model_is_no_rival(tmp_path):
    (tmp_path / "bundle.json").write_text('{"format": "tensorldm-bundle", "version": 1, "method": "mystery"}')
    with pytest.raises(DataError, match=r"a bundle of 'mystery', where one of unet or pix2pix"):
        load_rival(tmp_path)


@pytest.mark.parametrize(
    ("method", "config", "overrides", "sentence"),
    [
        ("pix3pix", "base", [], "There is no method 'pix3pix'. Give tensorldm or one of unet, pix2pix"),
        ("unet", "huge", [], "There is no preset 'huge' of unet. Give one of base, smoke"),
        ("unet", "smoke", ["model.widths=[1]"], "model.unet.widths"),
        ("ldm", "smoke", ["model.latent_channels=7"], "multiple of 6"),
        ("resvit", "smoke", ["model.layers=100000"], "less than or equal to 64"),
        ("unet", "smoke", ["data.cohort=clinical", "data.cohort_set=[]"], "more than three directions, and unet reads"),
        ("diffdti", "smoke", ["hardware.channels_last=true"], "for volumes, and diffdti works on slices"),
        (
            "pix2pix",
            "smoke",
            ["stages.2.steps=1", "stages.2.box=[8,8,8]"],
            "stages 1, 2 are described, but pix2pix has 1",
        ),
    ],
)
def test_a_wrong_name_or_setting_is_answered_with_a_sentence(method, config, overrides, sentence):
    with pytest.raises(ConfigError, match=sentence):
        open_run(method, config, overrides)


def test_settings_of_another_rival_are_refused(tmp_path):
    from tensorldm.baselines.learned.runs import rival_preset

    with pytest.raises(ConfigError, match="settings of 'unet', but --method is pix2pix"):
        open_run("pix2pix", str(rival_preset("unet", "smoke")), [])
