"""A trained stage under other settings: what the decoders read, which adds weights and is fixed once it is trained."""

import pytest
import torch

from tensorldm.build import build_model
from tensorldm.bundle import Card, load_bundle, read_info, write_bundle
from tensorldm.config.reading import read_config
from tensorldm.config.run import RunConfig
from tensorldm.errors import ConfigError
from tensorldm.experiments.branching import start_for


def test_what_the_decoders_read_is_a_switch_until_a_stage_has_trained_them_to(tmp_path):
    plain, moe = (read_config(RunConfig, "smoke", more).model for more in ([], ["model.decoder_condition=moe"]))
    known = {config.decoder_condition: build_model(config, 7).state_dict() for config in (plain, moe)}
    for config, other in ((plain, moe), (moe, plain)):
        folder = tmp_path / config.decoder_condition
        for stages in ((1, 2, 3), (1, 2, 3, 4)):
            card = Card(stages=stages)
            weights = known[config.decoder_condition]
            write_bundle(folder / str(len(stages)), weights, config=config, joint=("gated", "off"), card=card)
        branch = start_for(folder / "3", other, folder=folder / "start")
        loaded, info = load_bundle(branch)
        assert info.model == other
        assert info.decoder_reads == loaded.decoder_reads == "anatomy", "as the stages so far have trained it"
        assert set(loaded.state_dict()) == set(known[other.decoder_condition])
        both = set(loaded.state_dict()) & set(known[config.decoder_condition])
        assert all(torch.equal(loaded.state_dict()[name], known[config.decoder_condition][name]) for name in both)
        first = read_info(branch).weights_sha256
        assert read_info(start_for(folder / "3", other, folder=folder / "start")).weights_sha256 == first
        with pytest.raises(ConfigError, match="trained with decoder_condition"):
            start_for(folder / "4", other, folder=folder / "late")
