"""TractSeg through a stand-in: what it is given, what it is asked, what becomes of its answers and its errors."""

import json
import os
import sys
from pathlib import Path

import nibabel
import numpy as np
import pytest

from tensorldm.errors import DataWarning, ToolError
from tensorldm.imaging.volume import Space
from tensorldm.tracts.bundle_masks import read_bundle
from tensorldm.tracts.engine import TensorField
from tensorldm.tracts.tractseg import TRACTSEG, asks_for_tractseg, need_tractseg, segment_bundles, tensor_peaks

WORLD = np.array([0.6, -0.64, 0.48])
"""Where the fibres run, in the world's axes; no two components are alike."""
STAND_IN = """#!{python}
import sys, pathlib
words = sys.argv[1:]
with open({log!r}, "a") as log:
    log.write(" ".join(words) + "\\n")
if words == ["--version"]:
    print("2.9"); sys.exit()
import nibabel, numpy as np
options = dict(zip(words[::2], words[1::2]))
image = nibabel.load(options["-i"])
if image.shape[3] != 9:
    print("\\033[91mERROR\\033[0m: Input image must be a peak image (4D with [x,y,z,9])."); sys.exit()
inside = (np.asarray(image.dataobj)[..., :3] ** 2).sum(axis=-1) > 0
if options["--output_type"] == "tract_segmentation":
    masks = {{"bundle_segmentations/CST_left": inside, "bundle_segmentations/CA": inside & False}}
else:
    half = np.arange(image.shape[2]) < image.shape[2] // 2
    masks = {{"endings_segmentations/CST_left_b": inside & half, "endings_segmentations/CST_left_e": inside & ~half}}
for name, mask in masks.items():
    path = pathlib.Path(options["-o"]) / (name + ".nii.gz")
    path.parent.mkdir(parents=True, exist_ok=True)
    nibabel.save(nibabel.Nifti1Image(mask.astype(np.uint8), image.affine), path)
"""


@pytest.fixture
def pretend(tmp_path, monkeypatch):
    """A TractSeg that does what the test says, first on the path; gives the file of what it was asked."""
    log = tmp_path / "asked"

    def make(script=None):
        program = tmp_path / "bin" / "TractSeg"
        program.parent.mkdir(exist_ok=True)
        program.write_text(script or STAND_IN.format(python=sys.executable, log=str(log)))
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}/bin{os.pathsep}/usr/bin")
        return log

    return make


def a_field(codes="RAS", voxel=(2.0, 2.0, 2.0), anisotropy=1.0):
    """Fibres along WORLD in a block, stored in any orientation: the same head whatever the array's order."""
    ras = nibabel.Nifti1Image(np.zeros((8, 10, 12), np.float32), np.diag([*voxel, 1.0]))
    start = nibabel.orientations.io_orientation(ras.affine)
    turn = nibabel.orientations.ornt_transform(start, nibabel.orientations.axcodes2ornt(tuple(codes)))
    image = ras.as_reoriented(turn)
    space = Space(image.shape, image.affine)
    axes = image.affine[:3, :3] / np.linalg.norm(image.affine[:3, :3], axis=0)
    along = axes.T @ WORLD  # in image axes
    tensor = 3e-4 * np.eye(3) + anisotropy * 1.4e-3 * np.outer(along, along)
    packed = np.zeros((*space.shape, 6), dtype=np.float32)
    packed[...] = tensor[[0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]]
    mask = np.zeros(space.shape, dtype=bool)
    mask[2:-2, 2:-2, 2:-2] = True
    return TensorField(packed, mask, space)


def places(mask, space):
    """The voxels of a mask by where they are in the world."""
    world = np.argwhere(mask) @ space.affine[:3, :3].T + space.affine[:3, 3]
    return {tuple(place) for place in world.round(3)}


@pytest.mark.parametrize("codes", ["RAS", "LAS", "LPI", "ASR", "SLP"])
def test_tractseg_gets_voxels_in_ras_order_and_the_direction_that_the_fibres_have_in_the_world(codes):
    peaks = tensor_peaks(a_field(codes))
    assert nibabel.aff2axcodes(peaks.space.affine) == ("R", "A", "S")
    inside = np.abs(peaks.data).sum(axis=-1) > 0
    first = peaks.data[inside][:, :3]
    length = np.linalg.norm(first, axis=1)
    assert np.allclose(np.abs(first @ WORLD), length, rtol=1e-4)
    values = np.array([1.7e-3, 3e-4, 3e-4])  # FA of the tensor, worked out anew
    anisotropy = np.sqrt(1.5 * ((values - values.mean()) ** 2).sum() / (values**2).sum())
    assert np.allclose(length, anisotropy, rtol=1e-3)
    assert not peaks.data[..., 3:].any()


