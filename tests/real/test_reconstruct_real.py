"""Real scans of four vendors through ``tensorldm reconstruct``: grids, volumes, guards, brains that look like ones."""

import json
import shutil

import nibabel
import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from tensorldm.cli import verbs  # noqa: F401  registers the verbs
from tensorldm.cli.main import app
from tensorldm.dti.maps import angle_degrees

pytestmark = pytest.mark.real

SCANS = ["philips_nottingham", "siemens_prisma_supine", "uih_PA", "toshiba_oblique"]


def reconstruct(*words):
    return CliRunner().invoke(app, ["reconstruct", *map(str, words)], catch_exceptions=False)


def load(path):
    return nibabel.load(path).get_fdata()


@pytest.mark.parametrize("name", SCANS)
def test_a_real_scan_keeps_its_grid_and_looks_like_a_brain(name, real_data, tmp_path):
    dwi = real_data / "real" / name / "dwi.nii.gz"
    answer = reconstruct(dwi, "-o", tmp_path)
    assert answer.exit_code == 0, answer.output
    source, fa = nibabel.load(dwi), nibabel.load(tmp_path / "fa.nii.gz")
    np.testing.assert_allclose(fa.affine, source.affine, atol=1e-5)
    assert fa.shape == source.shape[:3]
    mask, md, l3 = (load(tmp_path / f"{part}.nii.gz") for part in ("mask", "md", "l3"))
    inside = mask > 0
    assert 0.6e-3 < np.median(md[inside]) < 1.2e-3
    assert (l3[inside] > 0).all()
    note = json.loads((tmp_path / "tensor.json").read_text())
    assert note["Volumes"][0] == 0
    assert len(set(note["Volumes"])) == 4


def test_three_directions_find_the_fibres_along_the_axes_that_all_find(real_data, tmp_path):
    """The corpus callosum, the cingulum and the pyramids run along axes: there the four volumes suffice."""
    dwi = real_data / "real" / "philips_nottingham" / "dwi.nii.gz"
    for directions in ("3", "all"):
        assert reconstruct(dwi, "-o", tmp_path / directions, "--directions", directions).exit_code == 0
    truth = load(tmp_path / "all" / "v1.nii.gz")
    certain = (load(tmp_path / "all" / "fa.nii.gz") > 0.5) & (np.abs(truth).max(axis=-1) > 0.95)
    assert certain.sum() > 300
    found = load(tmp_path / "3" / "v1.nii.gz")
    angles = angle_degrees(torch.from_numpy(found[certain]), torch.from_numpy(truth[certain]))
    assert float(angles.median()) < 20


def test_b_2000_is_noticed(real_data, tmp_path):
    answer = reconstruct(real_data / "real" / "philips_vanderbilt_b2000" / "dwi.nii.gz", "-o", tmp_path / "out")
    assert answer.exit_code == 2
    assert "b=2000, outside 700 to 1600" in answer.output
    assert not (tmp_path / "out").exists()


def test_wrong_signs_are_noticed_and_named(real_data, tmp_path):
    source = real_data / "real" / "uih_PA"
    for end in ("nii.gz", "bval"):
        shutil.copy(source / f"dwi.{end}", tmp_path)
    vectors = np.loadtxt(source / "dwi.bvec")
    vectors[1] *= -1
    np.savetxt(tmp_path / "dwi.bvec", vectors)
    answer = reconstruct(tmp_path / "dwi.nii.gz", "-o", tmp_path / "out")
    assert answer.exit_code == 2
    assert "check signs and order of the b-vectors" in answer.output
    assert "--force" in answer.output
    assert reconstruct(tmp_path / "dwi.nii.gz", "-o", tmp_path / "out", "--force").exit_code == 0
