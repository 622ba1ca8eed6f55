"""``tensorldm tables tracts`` on a small virtual head, from a cohort's folder to a section of a document."""

import json

import pytest
from typer.testing import CliRunner

from tensorldm.cli import verbs  # noqa: F401  registers the verbs
from tensorldm.cli.main import app
from tensorldm.errors import DataError
from tensorldm.evaluation.table import read_table
from tensorldm.evaluation.tract_measures import STREAMLINES
from tensorldm.evaluation.tracts import NOISE_FLOOR
from tensorldm.imaging.bundle_names import PAPER_BUNDLES

SMALL = ("shape=[40,48,40]", "voxel_mm=[4.0,4.0,4.0]", "protocol.b0s=[2,2]", "protocol.directions=[12,12]")


def run(*words):
    result = CliRunner().invoke(app, [str(word) for word in words])
    if isinstance(result.exception, Exception):
        raise result.exception
    return result


@pytest.fixture(scope="module")
def cohort(tmp_path_factory):
    out = tmp_path_factory.mktemp("cohort") / "heads"
    sets = [word for setting in SMALL for word in ("--set", setting)]
    run("cohort", "--out", out, "--subjects", 1, "--split", "test", *sets)
    return out


def test_one_command_goes_from_a_cohort_to_tables_pictures_and_a_section(cohort, tmp_path):
    out, document = tmp_path / "out", tmp_path / "results.md"
    words = ("tables", "tracts", cohort, "--out", out, "--method", "ols-6", "--seeds", 300, "--workers", 1)
    said = run(*words, "--results", document).output
    rows = read_table(out / "table.csv")
    assert {row.quantity for row in rows} == set(PAPER_BUNDLES)
    assert {row.method for row in rows} == {"reference", NOISE_FLOOR, "ols-6"}
    assert sum(row.value for row in rows if row.metric == STREAMLINES and row.method == "reference") > 0
    assert {row.anatomy for row in rows} == {"procedural/test/0000"}
    assert "<!-- begin tracts -->" in document.read_text()
    assert "| reference again |" in document.read_text()
    assert "Core distance, mm" in said
    folder = out / "heads-sub-0001"
    assert {path.name for path in folder.glob("*.png")} == {"CST_right.png", "core_distance.png"}
    assert json.loads((out / "run.json").read_text())["Command"]
    before = (folder / "tracts" / "ols-6.tck").stat().st_mtime_ns
    run(*words)
    assert (folder / "tracts" / "ols-6.tck").stat().st_mtime_ns == before  # the same again is not made again


def test_a_folder_without_known_bundles_is_told(cohort, tmp_path):
    bare = tmp_path / "bare"
    (bare / "sub-0001").parent.mkdir()
    (bare / "sub-0001").symlink_to(cohort / "sub-0001")
    with pytest.raises(DataError, match=r"bare: no bundle masks of sub-0001 in its truth"):
        run("tables", "tracts", bare, "--out", tmp_path / "out")
