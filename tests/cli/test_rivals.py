"""Every rival through the same two commands as our own model: learn one coarse head, reconstruct another."""

import json
from pathlib import Path

import nibabel
import numpy as np
import pytest
from typer.testing import CliRunner

from tensorldm.baselines.learned.catalogue import RIVALS
from tensorldm.cli import verbs  # noqa: F401  registers the verbs
from tensorldm.cli.main import app
from tensorldm.errors import ConfigError
from tensorldm.imaging.tensor_files import read_tensor
from tensorldm.training.runlog import read_log

LEAST_FALL = {
    ("unet", 1): 0.1,
    ("unet", 2): 0.1,
    ("pix2pix", 1): 0.6,
    ("cyclegan", 1): 0.4,
    ("resvit", 1): 0.6,
    ("superdti", 1): 0.6,
    ("diffdti", 1): 0.25,
    ("ldm", 1): 0.5,
    ("ldm", 2): 0.3,
    ("coupled", 1): 0.4,
    ("coupled", 2): 0.1,
    ("coupled", 3): 0.2,
}
"""Share by which the mean loss of the last tenth of a stage lies below that of its first tenth."""


def _call(*words: object):
    answer = CliRunner().invoke(app, [str(word) for word in words])
    if answer.exception is not None and not isinstance(answer.exception, SystemExit):
        raise answer.exception
    return answer


@pytest.fixture(scope="module")
def subject(tmp_path_factory) -> Path:
    """A virtual head of another anatomy than the one that is learned."""
    out = tmp_path_factory.mktemp("cohort")
    sets = ["shape=[13,13,13]", "voxel_mm=[8,8,8]", "protocol.b0s=[1,1]", "protocol.directions=[6,6]"]
    _call("cohort", "--out", out, "--subjects", 1, "--split", "test", *(w for s in sets for w in ("--set", s)))
    (series,) = out.glob("sub-*/dwi/*_dwi.nii.gz")
    return series


@pytest.fixture(scope="module")
def middle(subject) -> Path:
    """A mask of 40 mm in the middle of its brain: the grid of 2 mm is cropped around it, and every method is quick."""
    image = nibabel.load(subject)
    inside = np.zeros(image.shape[:3], dtype=np.uint8)
    inside[4:9, 4:9, 4:9] = 1
    path = subject.parent / "middle.nii.gz"
    nibabel.save(nibabel.Nifti1Image(inside, image.affine), path)
    return path


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.mark.slow
@pytest.mark.parametrize("name", RIVALS)
def test_a_rival_learns_in_miniature_and_reconstructs_a_virtual_subject(name, runs, subject, middle, tmp_path):
    run = runs / name
    train = ("train", "--method", name, "--config", "smoke", "--data", "cohort:procedural", "--out", run)
    done = _call(*train, "--set", "hardware.accelerator=cpu")
    assert done.exit_code == 0, done.output
    log = [record for record in read_log(run) if record["event"] == "train"]
    for number in RIVALS[name].stages:
        losses = [record["loss"] for record in log if record["stage"] == number]
        tenth = max(len(losses) // 10, 1)
        first, last = np.mean(losses[:tenth]), np.mean(losses[-tenth:])
        print(f"{name} stage {number}: {first:.3f} -> {last:.3f}, fell by {1 - last / first:.2f}")
        assert last < (1 - LEAST_FALL[name, number]) * first

    bundle = run / f"stage{max(RIVALS[name].stages)}" / "bundle"
    drawing = ("--samples", 2, "--steps", 2) if RIVALS[name].stochastic else ()
    options = ("--model", bundle, "--method", name, "--mask", middle, "--grid", "2mm", "--device", "cpu", *drawing)
    done = _call("reconstruct", subject, "--out", tmp_path, *options)
    assert done.exit_code == 0, done.output
    (path,) = [found for found in tmp_path.rglob("*tensor*.nii.gz") if "desc" not in found.name]
    notes = json.loads(path.with_name(path.name.replace(".nii.gz", ".json")).read_text())
    assert name in json.dumps(notes)
    tensor = read_tensor(path).data
    assert np.isfinite(tensor).all()
    inside = np.abs(tensor).sum(axis=-1) > 0
    assert inside.sum() == pytest.approx(20**3, rel=0.2)
    assert 1e-4 < np.median(tensor[inside][:, :3]) < 3e-3  # a diffusivity between that of a solid and free water's


def test_a_rival_without_its_bundle_is_refused_with_the_command_that_makes_one(subject, tmp_path):
    with pytest.raises(ConfigError, match=r"--method ldm is learned.*--model.*tensorldm train --method ldm"):
        _call("reconstruct", subject, "--out", tmp_path, "--method", "ldm")


def test_an_unknown_method_is_answered_with_the_known_ones(subject, tmp_path):
    with pytest.raises(ConfigError, match=r"--method is 'magic'; give one of tensorldm, minimum-norm.*pix2pix"):
        _call("reconstruct", subject, "--out", tmp_path, "--method", "magic")
    with pytest.raises(ConfigError, match=r"There is no method 'magic'.*pix2pix"):
        _call("train", "--method", "magic", "--data", "cohort:procedural", "--out", tmp_path)


def test_a_stage_that_a_rival_does_not_have_is_refused(tmp_path):
    words = ("--config", "smoke", "--data", "cohort:procedural", "--out", tmp_path / "run", "--stages", 2)
    with pytest.raises(ConfigError, match=r"--stages 2: expected stages of 1 to 1"):
        _call("train", "--method", "pix2pix", *words)
    assert not (tmp_path / "run").exists()


def test_a_dry_run_of_a_rival_shows_what_each_stage_trains(tmp_path):
    words = ("--config", "smoke", "--data", "cohort:procedural", "--out", tmp_path / "run", "--dry-run")
    shown = _call("train", "--method", "cyclegan", *words)
    assert shown.exit_code == 0
    assert "method: cyclegan" in shown.output
    assert "MiB" in shown.output
    assert not (tmp_path / "run").exists()
