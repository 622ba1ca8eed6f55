"""Boxes that a model can neither train nor validate in are refused before any step."""

import pytest

from tensorldm.config.reading import read_config
from tensorldm.config.run import RunConfig
from tensorldm.errors import ConfigError
from tensorldm.training.paper_stage import TENSORLDM
from tensorldm.training.stage_run import check_box
from tensorldm.training.stages import settings_of


def _check(*overrides: str, validates: bool = True) -> None:
    config = read_config(RunConfig, "smoke", overrides)
    check_box(TENSORLDM.prepare(config, 1, start=None), settings_of(config, 1), validates=validates)


def test_the_loss_on_held_out_heads_needs_whole_latents_as_that_of_training_does():
    _check()
    with pytest.raises(ConfigError, match=r"stages\.1\.box is \[9, 8, 8\]"):
        _check("stages.1.box=[9, 8, 8]", validates=False)
    with pytest.raises(ConfigError, match=r"in which Stage 1 is validated, is \[36, 36, 36\].* Use \[40, 40, 40\]"):
        _check("stages.2.box=[36, 36, 36]")


def test_a_box_that_nobody_uses_is_left_alone():
    _check("stages.2.box=[36, 36, 36]", validates=False)
