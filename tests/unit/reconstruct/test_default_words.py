"""What the doctor says of the model that is used where none is named."""

import io
import json

import pytest
from rich.console import Console
from rich.table import Table

from tensorldm.build import build_model
from tensorldm.bundle import Card, IntervalFactors, write_bundle
from tensorldm.config.reading import read_config
from tensorldm.config.run import RunConfig
from tensorldm.errors import ConfigError
from tensorldm.reconstruct import default_words
from tensorldm.reconstruct.choice import MODEL_VARIABLE, choose, default_model


@pytest.fixture
def bundle(tmp_path):
    """A model that nobody has trained, in a folder whose name looks like markup."""
    config = read_config(RunConfig, "smoke").model
    card = Card(title="Toy", stages=(0, 1, 4))
    weights = build_model(config, 3).state_dict()
    write_bundle(tmp_path / "toy[red]", weights, config=config, joint=("off", "off"), card=card)
    return tmp_path / "toy[red]"


def said() -> str:
    table, console = Table("found"), Console(width=400, file=io.StringIO())
    table.add_row(default_words.describe_default())
    console.print(table)
    return console.file.getvalue()


def test_a_named_model_is_told_with_its_folder_hash_and_stages(bundle, monkeypatch):
    monkeypatch.setenv(MODEL_VARIABLE, str(bundle))
    text, sha256 = said(), json.loads((bundle / "bundle.json").read_text())["weights_sha256"]
    for words in ("Toy", f"{MODEL_VARIABLE}, {bundle}", sha256[:12], "stages 0, 1, 4", "not calibrated"):
        assert words in text


def test_the_shipped_model_is_told_as_calibrated(monkeypatch):
    monkeypatch.delenv(MODEL_VARIABLE, raising=False)
    if default_model() is None:
        pytest.skip("no model ships with this installation")
    text = said()
    assert "(shipped)" in text
    assert "intervals calibrated" in text


def test_factors_that_were_fitted_are_told_by_their_source(bundle, monkeypatch):
    monkeypatch.setenv(MODEL_VARIABLE, str(bundle))
    index = json.loads((bundle / "bundle.json").read_text())
    index["intervals"] = IntervalFactors(fa=1.5, source="8 heads").model_dump(mode="json")
    (bundle / "bundle.json").write_text(json.dumps(index))
    assert "calibrated (8 heads)" in said()


def test_damaged_weights_are_told_and_not_called_a_model(bundle, monkeypatch):
    monkeypatch.setenv(MODEL_VARIABLE, str(bundle))
    (bundle / "weights.safetensors").write_bytes(b"short")
    assert "the hash differs" in said()
    (bundle / "weights.safetensors").unlink()
    assert "the weights cannot be read (No such file or directory)" in said()


def test_none_is_told_as_the_closed_form_and_why(monkeypatch):
    monkeypatch.setenv(MODEL_VARIABLE, "none")
    assert f"none ({MODEL_VARIABLE} is none): the closed form minimum-norm" in said()


def test_a_variable_that_names_no_model_is_told_by_its_name(monkeypatch, tmp_path):
    monkeypatch.setenv(MODEL_VARIABLE, str(tmp_path))
    with pytest.raises(ConfigError, match=MODEL_VARIABLE):
        choose()
    assert f"{MODEL_VARIABLE} is {tmp_path}, and no bundle.json is in it" in said()
