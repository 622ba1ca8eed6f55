"""``tensorldm reconstruct`` as a user calls it: which files go in, which come out, and what they mean."""

import hashlib
import json
import sys
from dataclasses import replace

import nibabel
import numpy as np
import pytest
import torch

from tensorldm.dti.signal import predict_signal
from tensorldm.evaluation.evaluate import evaluate_files
from tensorldm.imaging.gradients import read_gradients
from tensorldm.imaging.tensor_files import read_provenance, read_tensor

PLAIN = ["tensor", "mask", "fa", "md", "rd", "ad", "colour_fa", "v1", "v2", "v3", "l1", "l2", "l3", "s0"]
PLAIN += ["prior_share", "spd_touched", "consistency"]
SPREAD = ["fa_mean", "fa_low", "fa_high", "md_low", "md_high", "v1_cone", "prior_sd"]
FAST = ("--steps", 2)


def images(folder):
    return {path.name.removesuffix(".nii.gz") for path in folder.rglob("*.nii.gz")}


def data(path):
    return nibabel.load(path).get_fdata()


def sums(folder):
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and ".tensorldm" not in path.parts  # the journal knows how long it took
    }


def test_a_series_becomes_every_map_on_its_own_grid(hcp, tmp_path, program):
    answer = program("reconstruct", hcp, "-o", tmp_path / "out")
    assert answer.code == 0, answer.err
    assert images(tmp_path / "out") == set(PLAIN)
    source = nibabel.load(hcp)
    for name in PLAIN:
        image = nibabel.load(tmp_path / "out" / f"{name}.nii.gz")
        assert image.shape[:3] == source.shape[:3]
        np.testing.assert_allclose(image.affine, source.affine)
    assert (tmp_path / "out" / "overview.png").stat().st_size > 5_000
    assert "No trained model was given" in answer.out
    assert "mask nodif_brain_mask.nii.gz" in answer.out
    for word in ("white matter, median FA", "not positive definite", "seconds", "volumes used", "tensor.nii.gz"):
        assert word in answer.out


def test_the_screen_says_what_to_open_next(hcp, tmp_path, program):
    for _ in range(2):  # made, then kept
        out = program("reconstruct", hcp, "-o", tmp_path / "out").out
        assert f"open {tmp_path / 'out' / 'report.html'} in a browser, or tensorldm view {tmp_path / 'out'}" in out


def test_the_tensor_explains_the_volumes_that_were_chosen(hcp, tmp_path, program):
    program("reconstruct", hcp, "-o", tmp_path / "out", "--method", "minimum-norm")
    path = tmp_path / "out" / "tensor.nii.gz"
    volumes = read_provenance(path).volumes
    assert volumes == (0, 1, 3, 8)
    inside = data(tmp_path / "out" / "mask.nii.gz") > 0
    series, table = data(hcp)[inside][:, list(volumes)], read_gradients(hcp).select(volumes)
    packed = torch.from_numpy(read_tensor(path).data[inside].astype(np.float64))
    measured = [torch.from_numpy(values) for values in (series[:, 0], table.bvals, table.directions)]
    predicted = predict_signal(packed, *measured).numpy()
    assert np.median(np.abs(predicted[:, 1:] / series[:, 1:] - 1)) < 0.01
    assert (torch.linalg.eigvalsh(_matrices(packed)) > 0).all()


def _matrices(packed):
    xx, yy, zz, xy, xz, yz = packed.unbind(-1)
    rows = [torch.stack(row, -1) for row in ((xx, xy, xz), (xy, yy, yz), (xz, yz, zz))]
    return torch.stack(rows, -2)


