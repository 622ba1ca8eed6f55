"""Whatever is wrong, through ``tensorldm reconstruct``: one sentence, exit code 2, nothing half-written."""

import errno
import runpy
import signal
from dataclasses import replace
from pathlib import Path

import nibabel
import numpy as np
import pytest
import torch

from tensorldm.imaging import atomic
from tensorldm.reconstruct import model_engine, outputs

BROKEN = runpy.run_path(str(Path(__file__).parents[2] / "integration" / "prepare" / "test_bad_input.py"))["BROKEN"]
HARMLESS = {"directions on a cone", "gradient field of another grid"}
"""No reference tensor is fitted here, and no gradient field is used."""
OTHER_WORDS = {"wrong shell": ["data.nii.gz", "b=1700", "outside 700 to 1600", "--force"]}


def left_behind(folder):
    return [path for path in folder.rglob("*") if path.is_file() or path.name.endswith(".part")]


@pytest.mark.parametrize("case", [case for case in BROKEN if case not in HARMLESS])
def test_a_broken_scan_is_refused_with_its_sentence(case, scan, tmp_path, program):
    spoil, words = BROKEN[case]
    tree = scan.write_hcp(tmp_path / "subject")
    spoil(tree / "T1w" / "Diffusion")
    answer = program("reconstruct", tree, "-o", tmp_path / "out")
    assert answer.code == 2, answer.out
    (line,) = [line for line in answer.err.splitlines() if line.startswith("error:")]
    assert "Traceback" not in answer.err
    for word in OTHER_WORDS.get(case, words):
        assert word in line
    assert not (tmp_path / "out").exists()


def test_headers_and_gradients_are_checked_before_the_model_is_loaded(scan, bundle, tmp_path, program):
    tree = scan.write_hcp(tmp_path / "subject")
    (tree / "T1w" / "Diffusion" / "bvals").unlink()
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "bundle.json").write_bytes((bundle / "bundle.json").read_bytes())  # and no weights
    answer = program("reconstruct", tree, "-o", tmp_path / "out", "--model", tmp_path / "model")
    assert "bvals" in answer.err
    assert "weights" not in answer.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--grid", "1mm"), "--grid is '1mm'; give one of native, 2mm"),
        (("--convention", "camino"), "--convention is 'camino'"),
        (("--sampler", "euler"), "--sampler is 'euler'"),
        (("--samples", "0"), "--samples is 0"),
        (("--seed", "-1"), "Invalid value for '--seed'"),
        (("--samples", "4"), "'minimum-norm' always gives the same tensor"),
        (("--method", "magic"), "--method is 'magic'; give one of tensorldm, minimum-norm, ade, ade-literal"),
        (("--method", "ade", "--model", "folder"), "folder/bundle.json: no model there"),
        (("--method", "ade-literal", "--directions", "all"), "three directions nearest to the axes"),
        (("--model", "nowhere"), "no model there"),
        (("--device", "tpu"), "--device is 'tpu'"),
        (("--bval", "x.bval"), "only one of bval and bvec"),
    ],
)
def test_settings_that_do_not_fit_are_refused(options, words, hcp, tmp_path, program):
    answer = program("reconstruct", hcp, "-o", tmp_path / "out", *options)
    assert answer.code == 2
    assert words in answer.err
    assert not (tmp_path / "out").exists()


def test_a_path_that_is_not_there_is_told_whatever_it_should_have_been(tmp_path, program):
    answer = program("reconstruct", tmp_path / "patient 7", "-o", tmp_path / "out")
    assert (answer.code, "patient 7: there is no such file or folder" in answer.err) == (2, True)


def test_a_model_named_by_the_environment_that_is_not_there_is_told_with_the_variable(
    hcp, tmp_path, program, monkeypatch
):
    monkeypatch.setenv("TENSORLDM_MODEL", str(tmp_path / "gone"))
    answer = program("reconstruct", hcp, "-o", tmp_path / "out")
    assert (answer.code, f"TENSORLDM_MODEL is {tmp_path / 'gone'}" in answer.err) == (2, True)


@pytest.mark.skipif(torch.cuda.is_available(), reason="here is a GPU")
def test_a_gpu_that_is_not_there_is_told(hcp, tmp_path, program):
    answer = program("reconstruct", hcp, "-o", tmp_path / "out", "--device", "cuda")
    assert (answer.code, "--device cuda: no such device" in answer.err) == (2, True)


def test_named_files_for_many_scans_are_refused(scan, tmp_path, program):
    one, two = (scan.write_files(tmp_path / name / "dwi.nii.gz") for name in ("a", "b"))
    answer = program("reconstruct", one, two, "-o", tmp_path / "out", "--mask", tmp_path / "mask.nii.gz")
    assert (answer.code, "2 scans" in answer.err) == (2, True)


