"""``tensorldm cohort``: files that other programs read, truth that agrees with them, runs that can be stopped."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from tensorldm.cli import verbs  # noqa: F401  registers the verbs
from tensorldm.cli.main import app
from tensorldm.cohort import writing
from tensorldm.dti.fit import fit_ols, fit_ols_nonlinear_gradients
from tensorldm.dti.maps import angle_degrees, fractional_anisotropy, principal_direction
from tensorldm.errors import ConfigError, DataError
from tensorldm.imaging.grad_dev import read_grad_dev
from tensorldm.imaging.gradients import read_gradients
from tensorldm.imaging.layouts import find_scans
from tensorldm.imaging.nifti import read_mask, read_volume
from tensorldm.imaging.tensor_files import read_provenance, read_tensor
from tensorldm.work.lock import holding

VALIDATOR = Path(sys.executable).parent / "bids-validator-deno"
SMALL = ("shape=[40,48,40]", "voxel_mm=[4.0,4.0,4.0]", "protocol.b0s=[2,2]", "protocol.directions=[12,12]")
QUIET = (*SMALL, "protocol.snr=[500,500]")


def run(out, *options, subjects=1, settings=SMALL):
    sets = [word for setting in settings for word in ("--set", setting)]
    command = ["cohort", "--out", str(out), "--subjects", str(subjects), *sets, *options]
    result = CliRunner().invoke(app, command)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture(scope="module")
def bids(tmp_path_factory):
    out = tmp_path_factory.mktemp("cohort") / "bids"
    run(out, subjects=2, settings=QUIET)
    return out


@pytest.fixture(scope="module")
def hcp(tmp_path_factory):
    out = tmp_path_factory.mktemp("cohort") / "hcp"
    run(out, "--layout", "hcp", settings=(*QUIET, "protocol.nonlinearity=0.1"))
    return out


def truth_of(out):
    (path,) = out.glob("**/sub-0001_desc-clean_tensor.nii.gz")
    return path


def test_a_bids_dataset_holds_scans_truth_and_the_anatomies_behind_them(bids):
    scans = find_scans(bids)
    assert [scan.name for scan in scans] == ["sub-0001", "sub-0002"]
    table = [line.split("\t") for line in (bids / "participants.tsv").read_text().splitlines()]
    assert table[0] == ["participant_id", "anatomy", "anatomy_source", "split"]
    assert [row[0] for row in table[1:]] == ["sub-0001", "sub-0002"]
    assert {row[1] for row in table[1:]} == {"procedural/train/0000", "procedural/train/0001"}
    assert read_provenance(truth_of(bids)).anatomy == "procedural/train/0000"
    assert (bids / "derivatives/truth/sub-0001/dwi/bundles/CST_left.nii.gz").is_file()
    assert not [path for path in bids.rglob("*") if path.name.endswith(".part")]


@pytest.mark.skipif(not VALIDATOR.exists(), reason="bids-validator-deno is not installed: install the extra 'dev'")
def test_the_bids_validator_finds_no_error(bids):
    result = subprocess.run([VALIDATOR, bids, "--json"], capture_output=True, text=True, check=False)
    issues = json.loads(result.stdout)["issues"]["issues"]
    assert [issue for issue in issues if issue["severity"] == "error"] == []
    assert result.returncode == 0


def test_a_fit_of_the_written_scan_agrees_with_the_written_truth(bids):
    (scan, _) = find_scans(bids)
    series, truth = read_volume(scan.dwi), read_tensor(truth_of(bids))
    assert series.space.same_grid(truth.space)
    assert np.linalg.det(series.space.affine) < 0, "written as scanners write: left on the right"
    gradients = read_gradients(scan.dwi)
    inside = np.abs(truth.data).sum(axis=-1) > 0
    packed, _ = fit_ols(
        torch.from_numpy(series.data[inside]), torch.from_numpy(gradients.bvals), torch.from_numpy(gradients.directions)
    )
    clean = torch.from_numpy(truth.data[inside])
    fibres = fractional_anisotropy(clean) > 0.3
    apart = angle_degrees(principal_direction(packed[fibres]), principal_direction(clean[fibres]))
    assert fibres.sum() > 500
    assert apart.median() < 1
    assert (packed - clean).abs().median() < 1e-5


@pytest.mark.mrtrix
def test_mrtrix_fits_the_same_directions_from_the_files(bids, tmp_path):
    (scan, _) = find_scans(bids)
    tensor = tmp_path / "tensor.nii"
    subprocess.run(
        ["dwi2tensor", "-quiet", "-nthreads", "0", "-fslgrad", scan.bvec, scan.bval, scan.dwi, tensor], check=True
    )
    for source, target in ((tensor, "fit"), (truth_of(bids), "truth")):
        found = tmp_path / f"{target}.nii"
        command = ["tensor2metric", "-quiet", "-nthreads", "0", source, "-vector", found, "-modulate", "none"]
        subprocess.run(command, check=True)
    fitted, expected = (torch.from_numpy(read_volume(tmp_path / f"{name}.nii").data) for name in ("fit", "truth"))
    clean = torch.from_numpy(read_tensor(truth_of(bids)).data)
    fibres = fractional_anisotropy(clean) > 0.3
    assert angle_degrees(fitted[fibres], expected[fibres]).median() < 1


def test_an_hcp_tree_comes_with_mask_and_gradient_deviation_that_the_fit_needs(hcp):
    (scan,) = find_scans(hcp)
    assert scan.mask is not None
    assert scan.grad_dev is not None
    series = read_volume(scan.dwi)
    mask, _ = read_mask(scan.mask)
    assert (series.data[~mask] == 0).all(), "HCP's background is masked"
    deviation = read_grad_dev(scan.grad_dev, series.space)
    gradients = read_gradients(scan.dwi)
    table = (torch.from_numpy(gradients.bvals), torch.from_numpy(gradients.directions))
    signal = torch.from_numpy(series.data[mask])
    plain, _ = fit_ols(signal, *table)
    known, _ = fit_ols_nonlinear_gradients(signal, *table, torch.from_numpy(deviation.data[mask]))
    (path,) = hcp.glob("truth/*/desc-clean_tensor.nii.gz")
    clean = torch.from_numpy(read_tensor(path).data[mask])
    rim = (plain - clean).abs().mean(dim=-1) > 2e-5
    assert rim.sum() > 1000
    assert (known - clean)[rim].abs().mean() < 0.3 * (plain - clean)[rim].abs().mean()


def test_air_is_noise_in_raw_scans(tmp_path):
    run(tmp_path / "raw", settings=(*SMALL, "protocol.snr=[20,20]"))
    (scan,) = find_scans(tmp_path / "raw")
    (mask_path,) = (tmp_path / "raw").glob("derivatives/truth/*/dwi/*_desc-brain_mask.nii.gz")
    mask, _ = read_mask(mask_path)
    air = read_volume(scan.dwi).data[~mask]
    assert air.std() / air.mean() == pytest.approx(np.sqrt(4 / np.pi - 1), rel=0.05)  # Rayleigh


def test_running_again_makes_only_what_is_missing_and_the_same_bytes(bids, tmp_path):
    copy = tmp_path / "cohort"
    shutil.copytree(bids, copy)
    kept = copy / "sub-0002/dwi/sub-0002_dwi.nii.gz"
    before = kept.stat().st_mtime_ns
    lost = (copy / "sub-0001/dwi/sub-0001_dwi.nii.gz").read_bytes()
    shutil.rmtree(copy / "sub-0001")
    run(copy, subjects=2, settings=QUIET)
    assert kept.stat().st_mtime_ns == before
    assert (copy / "sub-0001/dwi/sub-0001_dwi.nii.gz").read_bytes() == lost


def test_one_run_at_a_time_and_what_a_killed_one_left_is_cleared_away(bids, tmp_path):
    copy = tmp_path / "cohort"
    shutil.copytree(bids, copy)
    left = copy / ".sub-0003.0123abcd.part" / "scan"
    left.mkdir(parents=True)
    with holding(copy), pytest.raises(DataError, match="another run is writing there"):
        run(copy, subjects=2, settings=QUIET)
    assert left.is_dir()
    run(copy, subjects=2, settings=QUIET)
    assert list(copy.glob(".*")) == []


def test_a_cohort_of_other_settings_is_not_mixed_in(bids):
    with pytest.raises(DataError, match=r"made otherwise \(differs in seed\)"):
        run(bids, "--seed", "5", subjects=2, settings=QUIET)
    with pytest.raises(DataError, match="settings"):
        run(bids, subjects=2, settings=SMALL)


def test_a_folder_of_other_things_is_left_alone(tmp_path):
    (tmp_path / "holiday.jpg").write_text("")
    with pytest.raises(DataError, match="not empty"):
        run(tmp_path)


def test_a_subject_that_fails_midway_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(*_args, **_options):
        raise DataError("disk full")

    monkeypatch.setattr(writing, "write_scan", full)
    with pytest.raises(DataError, match="disk full"):
        run(tmp_path / "cohort")
    assert list((tmp_path / "cohort").glob("sub-*")) == []
    assert list((tmp_path / "cohort").glob(".*")) == []
    assert (tmp_path / "cohort/participants.tsv").read_text().splitlines()[1:] == []


def test_too_little_room_is_told_after_the_first_subject(tmp_path, monkeypatch):
    usage = type("Usage", (), {"free": 10})()
    monkeypatch.setattr(writing.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(DataError, match="1 more subjects take about"):
        run(tmp_path / "cohort", subjects=2)
    assert (tmp_path / "cohort/sub-0001").is_dir()


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--layout", "zip"], "zip"),
        (["--split", "all"], "all"),
        (["--source", "atlas"], "atlas"),
        (["--set", "protocol.snrr=1"], "snrr"),
    ],
)
def test_wrong_options_are_told_before_anything_is_made(tmp_path, options, word):
    with pytest.raises(ConfigError, match=word):
        run(tmp_path / "cohort", *options)
    assert not (tmp_path / "cohort").exists()


def test_a_file_in_the_place_of_the_folder_is_told_and_stays(tmp_path):
    (tmp_path / "cohort").write_text("mine")
    with pytest.raises(DataError, match="a file of this name is in the way"):
        run(tmp_path / "cohort")
    assert (tmp_path / "cohort").read_text() == "mine"
