"""``tensorldm tables analytic`` on a small simulated series, from raw files to the Markdown table."""

from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from tensorldm.cli import verbs  # noqa: F401  registers the verbs
from tensorldm.cli.main import app
from tensorldm.cohort.procedural import ProceduralSource
from tensorldm.dti.signal import predict_signal
from tensorldm.errors import DataError
from tensorldm.evaluation.table import read_table
from tensorldm.experiments.analytic import compare_analytic, name_subjects
from tensorldm.experiments.record import record_run
from tensorldm.imaging.gradients import GradientTable, write_fsl
from tensorldm.imaging.nifti import write_volume
from tensorldm.imaging.tensor_files import read_provenance
from tensorldm.imaging.volume import Space, Volume


def spiral(count: int) -> np.ndarray:
    k = np.arange(count) + 0.5
    z, turn = 1 - k / count, np.pi * (1 + 5**0.5) * k
    ring = np.sqrt(1 - z**2)
    return np.column_stack([ring * np.cos(turn), ring * np.sin(turn), z])


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A procedural head at 6 mm with 1 b=0 and 15 directions, a little noise, on a grid of negative determinant."""
    folder = tmp_path_factory.mktemp("scans") / "simulated"
    source = ProceduralSource(split="test", shape=(32, 38, 32), voxel_size=(6.0, 6.0, 6.0), bundles=())
    head = source.load("procedural/test/0001")
    bvals = np.concatenate([[0.0], np.full(15, 1000.0)])
    directions = np.concatenate([np.zeros((1, 3)), spiral(15)])
    packed = head.components[0].movedim(0, -1).double()
    clean = predict_signal(packed, 800 * head.s0.double(), torch.from_numpy(bvals), torch.from_numpy(directions))
    noise = np.random.default_rng(0).normal(scale=8, size=(2, *clean.shape))
    signal = np.hypot(clean.numpy() + noise[0], noise[1]).astype(np.float32)
    space = Space((32, 38, 32), np.diag([-6.0, 6.0, 6.0, 1.0]))
    write_volume(folder / "dwi.nii.gz", Volume(signal, space))
    table = GradientTable(bvals, directions)
    write_fsl(folder / "dwi.bval", folder / "dwi.bvec", gradients=table, space=space)
    return folder / "dwi.nii.gz"


@pytest.fixture(scope="module")
def out(series: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("tables")
    (out / "results.md").write_text("# Results\n")
    arguments = ["tables", "analytic", str(series), "--out", str(out), "--results", str(out / "results.md")]
    answer = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert answer.exit_code == 0
    return out


def test_more_directions_come_closer_to_the_whole_fit(out):
    found = {(row.method, row.metric): row.value for row in read_table(out / "table.csv") if row.quantity == "tensor"}
    assert found["ols-12", "lem"] < found["ols-6", "lem"] < found["minimum-norm", "lem"]
    assert found["ols-12", "v1_median_degrees"] < found["ols-6", "v1_median_degrees"]
    assert found["ols-6", "v1_median_degrees"] < found["ade", "v1_median_degrees"]
    assert found["ade", "spd_violations_percent"] == 0


def test_every_tensor_tells_method_subject_and_volumes(out):
    known = {path.name.split(".")[0]: read_provenance(path) for path in (out / "simulated").glob("*[!k].nii.gz")}
    assert set(known) == {"reference", "ade", "ade-literal", "minimum-norm", "ols-6", "ols-12"}
    assert {name: len(each.volumes or ()) for name, each in known.items()} == {
        "reference": 16, "ade": 4, "ade-literal": 4, "minimum-norm": 4, "ols-6": 7, "ols-12": 13,
    }  # fmt: skip
    assert {each.subject for each in known.values()} == {"simulated"}


def test_the_document_tells_command_versions_hardware_seed_and_ranges(out):
    text = (out / "results.md").read_text()
    assert text.startswith("# Results\n\n<!-- begin analytic -->\n")
    for words in ("tensorldm", "torch", "Hardware:", "Seed: none", "diagonal 0.003", "### simulated", "| ols-12 |"):
        assert words in text
    assert (out / "table.md").read_text().strip() in text


def test_a_method_that_the_series_is_too_short_for_is_left_out_with_a_word(series, tmp_path):
    from tensorldm.imaging.gradients import read_gradients
    from tensorldm.imaging.nifti import read_volume

    kept = list(range(9))
    volume, gradients = read_volume(series, volumes=kept), read_gradients(series).select(kept)
    path = tmp_path / "short.nii.gz"
    write_volume(path, volume)
    write_fsl(tmp_path / "short.bval", tmp_path / "short.bvec", gradients=gradients, space=volume.space)
    record = record_run(["tables", "analytic"], seed=None)
    (result,) = compare_analytic([path], tmp_path / "out", record=record, tell=lambda _: None)
    assert any("ols-12 is missing" in remark for remark in result.remarks)
    assert {row.method for row in result.rows} >= {"ade", "ols-6"}
    assert "ols-12" not in {row.method for row in result.rows}


def test_series_are_named_by_file_or_by_folder(tmp_path):
    paths = [tmp_path / "anna" / "dwi.nii.gz", tmp_path / "sub-02_dwi.nii.gz"]
    assert name_subjects(paths) == ["anna", "sub-02_dwi"]
    with pytest.raises(DataError, match="both be called 'anna'"):
        name_subjects([paths[0], paths[0]])


def test_all_series_are_checked_before_any_is_worked_on(series, tmp_path):
    answer_out = tmp_path / "out"
    with pytest.raises(DataError, match=r"absent\.nii\.gz"):
        compare_analytic(
            [series, tmp_path / "absent.nii.gz"],
            answer_out,
            record=record_run([], seed=None),
            tell=lambda _: None,
        )
    assert not answer_out.exists()


def test_a_series_without_a_whole_fit_is_refused_before_anything_is_written(series, tmp_path):
    from tensorldm.imaging.gradients import read_gradients
    from tensorldm.imaging.nifti import read_volume

    volume, gradients = read_volume(series, volumes=range(4)), read_gradients(series).select(list(range(4)))
    path = tmp_path / "four.nii.gz"
    write_volume(path, volume)
    write_fsl(tmp_path / "four.bval", tmp_path / "four.bvec", gradients=gradients, space=volume.space)
    with pytest.raises(DataError, match=r"four\.nii\.gz: 4 volumes determine"):
        compare_analytic([path], tmp_path / "out", record=record_run([], seed=None), tell=lambda _: None)
    assert not (tmp_path / "out").exists()
