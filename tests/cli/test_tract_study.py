"""``tensorldm tables tracts --study``: from a study that was run to the table of its kept tensors' bundles."""

import shutil

import pytest
from typer.testing import CliRunner

from tensorldm.cli import verbs  # noqa: F401  registers the verbs
from tensorldm.cli.main import app
from tensorldm.errors import ConfigError, DataError
from tensorldm.evaluation.table import methods_of, read_table, subjects_of
from tensorldm.evaluation.tract_measures import STREAMLINES
from tensorldm.evaluation.tracts import NOISE_FLOOR

STUDY = """
groups:
  virtual:
    grid: native
    virtual:
      subjects: 2
      changes: ["shape=[40, 48, 40]", "voxel_mm=[4, 4, 4]", "protocol.b0s=[1, 1]", "protocol.directions=[12, 12]"]
methods:
  ols-6: {analytic: ols-6}
  ade: {analytic: ade}
comparisons:
  closed: {title: closed forms, ours: ols-6, methods: [ade]}
keep_tensors: 1
"""


def run(*words):
    result = CliRunner().invoke(app, [str(word) for word in words])
    if isinstance(result.exception, Exception):
        raise result.exception
    return result


def files(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """What is carried from another machine: settings, kept tensors and the truth."""
    folder = tmp_path_factory.mktemp("study")
    (folder / "study.yaml").write_text(STUDY)
    run("tables", "run", "--config", folder / "study.yaml", "--out", folder / "made")
    carried = folder / "carried"
    shutil.copytree(folder / "made" / "work", carried / "work")
    truth = "cohorts/virtual/truth"
    shutil.copytree(folder / "made" / truth, carried / truth)
    shutil.copy(folder / "made" / "study.yaml", carried)
    return carried


@pytest.fixture(scope="module")
def table(study):
    out, before = study.with_name("tracts"), files(study)
    words = ("tables", "tracts", "--study", study, "--out", out, "--seeds", 300, "--workers", 1)
    words = (*words, "--results", out.with_name("results.md"))
    said = run(*words).output
    assert files(study) == before
    return out, said, words


def test_kept_tensors_are_tracked_and_tabulated_under_the_studys_names(table):
    out, said, _ = table
    rows = read_table(out / "table.csv")
    assert subjects_of(rows) == ["virtual-900001"]
    assert methods_of(rows) == ["reference", NOISE_FLOOR, "ols-6", "ade"]
    assert {row.anatomy for row in rows} == {"procedural/test/0000"}
    assert sum(row.value for row in rows if row.metric == STREAMLINES and row.method == "reference") > 0
    document = out.with_name("results.md").read_text()
    assert "<!-- begin tracts -->" in document
    assert "1 subject of 1 independent anatomy" in document
    assert "Tractograms, pictures and tables are in" in said
    names = {path.name for path in (out / "virtual-900001").glob("*.png")}
    assert names == {"CST_right.png", "core_distance.png"}
    assert not list(out.rglob("*.nii.gz"))


def test_the_same_command_again_tracks_nothing_again(table):
    out, _, words = table
    before = {path: path.stat().st_mtime_ns for path in out.glob("*/tracts/*.tck")}
    assert len(before) == 4
    run(*words)
    assert {path: path.stat().st_mtime_ns for path in out.glob("*/tracts/*.tck")} == before


def test_what_was_not_kept_is_said_on_the_terminal_and_in_the_table(study, tmp_path):
    there = tmp_path / "study"
    shutil.copytree(study, there)
    for path in there.rglob("ade-*"):
        path.unlink()
    said = run("tables", "tracts", "--study", there, "--out", tmp_path / "out", "--seeds", 60, "--workers", 1).output
    assert "remark: ade: no tensor was kept of any of these subjects" in " ".join(said.split())
    assert "- ade: no tensor was kept of any of these subjects." in (tmp_path / "out" / "table.md").read_text()


def test_what_makes_other_subjects_or_tensors_is_refused_beside_a_study(study, tmp_path):
    options = ("--virtual", 0, "--templates", tmp_path, "--model", tmp_path, "--set", "shape=[1,1,1]")
    with pytest.raises(ConfigError, match=r"no place for cohorts, --virtual, --templates, --model, --set\. Leave out"):
        run("tables", "tracts", tmp_path, "--study", study, "--out", tmp_path / "out", *options)
    with pytest.raises(ConfigError, match=r"no place for --set\. Leave out one or the other"):
        run("tables", "tracts", "--study", study, "--out", tmp_path / "out", "--set", "shape=[1,1,1]")


def test_a_folder_that_is_no_study_or_has_nothing_to_measure_is_told_before_anything_is_written(study, tmp_path):
    with pytest.raises(DataError, match=r"there is no study\. Give a folder that 'tensorldm tables run' wrote"):
        run("tables", "tracts", "--study", tmp_path / "none", "--out", tmp_path / "out")
    (tmp_path / "bare").mkdir()
    shutil.copy(study / "study.yaml", tmp_path / "bare")
    with pytest.raises(DataError, match=r"no virtual subject has kept tensors of ols-6, ade"):
        run("tables", "tracts", "--study", tmp_path / "bare", "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()
