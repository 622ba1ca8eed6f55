"""The preset, the schema and the plain settings tell one story."""

from dataclasses import fields

import pytest
import yaml

from tensorldm.cohort.clinical import SchemeSettings
from tensorldm.cohort.config import CohortConfig, read_cohort
from tensorldm.cohort.settings import CohortSettings
from tensorldm.config import dump_config
from tensorldm.config.reading import preset_path
from tensorldm.errors import ConfigError


def test_the_preset_is_whole_and_says_the_defaults():
    assert read_cohort() == CohortConfig()
    assert read_cohort().settings == CohortSettings()


def test_a_dumped_configuration_reads_back_the_same(tmp_path):
    config = read_cohort("cohort", ["protocol.snr=[13, 60]", "protocol.tilt_degrees=[0, 25]", "warp.mirror=false"])
    (tmp_path / "again.yaml").write_text(dump_config(config))
    assert read_cohort(tmp_path / "again.yaml") == config
    assert config.protocol.snr == (13.0, 60.0)


@pytest.mark.parametrize(
    ("override", "word"),
    [
        ("protocol.snrr=[1, 2]", "snrr"),
        ("protocol.snr=[30, 20]", "snr is a range"),
        ("warp.reorientation=none", "reorientation"),
        ("warp.spacing_mm=[30]", "one number for each scale"),
        ("shapes=[1, 1, 1]", "shapes"),
        ("shape=[3, 112, 96]", r"shape times voxel_mm is 6 × 224 × 192 mm, and a head needs 100 mm each way\.$"),
        ("shape=[5000, 5000, 5000]", "shape has 125000000000 voxels, over the limit"),
        ("voxel_mm=[2, 0, 2]", "a voxel has sides of 0.5 to 12 mm"),
        ("protocol.snr=[5, -2]", r"'protocol': snr is a range \(lowest, highest\) of numbers of at least 1\.$"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(override, word):
    with pytest.raises(ConfigError, match=word):
        read_cohort("cohort", [override])


def test_the_clinical_preset_lists_every_setting_and_survives_a_round_trip(tmp_path):
    config = read_cohort("clinical")
    listed = yaml.safe_load(preset_path("clinical").read_text())
    for group in ("warp", "variation", "protocol", "detail", "artefacts"):
        assert set(listed[group]) == {field.name for field in fields(getattr(config, group))}, group
    assert set(listed["protocol"]["scheme"]) == {field.name for field in fields(SchemeSettings)}
    (tmp_path / "again.yaml").write_text(dump_config(config))
    assert read_cohort(tmp_path / "again.yaml") == config


def test_shares_and_counts_of_the_clinical_preset_are_refused_when_wrong():
    for override, word in (
        ("artefacts.slab=3", "slab is a share"),
        ("protocol.scheme.directions=[2, 4]", "directions"),
    ):
        with pytest.raises(ConfigError, match=word):
            read_cohort("clinical", [override])
