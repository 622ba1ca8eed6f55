"""What a stage may start from: the same model, or the expectation alone of one that goes on in another form."""

import pytest
import torch

from tensorldm.build import build_model
from tensorldm.bundle import Card, write_bundle
from tensorldm.config.reading import read_config
from tensorldm.config.run import RunConfig
from tensorldm.errors import ConfigError
from tensorldm.training.paper_stage import TENSORLDM, starting_model

EXPECTING = (
    "model.expectation={channels: [8, 8], blocks: [1, 1], vector_channels: 8}",
    "stages.0={steps: 1, box: [16, 16, 16]}",
)
OTHER_FORM = (*EXPECTING, "model.spread_channels=4", "model.decodes=latents", "model.unet.channels=[8, 16]")


def _bundle(folder, *, stages: tuple[int, ...]):
    config = read_config(RunConfig, "smoke", EXPECTING).model
    weights = build_model(config, seed=5).state_dict()
    write_bundle(folder, weights, config=config, joint=("off", "off"), card=Card(stages=stages), precision="float16")
    return weights


def test_after_stage_0_the_rest_begins_with_first_weights_of_this_run_s_seed(tmp_path):
    """What a bundle of Stage 0 holds beside its expectation are first weights too, of whatever seed made it."""
    weights = _bundle(tmp_path, stages=(0,))
    config = read_config(RunConfig, "smoke", (*EXPECTING, "seed=3"))
    found, fresh = starting_model(config, tmp_path)[0].state_dict(), build_model(config.model, 3).state_dict()
    for name, value in found.items():
        kept = name.startswith("expectation.")
        torch.testing.assert_close(value, weights[name].half().float() if kept and value.ndim else fresh[name])


def test_stage_0_may_go_on_in_another_form(tmp_path):
    weights = _bundle(tmp_path, stages=(0,))
    config = read_config(RunConfig, "smoke", OTHER_FORM)
    assert TENSORLDM.check_start(tmp_path, config)
    model, joint, card = starting_model(config, tmp_path)
    assert (joint, card.stages) == (("off", "off"), (0,))
    assert model.spread is not None
    found, fresh = model.state_dict(), build_model(config.model, config.seed).state_dict()
    for name, value in found.items():
        kept = name.startswith("expectation.")
        torch.testing.assert_close(value, weights[name].half().float() if kept and value.ndim else fresh[name])


@pytest.mark.parametrize(
    ("stages", "overrides"),
    [
        ((0, 1), OTHER_FORM),
        ((0,), (EXPECTING[0].replace("[8, 8]", "[8, 16]"), EXPECTING[1])),
        ((0,), (*EXPECTING, "model.scaling.diagonal=2e-3")),
        ((0,), ()),
    ],
    ids=["more than Stage 0", "another expectation", "another scale", "no expectation"],
)
def test_any_other_form_is_refused(stages, overrides, tmp_path):
    _bundle(tmp_path, stages=stages)
    config = read_config(RunConfig, "smoke", overrides)
    for start in (lambda: TENSORLDM.check_start(tmp_path, config), lambda: starting_model(config, tmp_path)):
        with pytest.raises(ConfigError, match="another size or form"):
            start()
