"""``tensorldm tables tracts`` on a small virtual head, from nothing to a section of a document."""

import json

import pytest
from typer.testing import CliRunner

from tensorldm.cli import verbs  # noqa: F401  registers the verbs
from tensorldm.cli.main import app
from tensorldm.errors import ConfigError, DataError
from tensorldm.evaluation.table import read_table
from tensorldm.evaluation.tract_measures import STREAMLINES
from tensorldm.evaluation.tracts import NOISE_FLOOR
from tensorldm.experiments.tract_tensors import CLOSED_FORMS, SHIPPED, name_methods
from tensorldm.imaging.bundle_names import PAPER_BUNDLES

SMALL = ("shape=[40,48,40]", "voxel_mm=[4.0,4.0,4.0]", "protocol.b0s=[2,2]", "protocol.directions=[12,12]")


def run(*words):
    result = CliRunner().invoke(app, [str(word) for word in words])
    if isinstance(result.exception, Exception):
        raise result.exception
    return result


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """The folder, what was said, and the words that make it again."""
    out = tmp_path_factory.mktemp("tracts") / "out"
    sets = [word for setting in SMALL for word in ("--set", setting)]
    words = ("tables", "tracts", "--out", out, "--virtual", 1, *sets, "--method", "ols-6", "--seeds", 300)
    words = (*words, "--workers", 1, "--results", out.with_name("results.md"))
    return out, run(*words).output, words


def test_one_command_goes_from_nothing_to_tables_pictures_and_a_section(table):
    out, said, _ = table
    rows = read_table(out / "table.csv")
    assert {row.quantity for row in rows} == set(PAPER_BUNDLES)
    assert {row.method for row in rows} == {"reference", NOISE_FLOOR, "ols-6"}
    assert sum(row.value for row in rows if row.metric == STREAMLINES and row.method == "reference") > 0
    assert {row.anatomy for row in rows} == {"procedural/test/0000"}
    document = out.with_name("results.md").read_text()
    assert "<!-- begin tracts -->" in document
    assert "| reference again |" in document
    assert "Core distance, mm" in said
    folder = out / "virtual-sub-0001"
    assert {path.name for path in folder.glob("*.png")} == {"CST_right.png", "core_distance.png"}
    assert (out / "core_distance.png").is_file()
    assert json.loads((out / "run.json").read_text())["Command"]


def test_the_same_again_makes_neither_subjects_nor_tensors_nor_streamlines_again(table):
    out, _, words = table
    made = [*out.rglob("*dwi.nii.gz"), *out.rglob("ols-6.*"), *out.rglob("reference.*")]
    assert len(made) >= 10
    before = {path: path.stat().st_mtime_ns for path in made}
    run(*words)
    assert {path: path.stat().st_mtime_ns for path in made} == before


def test_a_tensor_that_was_lost_is_made_again_and_only_that(table):
    out, _, words = table
    lost, other = (out / "virtual-sub-0001" / f"{name}.nii.gz" for name in ("ols-6", "reference"))
    content, time = lost.read_bytes(), other.stat().st_mtime_ns
    lost.unlink()
    run(*words)
    assert lost.read_bytes() == content
    assert other.stat().st_mtime_ns == time


def test_a_folder_without_known_bundles_is_told(table, tmp_path):
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "sub-0001").symlink_to(table[0] / "cohorts" / "virtual" / "sub-0001")
    with pytest.raises(DataError, match=r"bare: no bundle masks of sub-0001 in its truth"):
        run("tables", "tracts", bare, "--out", tmp_path / "out")


def test_a_folder_of_templates_that_is_not_there_is_told_before_anything_is_made(tmp_path):
    with pytest.raises(ConfigError, match=r"--templates .*nothing: there is no such folder"):
        run("tables", "tracts", "--out", tmp_path / "out", "--templates", tmp_path / "nothing")
    assert not list(tmp_path.rglob("*.nii.gz"))


def test_a_table_of_nobody_is_refused_before_anything_is_made(tmp_path):
    with pytest.raises(ConfigError, match="--virtual 0: nobody is left to measure"):
        run("tables", "tracts", "--out", tmp_path / "out", "--virtual", 0, "--method", "ols-6")
    assert not (tmp_path / "out").exists()


def test_by_default_the_closed_forms_and_the_shipped_model_are_compared(monkeypatch, tmp_path):
    assert tuple(name_methods(None, [])) == CLOSED_FORMS  # tests have no shipped model
    monkeypatch.setenv("TENSORLDM_MODEL", str(tmp_path))
    methods = name_methods(None, [str(tmp_path / "rival")])
    assert tuple(methods) == (*CLOSED_FORMS, SHIPPED, "rival")
    assert methods[SHIPPED].bundle == tmp_path
    assert methods["rival"].bundle == tmp_path / "rival"
    as_used = {(methods[name].samples, methods[name].steps) for name in (SHIPPED, "rival")}
    assert as_used == {(4, 10)}


def test_methods_that_are_not_there_or_there_twice_are_told(tmp_path):
    with pytest.raises(ConfigError, match="no model ships with this installation"):
        name_methods(["tensorldm"], [])
    with pytest.raises(ConfigError, match=r"--method magic: there is none\. Give ade, "):
        name_methods(["magic"], [])
    for models in ([tmp_path / "ade"], [tmp_path / "a" / "rival", tmp_path / "b" / "rival"], [tmp_path / "reference"]):
        with pytest.raises(ConfigError, match="is in the table already"):
            name_methods(["ade"], [str(model) for model in models])


def test_models_of_one_folder_name_are_told_apart_by_names_of_their_own(tmp_path):
    here = tmp_path / "a=b" / "bundle"
    here.mkdir(parents=True)
    methods = name_methods([], [f"unet={tmp_path}/unet/bundle", f"ldm.2={tmp_path}/ldm/bundle", str(here)])
    assert list(methods) == ["unet", "ldm.2", "bundle"]
    assert methods["unet"].bundle == tmp_path / "unet" / "bundle"
    assert methods["bundle"].bundle == here
    with pytest.raises(ConfigError, match=r"'a/b' is to name files\. Take letters"):
        name_methods([], [f"a/b={tmp_path}"])
    with pytest.raises(ConfigError, match=r"'unet' is in the table already\. Name it: --model NAME=two"):
        name_methods([], ["unet=one", "unet=two"])
