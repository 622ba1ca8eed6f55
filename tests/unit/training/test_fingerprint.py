"""What a stage's weights depend on, and what may change while it is trained."""

import json

import pytest

from tensorldm.errors import ConfigError
from tensorldm.training.fingerprint import NAME, check_fingerprint


def test_a_stage_that_was_begun_before_there_was_a_switch_goes_on_while_it_is_off(tmp_path):
    (tmp_path / NAME).write_text(json.dumps({"seed": 0}))
    check_fingerprint(tmp_path, {"seed": 0, "stages.1.record": False}, stage=1)
    with pytest.raises(ConfigError, match=r"stages\.1\.record was null, is now true"):
        check_fingerprint(tmp_path, {"seed": 0, "stages.1.record": True}, stage=1)


def test_a_switch_may_not_be_turned_off_on_the_way(tmp_path):
    check_fingerprint(tmp_path, {"model.mirror": True}, stage=1)
    with pytest.raises(ConfigError, match=r"model\.mirror was true, is now false"):
        check_fingerprint(tmp_path, {"model.mirror": False}, stage=1)
