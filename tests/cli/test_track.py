"""``tensorldm track`` and ``tensorldm evaluate --tracts``, as a newcomer types them."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from tensorldm.cli import verbs  # noqa: F401  registers the verbs
from tensorldm.cli.main import app
from tensorldm.errors import ConfigError, DataError, DataWarning, TensorldmError, ToolError
from tensorldm.evaluation.table import read_table
from tensorldm.evaluation.tract_measures import CORE
from tensorldm.evaluation.tracts import NOISE_FLOOR
from tensorldm.imaging.nifti import write_mask
from tensorldm.imaging.tensor_files import write_tensor
from tensorldm.imaging.volume import Space
from tensorldm.tracts.tck import read_tck
from tensorldm.work.lock import holding

SPACE = Space((40, 20, 16), np.array([[-2.0, 0, 0, 39], [0, 2, 0, -19], [0, 0, 2, -15], [0, 0, 0, 1]]))
TUBE = (slice(4, 36), slice(7, 13), slice(5, 11))
FEW = ("--engine", "dipy", "--seeds", "150", "--workers", "1")


def run(*words):
    result = CliRunner().invoke(app, [str(word) for word in words])
    if isinstance(result.exception, TensorldmError):
        raise result.exception
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def put(path, diagonal):
    packed = np.zeros((*SPACE.shape, 6), dtype=np.float32)
    packed[TUBE] = [*diagonal, 0, 0, 0]
    write_tensor(path, packed, space=SPACE)
    return path


@pytest.fixture
def head(tmp_path):
    mask = np.zeros(SPACE.shape, dtype=bool)
    mask[TUBE] = True
    write_mask(tmp_path / "mask.nii.gz", mask, space=SPACE)
    write_mask(tmp_path / "bundles" / "CC_2.nii.gz", mask, space=SPACE)
    put(tmp_path / "ours.nii.gz", [1.7e-3, 3e-4, 3e-4])
    return tmp_path


def test_a_tensor_becomes_tractograms_and_bundles(head):
    out = head / "tracts"
    said = run("track", head / "ours.nii.gz", "--out", out, *FEW, "--bundles", head / "bundles").output
    assert sorted(path.name for path in out.iterdir()) == ["ours", "ours.json", "ours.tck", "ours.trx"]
    whole, bundle = read_tck(out / "ours.tck"), read_tck(out / "ours" / "CC_2.tck")
    assert f"{len(whole)} streamlines from 150 seeds" in said
    assert 10 < len(bundle) <= len(whole)
    assert "DIPY" in said
    assert json.loads((out / "ours.json").read_text())["Tensor"] == "ours.nii.gz"
    assert "as before" in run("track", head / "ours.nii.gz", "--out", out, *FEW).output


def test_a_tensor_without_direction_gives_a_warning_and_an_empty_file(head):
    put(head / "round.nii.gz", [7e-4, 7e-4, 7e-4])
    with pytest.warns(DataWarning, match="no streamline was found"):
        run("track", head / "round.nii.gz", "--out", head / "tracts", *FEW)
    assert len(read_tck(head / "tracts" / "round.tck")) == 0


def test_a_mask_on_another_grid_is_refused_before_anything_is_written(head):
    other = Space((20, 20, 16), SPACE.affine)
    write_mask(head / "other.nii.gz", np.ones(other.shape, dtype=bool), space=other)
    with pytest.raises(DataError, match="own grid"):
        run("track", head / "ours.nii.gz", "--mask", head / "other.nii.gz", "--out", head / "tracts", *FEW)
    assert not (head / "tracts").exists()


def test_what_is_no_tensor_and_a_file_in_the_place_of_the_folder_are_told_before_any_work(head):
    (head / "file").touch()
    with pytest.raises(DataError, match="a file of this name is in the way"):
        run("track", head / "ours.nii.gz", "--out", head / "file", *FEW)
    with pytest.raises(DataError, match="one value in a voxel, and a tensor has six"):
        run("track", head / "mask.nii.gz", "--out", head / "tracts", *FEW)
    assert not (head / "tracts").exists()


def test_two_runs_on_one_folder_do_not_mix_their_files(head):
    with holding(head / "tracts"), pytest.raises(DataError, match="another run is writing there"):
        run("track", head / "ours.nii.gz", "--out", head / "tracts", *FEW)
    words = ("evaluate", head / "ours.nii.gz", head / "ours.nii.gz", "--out", head / "t.csv", *FEW)
    with holding(head / "t_tracts"), pytest.raises(DataError, match="another run is writing there"):
        run(*words, "--tracts", head / "bundles")
    assert not list(head.rglob("*.tck"))


@pytest.mark.parametrize("words", [("track",), ("evaluate", "ours.nii.gz")], ids=["track", "evaluate"])
def test_a_cluster_for_a_single_tensor_is_refused_rather_than_left_out(words, head, monkeypatch):
    monkeypatch.chdir(head)
    with pytest.raises(ConfigError, match="--scheduler shares out a cohort"):
        run(*words, "ours.nii.gz", "--out", "out", "--scheduler", "tcp://127.0.0.1:1")


def test_asking_for_mrtrix_where_there_is_none_is_told(head, monkeypatch):
    monkeypatch.setenv("PATH", str(head))
    with pytest.raises(ToolError, match="--engine dipy"):
        run("track", head / "ours.nii.gz", "--out", head / "tracts", "--engine", "mrtrix")


def test_evaluate_adds_bundles_to_the_table_and_draws_them(head):
    reference = put(head / "reference.nii.gz", [1.6e-3, 3e-4, 3e-4])
    table = head / "table.csv"
    said = run("evaluate", reference, head / "ours.nii.gz", "--out", table, *FEW, "--tracts", head / "bundles").output
    rows = read_table(table)
    cores = {row.method: row.value for row in rows if row.metric == CORE}
    assert set(cores) == {"ours", NOISE_FLOOR}
    assert all(value < 2 for value in cores.values())
    assert any(row.metric == "lem" for row in rows)
    assert "Core distance, mm" in said
    assert {path.name for path in (head / "table_tracts").glob("*.png")} == {"core_distance.png", "CC_2.png"}


def test_evaluate_refuses_a_folder_without_masks_before_it_measures(head):
    with pytest.raises(DataError, match="no such folder"):
        run("evaluate", head / "ours.nii.gz", head / "ours.nii.gz", "--out", head / "t.csv", "--tracts", head / "no")
    assert not (head / "t.csv").exists()