def test_the_sidecar_tells_all_that_made_the_tensor(hcp, tmp_path, program, bundle):
    program(
        "reconstruct",
        hcp,
        "-o",
        tmp_path / "out",
        "--model",
        bundle,
        "--samples",
        2,
        *FAST,
        "--seed",
        9,
        "--directions",
        3,
    )
    note = json.loads((tmp_path / "out" / "tensor.json").read_text())
    weights = hashlib.sha256((bundle / "weights.safetensors").read_bytes()).hexdigest()
    assert note["Model"]["WeightsSHA256"] == weights
    assert (note["Seed"], note["Samples"], note["Steps"], note["Sampler"]) == (9, 2, 2, "dpm++2m")
    assert note["Inputs"]["data.nii.gz"] == hashlib.sha256(hcp.read_bytes()).hexdigest()
    assert {"bvals", "bvecs", "nodif_brain_mask.nii.gz"} <= note["Inputs"].keys()
    assert note["Volumes"] == [0, 1, 3, 8]
    assert max(note["AnglesToAxesDegrees"]) < 15
    assert note["Intervals"]["source"] == "uncalibrated"


def test_every_convention_holds_the_same_tensor(hcp, tmp_path, program):
    fields, shapes = {}, {}
    for name in ("mrtrix", "fsl", "dipy", "nifti"):
        assert program("reconstruct", hcp, "-o", tmp_path / name, "--convention", name).code == 0
        path = tmp_path / name / "tensor.nii.gz"
        fields[name], shapes[name] = read_tensor(path).data, nibabel.load(path).shape
        np.testing.assert_allclose(fields[name], fields["mrtrix"], atol=1e-9)
    assert {name for name, shape in shapes.items() if len(shape) == 5} == {"nifti"}
    raw = {name: data(tmp_path / name / "tensor.nii.gz").reshape(-1, 6) for name in fields}
    assert not any(np.allclose(raw["mrtrix"], raw[name], atol=1e-9) for name in ("fsl", "dipy", "nifti"))


def test_what_it_writes_can_be_evaluated(hcp, tmp_path, program):
    program("reconstruct", hcp, "-o", tmp_path / "all", "--directions", "all")
    program("reconstruct", hcp, "-o", tmp_path / "three")
    rows = evaluate_files(tmp_path / "all" / "tensor.nii.gz", [tmp_path / "three" / "tensor.nii.gz"])
    found = {(row.quantity, row.metric): row.value for row in rows if row.method == "minimum-norm"}
    assert found["MD", "nmse"] < 0.05
    assert 0.1 < found["tensor", "lem"] < 1


def test_all_directions_of_a_noise_free_scan_give_the_true_tensor(clean, truth, tmp_path, program):
    tree = clean.write_hcp(tmp_path / "subject")
    answer = program("reconstruct", tree, "-o", tmp_path / "out", "--directions", "all")
    assert answer.code == 0
    assert "no noise at all" in answer.out
    found = read_tensor(tmp_path / "out" / "tensor.nii.gz").data
    np.testing.assert_allclose(np.moveaxis(found, -1, 0), truth, atol=2e-8)


def test_a_bids_series_gets_derivative_names(scan, tmp_path, program):
    scan.write_bids(tmp_path / "raw", "01", "2")
    assert program("reconstruct", tmp_path / "raw", "-o", tmp_path / "out").code == 0
    folder = tmp_path / "out" / "sub-01" / "ses-2" / "dwi"
    for name in ("model-DTI_param-tensor_dwimap", "model-DTI_param-colourFA_dwimap", "desc-brain_mask"):
        assert (folder / f"sub-01_ses-2_space-orig_{name}.nii.gz").is_file()
    description = json.loads((tmp_path / "out" / "dataset_description.json").read_text())
    assert description["DatasetType"] == "derivative"
    assert read_provenance(folder / "sub-01_ses-2_space-orig_model-DTI_param-tensor_dwimap.nii.gz").mask.is_file()