def test_masks_and_endings_lie_where_the_fibres_are_and_are_read_as_a_folder_of_bundles(pretend, tmp_path):
    pretend()
    field = a_field("LPI")
    folder = segment_bundles(field, tmp_path / "masks", program=need_tractseg(), tell=lambda _: None)
    bundle = read_bundle(folder, "CST_left")
    assert bundle.endings is not None
    assert places(bundle.inside.mask, bundle.inside.space) == places(field.mask, field.space)
    assert not (bundle.endings[0].mask & bundle.endings[1].mask).any()


def test_it_is_asked_for_tracts_then_endings_and_only_once_for_the_same_peaks(pretend, tmp_path, caplog):
    log, heard = pretend(), []
    program = need_tractseg()
    with caplog.at_level("INFO"):
        folder = segment_bundles(a_field(), tmp_path / "masks", program=program, tell=heard.append)
    asked = [line.split() for line in log.read_text().splitlines() if line != "--version"]
    assert [words[-2:] for words in asked] == [
        ["--output_type", "tract_segmentation"],
        ["--output_type", "endings_segmentation"],
    ]
    assert "--output_type tract_segmentation" in caplog.text
    assert heard == ["TractSeg: tract segmentation", "TractSeg: endings segmentation"]
    segment_bundles(a_field(), folder, program=program, tell=heard.append)
    assert len(heard) == 2
    segment_bundles(a_field(anisotropy=0.5), folder, program=program, tell=heard.append)
    assert len(heard) == 4
    notes = json.loads((folder / "tractseg.json").read_text())
    assert notes["Program"] == "TractSeg 2.9"
    assert "--output_type endings_segmentation" in notes["Commands"][1]


def test_a_bundle_of_which_it_finds_nothing_has_no_mask_and_is_named(pretend, tmp_path):
    pretend()
    folder = segment_bundles(a_field(), tmp_path / "masks", program=need_tractseg(), tell=lambda _: None)
    assert [path.name for path in (folder / "bundle_segmentations").iterdir()] == ["CST_left.nii.gz"]
    assert json.loads((folder / "tractseg.json").read_text())["NothingFoundOf"] == ["CA"]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("printf '\\033[91mERROR\\033[0m: Input image must be a peak image.\\n'", "Input image must be a peak image"),
        ("echo Traceback; echo 'RuntimeError: no weights' >&2; exit 1", "RuntimeError: no weights"),
        ("exit 3", "exit code 3, no masks"),
    ],
)
def test_its_errors_are_a_sentence_even_with_exit_code_0_and_leave_nothing(pretend, tmp_path, script, words):
    pretend(f'#!/bin/sh\nif [ "$1" = --version ]; then echo 2.9; exit; fi\n{script}\n')
    with pytest.raises(ToolError, match=rf"^TractSeg failed: {words}\. Install TractSeg"):
        segment_bundles(a_field(), tmp_path / "out" / "masks", program=need_tractseg(), tell=lambda _: None)
    assert list((tmp_path / "out").iterdir()) == []


def test_a_failed_run_leaves_the_masks_of_an_earlier_one(pretend, tmp_path):
    pretend()
    folder = segment_bundles(a_field(), tmp_path / "masks", program=need_tractseg(), tell=lambda _: None)
    before = sorted(path.name for path in folder.rglob("*"))
    pretend('#!/bin/sh\nif [ "$1" = --version ]; then echo 2.9; exit; fi\nexit 1\n')
    with pytest.raises(ToolError):
        segment_bundles(a_field(anisotropy=0.5), folder, program=need_tractseg(), tell=lambda _: None)
    assert sorted(path.name for path in folder.rglob("*")) == before


def test_without_tractseg_and_with_an_old_one_the_user_is_told(pretend, tmp_path, monkeypatch):
    pretend("#!/bin/sh\necho TractSeg 1.2\n")
    with pytest.raises(ToolError, match=r"version 1\.2 is too old"):
        need_tractseg()
    pretend("#!/bin/sh\necho hello\n")
    with pytest.raises(ToolError, match="does not say which version"):
        need_tractseg()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolError, match=r"TractSeg is not on the path. Install TractSeg .* or give a folder"):
        need_tractseg()


def test_voxels_that_are_not_isotropic_are_warned_of(pretend, tmp_path):
    pretend()
    field = a_field(voxel=(1.7, 1.7, 5.0))
    with pytest.warns(DataWarning, match=r"isotropic voxels, these are 1\.7 × 1\.7 × 5 mm"):
        segment_bundles(field, tmp_path / "masks", program=need_tractseg(), tell=lambda _: None)


def test_the_word_means_the_program_unless_there_is_a_folder_of_that_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert asks_for_tractseg(TRACTSEG)
    assert not asks_for_tractseg(Path("masks"))
    (tmp_path / "tractseg").mkdir()
    assert not asks_for_tractseg(TRACTSEG)
