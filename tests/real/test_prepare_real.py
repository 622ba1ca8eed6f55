"""`tensorldm prepare` on real scans: the tensor is DIPY's, its world directions are MRtrix3's, pairs stay together."""

import shutil
import subprocess

import nibabel
import numpy as np
import pytest
import torch
from dipy.core.gradients import gradient_table
from dipy.reconst.dti import TensorModel

from tensorldm.config import read_config
from tensorldm.config.prepare import PrepareConfig
from tensorldm.data.prepare import check_all, finish, gather, plan, prepare_all
from tensorldm.data.splits import Pin
from tensorldm.data.store import Store
from tensorldm.dti.eigen import eigen
from tensorldm.dti.maps import angle_degrees, fractional_anisotropy

pytestmark = pytest.mark.real


def prepared(paths, out, *overrides, pins=None):
    config = read_config(PrepareConfig, "prepare", overrides)
    jobs = plan(gather(paths), pins or {})
    good, failed = check_all(jobs, config)
    assert not failed
    store = Store.create(out, settings=config.model_dump(mode="json"), made_by="tests")
    outcomes = list(prepare_all(good, store, config=config, tell=print))
    assert [o.problem for o in outcomes if o.state != "prepared"] == []
    return finish(store, pins or {}, seed=0)


def cropped(source, target, *, box):
    """A copy of a scan cut to a box of voxels, with its gradients."""
    target.mkdir()
    image = nibabel.load(source / "dwi.nii.gz").slicer[box]
    nibabel.save(image, target / "dwi.nii.gz")
    for name in ("dwi.bval", "dwi.bvec"):
        shutil.copy(source / name, target / name)
    return target / "dwi.nii.gz"


def test_a_2_mm_scan_keeps_its_voxels_and_its_tensor_is_dipys(real_data, tmp_path):
    box = (slice(34, 94), slice(30, 100), slice(34, 58))
    path = cropped(real_data / "real" / "philips_elition", tmp_path / "scan", box=box)
    subject = prepared([path], tmp_path / "store", "margin_mm=100").load("scan_dwi")
    image = nibabel.load(path)
    bvals, bvecs = (np.loadtxt(path.with_name(f"dwi.{kind}")) for kind in ("bval", "bvec"))
    table = gradient_table(bvals, bvecs=bvecs.T, b0_threshold=50)
    raw = image.get_fdata()
    expected = TensorModel(table, fit_method="OLS").fit(raw).quadratic_form
    # The file is LAS and its b-vectors are in voxel axes; RAS mirrors x, in space and in the tensor.
    mirror = np.diag([-1.0, 1, 1])
    expected = (mirror @ expected @ mirror)[::-1]
    raw = raw[::-1]
    packed = np.stack([expected[..., i, j] for i, j in ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))])
    inside = subject.mask.numpy() & (raw > 0).all(axis=-1) & (np.linalg.eigvalsh(expected)[..., 0] > 1e-6)
    assert inside.sum() > 30_000
    difference = np.linalg.norm(subject.components.numpy() - packed, axis=0) / np.linalg.norm(packed, axis=0)
    assert difference[inside].max() < 1e-4
    ours = subject.dwi[:, torch.from_numpy(inside)].numpy()
    theirs = raw[inside][:, subject.record.volumes].T
    np.testing.assert_allclose(ours[1:] / ours[0], theirs[1:] / theirs[0], rtol=1e-4)


@pytest.mark.mrtrix
def test_an_oblique_scan_has_the_world_directions_that_mrtrix_finds(real_data, tmp_path):
    source = real_data / "real" / "toshiba_oblique"
    path = cropped(source, tmp_path / "scan", box=(slice(None), slice(None), slice(8, 32)))
    subject = prepared([path], tmp_path / "store", "shell=1500", "voxel_size_mm=3", "margin_mm=150").load("scan_dwi")
    gradients = ["-fslgrad", path.with_name("dwi.bvec"), path.with_name("dwi.bval")]
    run = {"check": True, "capture_output": True}
    tensor, vector = tmp_path / "tensor.nii", tmp_path / "vector.nii"
    subprocess.run(["dwi2tensor", "-ols", "-iter", "0", *gradients, path, tensor], **run)
    subprocess.run(["tensor2metric", tensor, "-vector", vector, "-modulate", "none"], **run)
    theirs = nibabel.as_closest_canonical(nibabel.load(vector))  # RAS voxels; the vectors stay in the world
    packed = subject.components.movedim(0, -1).double()
    axes = torch.from_numpy(subject.affine[:3, :3] / np.linalg.norm(subject.affine[:3, :3], axis=0))
    ours = eigen(packed)[1][..., 0] @ axes.T
    np.testing.assert_allclose(theirs.affine, subject.affine, atol=1e-3)
    white = subject.mask & (fractional_anisotropy(packed) > 0.3)
    apart = angle_degrees(ours[white], torch.from_numpy(theirs.get_fdata())[white])
    assert white.sum() > 1000
    assert apart.median() < 0.1


def test_the_two_phase_encodings_of_one_head_share_a_person_and_a_split(real_data, tmp_path):
    paths = [real_data / "real" / name / "dwi.nii.gz" for name in ("uih_PA", "uih_AP")]
    pins = {"uih_PA_dwi": Pin("uih", "train"), "uih_AP_dwi": Pin("uih")}
    store = prepared(paths, tmp_path / "store", pins=pins)
    assert store.index.splits == {"uih_PA_dwi": "train", "uih_AP_dwi": "train"}
    for name in store.names:
        subject = store.load(name)
        assert subject.record.shell == pytest.approx(929, abs=1)
        assert subject.record.gradient_check == "verified"
        assert subject.voxel_size == pytest.approx((2, 2, 2), rel=0.02)
        packed = subject.components.movedim(0, -1)[subject.mask]
        assert 0.6e-3 < float(packed[:, :3].mean(dim=1).median()) < 1.1e-3
    assert any("37°" in word for word in store.load("uih_PA_dwi").record.warnings)