def test_weighted_volumes_as_bright_as_the_b0_are_refused_unless_forced(scan, tmp_path, program):
    order = [1, 0, *range(2, scan.data.shape[-1])]
    tree = replace(scan, data=np.concatenate([scan.data[..., 2:3]] * 13, axis=-1)[..., order]).write_hcp(tmp_path / "s")
    answer = program("reconstruct", tree, "-o", tmp_path / "out")
    assert (answer.code, "as bright as the b=0" in answer.err) == (2, True)
    answer = program("reconstruct", tree, "-o", tmp_path / "out", "--force")
    assert answer.code == 0, answer.err
    assert "is no diffusion" in " ".join(answer.out.split())


def test_a_far_shell_is_refused_and_goes_on_by_force_with_a_warning(scan, tmp_path, program):
    series = replace(scan, bvals=np.where(scan.bvals > 50, 2000.0, scan.bvals)).write_hcp(tmp_path / "s")
    assert program("reconstruct", series, "-o", tmp_path / "out").code == 2
    answer = program("reconstruct", series, "-o", tmp_path / "out", "--force")
    assert answer.code == 0
    assert "b=2000 s/mm² is outside 700 to 1600" in " ".join(answer.out.split())


def test_raw_tensors_are_not_interpolated_but_kept_at_2_mm(scan, tmp_path, program, bundle):
    stretched = replace(scan, affine=scan.affine @ np.diag([1.25, 1.25, 1.5, 1]))
    path = stretched.write_hcp(tmp_path / "subject")
    options = ("--model", bundle, "--samples", 1, "--steps", 2, "--spd", "raw")
    answer = program("reconstruct", path, "-o", tmp_path / "out", *options)
    assert (answer.code, "Give --grid 2mm" in answer.err) == (2, True)
    assert program("reconstruct", path, "-o", tmp_path / "out", *options, "--grid", "2mm").code == 0
    lowest, touched = (nibabel.load(tmp_path / "out" / f"{name}.nii.gz").get_fdata() for name in ("l3", "spd_touched"))
    assert (lowest < 0).any()
    assert (lowest[touched == 0] >= 0).all()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_in_the_middle_of_writing_nothing_is_left(number, hcp, tmp_path, program, monkeypatch):
    write, count = outputs.write_volume, iter(range(100))

    def interrupted(*arguments, **options):
        if next(count) == 5:
            signal.raise_signal(number)
        write(*arguments, **options)

    monkeypatch.setattr(outputs, "write_volume", interrupted)
    answer = program("reconstruct", hcp, "-o", tmp_path / "deep" / "out")
    assert answer.code == 130
    assert not left_behind(tmp_path / "deep")
    assert not list(tmp_path.glob(".*"))


def test_an_earlier_result_survives_an_interruption(hcp, tmp_path, program, monkeypatch):
    program("reconstruct", hcp, "-o", tmp_path / "out")
    before = {path: path.read_bytes() for path in left_behind(tmp_path / "out")}

    def interrupted(*_arguments, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr(outputs, "write_volume", interrupted)
    assert program("reconstruct", hcp, "-o", tmp_path / "out", "--method", "ade").code == 130
    assert {path: path.read_bytes() for path in left_behind(tmp_path / "out")} == before


def test_a_full_disk_is_told_and_leaves_nothing(hcp, tmp_path, program, monkeypatch):
    def full(_handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(atomic.os, "fsync", full)
    answer = program("reconstruct", hcp, "-o", tmp_path / "out")
    assert (answer.code, "No space left on device" in answer.err) == (2, True)
    assert not left_behind(tmp_path / "out")


def test_a_folder_that_cannot_be_written_is_told_before_any_work(hcp, tmp_path, program, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    answer = program("reconstruct", hcp, "-o", tmp_path / "file")
    assert (answer.code, "a file of this name is in the way" in answer.err) == (2, True)
    (tmp_path / "locked").mkdir()
    # A superuser may write anywhere, so the system's answer is given here.
    monkeypatch.setattr(outputs, "may_write", lambda folder: folder.name != "locked")
    answer = program("reconstruct", hcp, "-o", tmp_path / "locked")
    assert (answer.code, "Choose a folder that you may write to" in answer.err) == (2, True)
    assert not left_behind(tmp_path / "locked")


def test_out_of_gpu_memory_goes_on_in_smaller_pieces_with_the_same_result(hcp, tmp_path, program, bundle, monkeypatch):
    options = ("--model", bundle, "--samples", 3, "--steps", 2, "--device", "cpu")
    assert program("reconstruct", hcp, "-o", tmp_path / "enough", *options).code == 0
    draw = model_engine.ModelEngine._draw_all
    tried = []

    def small_memory(self, scan, at_once):
        tried.append(at_once)
        if at_once > 1:
            raise torch.OutOfMemoryError
        return draw(self, scan, at_once)

    monkeypatch.setattr(model_engine.ModelEngine, "_draw_all", small_memory)
    monkeypatch.setattr(model_engine, "samples_at_once", lambda device, wanted: wanted)
    answer = program("reconstruct", hcp, "-o", tmp_path / "little", *options)
    assert answer.code == 0
    assert tried == [3, 2, 1]
    assert "Out of GPU memory with 3 samples at once" in " ".join(answer.out.split())
    enough, little = (tmp_path / name / "tensor.nii.gz" for name in ("enough", "little"))
    assert enough.read_bytes() == little.read_bytes()
