"""Configuration: whole files, dotted overrides, and refusals that name the key."""

from pathlib import Path

import pytest
from pydantic import Field

from tensorldm.config import Strict, dump_config, read_config
from tensorldm.errors import ConfigError


class Noise(Strict):
    snr: float = Field(gt=0)


class Echo(Strict):
    delay: float = 1.0


class Settings(Strict):
    steps: int = Field(gt=0)
    noise: Noise
    maybe: Echo | None = None
    stages: dict[str, Echo] = Field(default_factory=dict)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "settings.yaml"
    path.write_text("steps: 3\nnoise: {snr: 20}\n")
    return path


def test_an_override_reaches_a_nested_key_and_later_ones_win(file):
    settings = read_config(Settings, file, ["noise.snr=30", "steps=5", "steps=6"])
    assert settings == Settings(steps=6, noise=Noise(snr=30))


def test_a_misspelt_key_is_refused_by_name_with_the_nearest_known_one(file):
    with pytest.raises(ConfigError, match=r"no setting 'noise\.snrr'.*Did you mean 'noise\.snr'"):
        read_config(Settings, file, ["noise.snrr=30"])


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("stages.4.dealy=3", r"'stages\.4\.dealy'\. Did you mean 'stages\.4\.delay'\?"),
        ("maybe.dealy=3", r"'maybe\.dealy'\. Did you mean 'maybe\.delay'\?"),
        ("stages.4.loud=3", r"'stages\.4\.loud'\. Known keys: stages\.4\.delay\."),
        ("maybe.q=3", r"'maybe\.q'\. Known keys: maybe\.delay\."),
        ("loudness=3", r"'loudness'\. Known keys: maybe, noise, stages, steps\."),
    ],
)
def test_a_key_of_a_group_that_may_be_missing_or_is_one_of_many_is_looked_for_in_that_group(file, override, words):
    with pytest.raises(ConfigError, match=f"no setting {words}"):
        read_config(Settings, file, [override])


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("steps", "expected KEY=VALUE"),
        ("steps.deep=1", "is a value, not a group"),
        ("steps=-1", "'steps'.*greater than 0.*found -1"),
        ("noise.snr=.nan", "finite"),
        ("steps=[", "not valid YAML"),
    ],
)
def test_a_bad_override_gets_one_sentence(file, override, words):
    with pytest.raises(ConfigError, match=words) as refused:
        read_config(Settings, file, [override])
    assert "--set" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("text", "words"), [("- 1\n", "found list"), ("a: [", "not valid YAML"), ("", "NoneType")])
def test_a_file_that_holds_no_settings_is_refused(tmp_path, text, words):
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=words):
        read_config(Settings, path)


def test_a_missing_file_and_an_unknown_preset_are_named(tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere\.yaml"):
        read_config(Settings, tmp_path / "nowhere.yaml")
    with pytest.raises(ConfigError, match="no preset 'gigantic'"):
        read_config(Settings, "gigantic")


def test_a_dumped_configuration_reads_back_the_same(file, tmp_path):
    settings = read_config(Settings, file)
    copy = tmp_path / "copy.yaml"
    copy.write_text(dump_config(settings))
    assert read_config(Settings, copy) == settings


def test_a_configuration_cannot_be_changed_after_it_was_read(file):
    with pytest.raises(ValueError, match="frozen"):
        read_config(Settings, file).steps = 4
