"""``tensorldm bids`` as a BIDS App is called; the full BIDS validator judges what goes in and what comes out."""

import json
import runpy
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import nibabel
import numpy as np
import pytest

from tensorldm.imaging.atomic import write_bytes

pytest.importorskip("bids")
CLOSED = ("--method", "minimum-norm")
VALIDATOR = shutil.which("bids-validator-deno", path=Path(sys.executable).parent) or shutil.which("bids-validator-deno")
_shared = runpy.run_path(str(Path(__file__).parents[1] / "integration" / "prepare" / "conftest.py"))
clean, program = _shared["scan"], _shared["program"]


def problems(dataset, *options):
    """Codes and places of the errors that the validator finds."""
    if VALIDATOR is None:
        pytest.skip("the BIDS validator is not installed: pip install bids-validator-deno")
    answer = subprocess.run([VALIDATOR, dataset, "--format", "json", *options], capture_output=True, text=True)
    issues = json.loads(answer.stdout)["issues"]["issues"]
    return {(issue["code"], issue.get("location")) for issue in issues if issue["severity"] == "error"}


@pytest.fixture
def raw(clean, tmp_path):
    """Three participants, the first with two sessions; the gradients of the third are damaged."""
    root = tmp_path / "raw"
    noisy = replace(clean, data=clean.data + np.random.default_rng(2).normal(scale=4, size=clean.data.shape))
    for participant, session in (("01", "a"), ("01", "b"), ("02", "a"), ("03", "a")):
        noisy.write_bids(root, participant, session)
        folder = root / f"sub-{participant}" / f"ses-{session}" / "dwi"
        (folder / f"sub-{participant}_ses-{session}_dwi.json").write_text("{}")
    for image in root.rglob("*.nii.gz"):
        loaded = nibabel.load(image)
        loaded.header.set_xyzt_units("mm", "sec")
        loaded.header["pixdim"][4] = 5.0
        nibabel.save(loaded, image)
    description = {"Name": "three heads", "BIDSVersion": "1.10.0", "DatasetType": "raw", "License": "CC0"}
    (root / "dataset_description.json").write_text(json.dumps({**description, "Authors": ["A. One", "B. Two"]}))
    (root / "README.md").write_text("Three heads that never were, each an ellipsoid of helices.\n" * 5)
    bvals = root / "sub-03" / "ses-a" / "dwi" / "sub-03_ses-a_dwi.bval"
    bvals.rename(tmp_path / "bvals of the third")
    bvals.write_text(" ".join(["1000"] * 13) + "\n")
    return root


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Names instead of pictures, which would take most of the time."""
    from tensorldm.cli import bids

    monkeypatch.setattr(bids, "draw", lambda path, result: write_bytes(path, b"a picture"))
    monkeypatch.setattr(bids, "describe", lambda path, result, notes: write_bytes(path, b"a page"))


def states(out):
    lines = (out / "derivatives" / "group" / "measures.tsv").read_text().splitlines()
    header = lines[0].split("\t")
    return {row["scan"]: row for row in (dict(zip(header, line.split("\t"), strict=True)) for line in lines[1:])}


def test_from_a_valid_dataset_to_a_valid_derivative_a_bad_subject_mended_on_the_way(raw, tmp_path, program):
    out = tmp_path / "out"
    assert problems(raw) == set()
    answer = program("bids", raw, out, "participant", *CLOSED)
    assert answer.code == 1, answer.err
    assert "sub-03_ses-a_dwi" in answer.err
    assert "3 done, 1 failed" in answer.out
    assert problems(out) == set()

    answer = program("bids", raw, out, "group")
    assert answer.code == 1
    assert "volume 0 has b=1000 s/mm² but no direction" in states(out)["sub-03_ses-a"]["reason"]
    assert states(out)["sub-03_ses-a"]["state"] == "failed"
    assert problems(out, "--recursive") == set()

    (tmp_path / "bvals of the third").replace(raw / "sub-03" / "ses-a" / "dwi" / "sub-03_ses-a_dwi.bval")
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.nii.gz")}
    answer = program("bids", raw, out, "participant", *CLOSED)
    assert (answer.code, "1 done, 3 kept" in answer.out) == (0, True)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert program("bids", raw, out, "group", "--workers", 1).code == 0
    assert {row["state"] for row in states(out).values()} == {"done"}
    assert problems(out, "--recursive") == set()
    _check_tables(out)
    _check_entities(out)


def _check_tables(out):
    people = (out / "participants.tsv").read_text().splitlines()
    assert [line.split("\t")[:2] for line in people] == [
        ["participant_id", "scans"],
        ["sub-01", "2"],
        ["sub-02", "1"],
        ["sub-03", "1"],
    ]
    described = json.loads((out / "participants.json").read_text())
    assert set(people[0].split("\t")) == set(described)
    row = states(out)["sub-02_ses-a"]
    folder = out / "sub-02" / "ses-a" / "dwi"
    fa, md = (
        nibabel.load(folder / f"sub-02_ses-a_space-orig_model-DTI_param-{name}_dwimap.nii.gz").get_fdata()
        for name in ("FA", "MD")
    )
    white = (fa > 0.25) & (md < 1e-3)
    assert float(row["fa_white_matter"]) == pytest.approx(np.median(fa[white]), rel=1e-4)
    assert float(row["md_white_matter"]) == pytest.approx(np.median(md[white]), rel=1e-4)
    assert "sub-02_ses-a" in (out / "derivatives" / "group" / "report.html").read_text()


def _check_entities(out):
    stem = out / "sub-01" / "ses-b" / "dwi" / "sub-01_ses-b_space-orig"
    model = json.loads(Path(f"{stem}_model-DTI_dwimap.json").read_text())
    assert model["SkullStripped"] is True
    assert model["Model"]["Parameters"]["FitMethod"] == "minimum-norm"
    assert model["SpatialReference"] == "bids:raw:sub-01/ses-b/dwi/sub-01_ses-b_dwi.nii.gz"
    assert json.loads(Path(f"{stem}_desc-brain_mask.json").read_text())["Type"] == "Brain"
    assert (out / ".bidsignore").read_text().split() == ["*_dwimap.*"]
    description = json.loads((out / "dataset_description.json").read_text())
    assert description["DatasetType"] == "derivative"
    assert (out / description["DatasetLinks"]["raw"]).resolve() == (out.parent / "raw").resolve()
    assert description["License"] == "CC0"


def test_a_bad_scan_that_was_taken_out_of_the_dataset_is_not_missed(raw, tmp_path, program):
    out = tmp_path / "out"
    assert program("bids", raw, out, "participant", *CLOSED).code == 1
    shutil.rmtree(raw / "sub-03")
    assert program("bids", raw, out, "participant", *CLOSED, "--participant-label", "01").code == 0
    assert program("bids", raw, out, "group").code == 1, "nobody has looked at the whole dataset since"
    assert program("bids", raw, out, "participant", *CLOSED).code == 0
    assert program("bids", raw, out, "group").code == 0
    assert "sub-03_ses-a" not in states(out)


def test_labels_follow_the_option_as_bids_apps_write_them(raw, tmp_path, program):
    out = tmp_path / "out"
    assert (
        program(
            "bids", raw, out, "participant", *CLOSED, "--participant-label", "02", "sub-01", "--session-label", "a"
        ).code
        == 0
    )
    found = sorted(path.name for path in out.rglob("*_param-tensor_dwimap.nii.gz"))
    assert [name.partition("_space")[0] for name in found] == ["sub-01_ses-a", "sub-02_ses-a"]


def test_the_2_mm_grid_says_its_resolution(raw, tmp_path, program):
    options = ("--participant_label", "02", "--grid", "2mm")
    assert program("bids", raw, tmp_path / "out", "participant", *CLOSED, *options).code == 0
    stem = tmp_path / "out" / "sub-02" / "ses-a" / "dwi" / "sub-02_ses-a_space-orig_res-2mm"
    assert "2mm" in json.loads(Path(f"{stem}_model-DTI_param-FA_dwimap.json").read_text())["Resolution"]
    assert problems(tmp_path / "out") == set()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("{raw}", "{raw}", "participant"), "holds a BIDS dataset that tensorldm did not make (three heads)"),
        (("{raw}", "{out}", "session"), "LEVEL is 'session'; give one of participant, group"),
        (("{raw}", "{out}", "participant", "01"), "'01' is one word too many"),
        (("{raw}", "{out}", "group"), "no reconstruction in it. Run the participant level first"),
        (("{out}", "{out}", "participant"), "there is no such folder. Give the dataset's folder"),
        (("{raw}/sub-01", "{out}", "participant"), "no dataset_description.json in it"),
        (("{raw}", "{out}", "participant", "--workers", "2", "--scheduler", "tcp://a:1"), "give one of the two"),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence_and_nothing_is_written(raw, tmp_path, program, arguments, words):
    before = sorted(raw.rglob("*"))
    answer = program("bids", *(each.format(raw=raw, out=tmp_path / "out") for each in arguments))
    assert answer.code == 2
    assert words in answer.err
    assert "Traceback" not in answer.err
    assert sorted(raw.rglob("*")) == before
    assert not (tmp_path / "out").exists()


def test_when_every_subject_is_bad_the_exit_code_says_so(raw, tmp_path, program):
    answer = program("bids", raw, tmp_path / "out", "participant", *CLOSED, "--participant-label", "03")
    assert answer.code == 2
    answer = program("bids", raw, tmp_path / "out", "group")
    assert (answer.code, "no reconstruction in it" in answer.err, "no direction" in answer.err) == (2, True, True)