def test_volumes_in_separate_files_give_what_the_series_gives(scan, tmp_path, program):
    chosen = [0, 1, 3, 8]
    mask = tmp_path / "brain.nii.gz"
    nibabel.save(nibabel.Nifti1Image(scan.mask.astype(np.uint8), scan.affine), mask)
    parts = []
    for name, volume in zip(("b0", "x", "y", "z"), chosen, strict=True):
        part = replace(scan, data=scan.data[..., [volume]], bvals=scan.bvals[[volume]], bvecs=scan.bvecs[[volume]])
        parts.append(part.write_files(tmp_path / f"{name}.nii.gz"))
    for end in (".bval", ".bvec"):
        (tmp_path / f"b0{end}").unlink()  # converters write none for a lone b=0
    answer = program("reconstruct", "--join", *parts, "-o", tmp_path / "joined", "--mask", mask)
    assert answer.code == 0, answer.err
    assert "b0.nii.gz: no gradients beside it, so it is taken as b=0" in " ".join(answer.out.split())
    series = replace(scan, data=scan.data[..., chosen], bvals=scan.bvals[chosen], bvecs=scan.bvecs[chosen])
    program("reconstruct", series.write_files(tmp_path / "dwi.nii.gz"), "-o", tmp_path / "whole", "--mask", mask)
    for name in ("fa", "v1", "tensor"):
        np.testing.assert_allclose(
            data(tmp_path / "joined" / f"{name}.nii.gz"), data(tmp_path / "whole" / f"{name}.nii.gz")
        )


def test_one_scan_and_many_give_the_same_bytes_and_a_bad_one_stops_nobody(scan, tmp_path, program, bundle):
    scan.write_hcp(tmp_path / "tree" / "anna")
    other = replace(scan, data=scan.data * 1.5)
    other.write_hcp(tmp_path / "tree" / "bert")
    bad = scan.write_hcp(tmp_path / "tree" / "carl")
    (bad / "T1w" / "Diffusion" / "bvals").unlink()
    options = ("--model", bundle, "--samples", 2, *FAST)
    answer = program("reconstruct", tmp_path / "tree", "-o", tmp_path / "many", *options)
    assert answer.code == 1
    assert "bvals" in answer.err
    assert sorted(path.name for path in (tmp_path / "many").glob("[!.]*")) == ["anna", "bert"]
    program("reconstruct", tmp_path / "tree" / "bert", "-o", tmp_path / "one", *options)
    for name in ("tensor", "fa_low", "v1_cone"):
        one, many = (folder / f"{name}.nii.gz" for folder in (tmp_path / "one", tmp_path / "many" / "bert"))
        assert one.read_bytes() == many.read_bytes()


def test_the_same_command_gives_the_same_bytes_and_another_seed_others(hcp, tmp_path, program, bundle):
    for name, seed in (("one", 1), ("again", 1), ("other", 2)):
        options = ("--model", bundle, "--samples", 2, *FAST, "--seed", seed, "--device", "cpu")
        assert program("reconstruct", hcp, "-o", tmp_path / name, *options).code == 0
    one, again, other = (sums(tmp_path / name) for name in ("one", "again", "other"))
    assert one == again
    assert one["tensor.nii.gz"] != other["tensor.nii.gz"]


def test_the_mean_is_the_users_choice_and_the_sidecar_names_it(hcp, tmp_path, program, bundle):
    options = ("--model", bundle, "--samples", 3, *FAST, "--spd", "raw", "--grid", "2mm")
    longest, said = {}, {}
    for kind in ("arithmetic", "eigenvalues"):
        out = tmp_path / kind
        assert program("reconstruct", hcp, "-o", out, *options, "--mean", kind).code == 0
        longest[kind], said[kind] = data(out / "l1.nii.gz"), json.loads((out / "tensor.json").read_text())
    inside = data(out / "mask.nii.gz") > 0
    assert (longest["arithmetic"] <= longest["eigenvalues"] + 1e-7).all(), "a mean is rounder than what it is a mean of"
    assert (longest["arithmetic"] < 0.99 * longest["eigenvalues"])[inside].mean() > 0.5
    assert {kind: words["Mean"] for kind, words in said.items()} == {kind: kind for kind in said}
    mean, high = data(out / "fa_mean.nii.gz"), data(out / "fa_high.nii.gz")
    assert (mean[inside] <= high[inside] + 1e-5).all()
    refused = program("reconstruct", hcp, "-o", tmp_path / "none", *options, "--mean", "middle")
    assert refused.code == 2
    assert "--mean is 'middle'; give one of arithmetic, log-euclidean, eigenvalues." in " ".join(refused.err.split())


def test_samples_give_intervals_about_their_mean_and_one_sample_none(hcp, tmp_path, program, bundle):
    out = tmp_path / "out"
    assert program("reconstruct", hcp, "-o", out, "--model", bundle, "--samples", 3, *FAST).code == 0
    assert images(out) == {*PLAIN, *SPREAD}
    inside = data(out / "mask.nii.gz") > 0
    low, high, cone = (data(out / f"{name}.nii.gz")[inside] for name in ("md_low", "md_high", "v1_cone"))
    assert (low < high).mean() > 0.99
    assert ((cone >= 0) & (cone <= 90)).all()
    assert program("reconstruct", hcp, "-o", out, "--model", bundle, "--samples", 1, *FAST).code == 0
    assert images(out) == set(PLAIN), "intervals of an earlier result must not stay beside a new tensor"
    assert not list(out.glob("*_low.json"))


def test_a_model_of_the_papers_form_sees_other_b_values_as_1000_and_says_so(clean, tmp_path, program, paper_bundle):
    options = ("--model", paper_bundle, "--samples", 1, *FAST)
    tensors = -np.log(clean.data / clean.data[..., :1]) / np.where(clean.bvals > 50, clean.bvals, np.inf)
    for bval in (1000, 1500):
        bvals = np.where(clean.bvals > 50, float(bval), 0.0)
        scan = replace(clean, data=clean.data[..., :1] * np.exp(-bvals * tensors), bvals=bvals)
        answer = program("reconstruct", scan.write_hcp(tmp_path / str(bval)), "-o", tmp_path / f"out{bval}", *options)
        assert answer.code == 0, answer.err
        said = "kurtosis and the noise floor are not corrected" in " ".join(answer.out.split())
        assert said == (bval == 1500)
        answer = program("reconstruct", tmp_path / str(bval), "-o", tmp_path / "all", *options, "--directions", "all")
        assert (answer.code, "--directions all" in answer.err) == (2, True)


def test_on_the_working_grid_the_voxels_are_2_mm_and_the_tensor_is_as_it_was(scan, tmp_path, program):
    stretched = replace(scan, affine=scan.affine @ np.diag([1.25, 1.25, 1.5, 1]))
    path = stretched.write_hcp(tmp_path / "subject") / "T1w" / "Diffusion" / "data.nii.gz"
    assert program("reconstruct", path, "-o", tmp_path / "out", "--grid", "2mm").code == 0
    image = nibabel.load(tmp_path / "out" / "tensor.nii.gz")
    np.testing.assert_allclose(image.header.get_zooms()[:3], 2)
    fa, mask = (data(tmp_path / "out" / f"{name}.nii.gz") for name in ("fa", "mask"))
    assert fa[mask == 0].max() == 0
    program("reconstruct", path, "-o", tmp_path / "native")
    native = data(tmp_path / "native" / "fa.nii.gz")
    assert np.median(fa[mask > 0]) == pytest.approx(np.median(native[native > 0]), abs=0.03)


def test_a_dicom_folder_goes_through_dcm2niix(scan, tmp_path, program, monkeypatch):
    series = scan.write_files(tmp_path / "made" / "dwi.nii.gz")
    (tmp_path / "dicom").mkdir()
    (tmp_path / "dicom" / "IM0001").write_bytes(b"\0" * 128 + b"DICM" + b"\0" * 100)
    tool = tmp_path / "bin" / "dcm2niix"
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\ncp {series.parent}/* "$2"/\n')
    tool.chmod(0o755)
    monkeypatch.setitem(sys.modules, "dcm2niix", None)  # the package is not installed, the program is
    monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin")
    answer = program("reconstruct", tmp_path / "dicom", "-o", tmp_path / "out")
    assert answer.code == 0, answer.err
    assert (tmp_path / "out" / "tensor.nii.gz").is_file()
    monkeypatch.setenv("PATH", "/nowhere")
    answer = program("reconstruct", tmp_path / "dicom", "-o", tmp_path / "none")
    assert (answer.code, "pip install 'tensorldm[dicom]'" in answer.err) == (2, True)
    assert f"{tmp_path / 'dicom'}: a DICOM folder" in answer.err
