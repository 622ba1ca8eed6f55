"""Maps as the browser gets them: at the right place of the world, in the right colours, with the right directions."""

import itertools
import json

import nibabel
import numpy as np
import pytest

from tensorldm.errors import DataError
from tensorldm.imaging.map_files import write_maps
from tensorldm.imaging.nifti import write_volume
from tensorldm.imaging.volume import Space, Volume
from tensorldm.viewer.encoding import world_to_voxel
from tensorldm.viewer.library import Library
from tensorldm.viewer.scene import find_scene

SIGNS = [np.diag([*signs, 1.0]) for signs in itertools.product((1.0, -1.0), repeat=3)]
TURNS = [np.eye(4)[:, [*order, 3]] for order in itertools.permutations(range(3))]
ORIENTATIONS = [turn @ sign for turn in TURNS[::2] for sign in SIGNS[::3]]


def library(*folders, **options):
    return Library(find_scene(folders, **options))


def image(content: bytes) -> nibabel.Nifti1Image:
    return nibabel.Nifti1Image.from_bytes(content)


def at(picture, world):
    i, j, k = np.rint(np.linalg.solve(picture.affine, [*world, 1.0]))[:3].astype(int)
    return np.asarray(picture.dataobj)[i, j, k]


def along(direction) -> np.ndarray:
    """A field of one fibre, in scanner axes, as MRtrix stores it."""
    v = np.asarray(direction, dtype=float) / np.linalg.norm(direction)
    full = 0.3e-3 * np.eye(3) + 1.4e-3 * np.outer(v, v)
    return full[[0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]]


def write_fibre(folder, direction, orientation):
    """The fibre on a grid stored in this orientation; the world sees the same fibre."""
    affine = orientation @ np.diag([2.0, 2.0, 2.5, 1.0])
    folder.mkdir(parents=True)
    stored = np.broadcast_to(along(direction).astype(np.float32), (4, 5, 6, 6))
    nibabel.save(nibabel.Nifti1Image(np.ascontiguousarray(stored), affine), folder / "tensor.nii.gz")
    note = {"TensorConvention": "mrtrix", "Method": "m"}
    (folder / "tensor.json").write_text(json.dumps(note))


@pytest.mark.parametrize("orientation", ORIENTATIONS)
@pytest.mark.parametrize(("direction", "colour"), [((1, 0, 0), "R"), ((0, 1, 0), "G"), ((0, 0, 1), "B")])
def test_a_left_right_fibre_is_red_however_the_array_is_stored(tmp_path, orientation, direction, colour):
    write_fibre(tmp_path / "fibre", direction, orientation)
    pixels = np.asarray(image(library(tmp_path).volume("r0", "colour_fa")).dataobj)
    others = [pixels[name] for name in "RGB" if name != colour]
    assert pixels[colour].min() > 180
    assert max(other.max() for other in others) <= 1


@pytest.mark.parametrize("orientation", ORIENTATIONS)
def test_the_browser_always_gets_voxels_in_ras_order(tmp_path, orientation):
    write_fibre(tmp_path / "fibre", (1, 1, 0), orientation)
    assert nibabel.aff2axcodes(image(library(tmp_path).volume("r0", "fa")).affine) == ("R", "A", "S")


def test_maps_are_those_that_reconstruct_writes_at_the_same_place_of_the_world(tmp_path, make_result, tensors):
    packed = tensors()
    tensor = make_result(tmp_path / "m", packed)
    affine = nibabel.load(tensor).affine
    write_maps(
        tmp_path / "written", packed, space=Space(packed.shape[:3], affine), mask=np.ones(packed.shape[:3], bool)
    )
    shown = library(tmp_path / "m")
    for name, factor in {"fa": 1, "md": 1e3, "ad": 1e3, "rd": 1e3}.items():
        written, sent = nibabel.load(tmp_path / "written" / f"{name}.nii.gz"), image(shown.volume("r0", name))
        for voxel in ((0, 0, 0), (4, 5, 6), (1, 2, 3)):
            world = (affine @ [*voxel, 1])[:3]
            assert at(sent, world) == pytest.approx(at(written, world) * factor, rel=1e-5)


def test_lines_hold_the_direction_to_two_degrees(tmp_path, make_result, tensors):
    tensor = make_result(tmp_path, tensors())
    sent = np.asarray(image(library(tmp_path).volume("r0", "lines")).dataobj)
    signs = np.stack([(sent["A"] >> bit & 1) * 2.0 - 1 for bit in range(3)], axis=-1)
    decoded = np.stack([sent[name] for name in "RGB"], axis=-1) * signs
    drawn = sent["A"] >= 248
    # By another library, on the file itself: MRtrix's components are in scanner axes.
    six = np.asarray(nibabel.as_closest_canonical(nibabel.load(tensor)).dataobj, dtype=float)
    full = six[..., [0, 3, 4, 3, 1, 5, 4, 5, 2]].reshape(*six.shape[:3], 3, 3)
    v1 = np.linalg.eigh(full)[1][..., -1]
    cosine = np.abs((decoded * v1).sum(-1)) / np.linalg.norm(decoded, axis=-1).clip(1e-9)
    assert drawn.mean() > 0.9
    assert np.degrees(np.arccos(cosine[drawn].clip(max=1))).max() < 2


def test_the_shader_gets_the_matrix_from_millimetres_to_voxels(tmp_path, make_result, tensors):
    make_result(tmp_path, tensors())
    shown = library(tmp_path)
    affine = image(shown.volume("r0", "fa")).affine
    told = np.array(shown.describe()["shown"][0]["worldToVoxel"])
    assert told @ affine[:3, :3] == pytest.approx(np.eye(3), abs=1e-5)
    assert world_to_voxel(Space((1, 1, 1), np.diag([2.0, 2.0, 4.0, 1.0]))) == pytest.approx(np.diag([0.5, 0.5, 0.25]))


def test_outside_the_brain_everything_is_zero(tmp_path, make_result, tensors):
    mask = np.zeros((5, 6, 7), dtype=bool)
    mask[2, 3, 4] = True
    make_result(tmp_path, tensors(), mask=mask)
    shown = library(tmp_path)
    assert np.count_nonzero(np.asarray(image(shown.volume("r0", "fa")).dataobj)) == 1
    assert np.count_nonzero(np.asarray(image(shown.volume("r0", "lines")).dataobj)["A"]) == 1


def test_the_width_of_an_interval_is_its_upper_minus_its_lower_end(tmp_path, make_result, tensors):
    make_result(tmp_path, tensors())
    space = Space((5, 6, 7), nibabel.load(tmp_path / "tensor.nii.gz").affine)
    for name, value in {"fa_low": 0.25, "fa_high": 0.75}.items():
        write_volume(tmp_path / f"{name}.nii.gz", Volume(np.full((5, 6, 7), value, dtype=np.float32), space))
    shown = library(tmp_path)
    assert "fa_width" in shown.describe()["shown"][0]["maps"]
    assert "md_width" not in shown.describe()["shown"][0]["maps"]
    assert np.asarray(image(shown.volume("r0", "fa_width")).dataobj) == pytest.approx(0.5)


def test_errors_against_the_reference_are_zero_for_the_reference_itself(tmp_path, make_result, tensors):
    packed = tensors()
    make_result(tmp_path / "model", packed)
    make_result(tmp_path / "reference", packed)
    shown = library(tmp_path)
    for name in ("v1_angle", "fa_error", "md_error"):
        assert np.abs(np.asarray(image(shown.volume("r0", name)).dataobj)).max() < 1e-3


def test_turned_fibres_are_as_many_degrees_away_as_they_were_turned(tmp_path):
    write_fibre(tmp_path / "model", (1, np.tan(np.radians(25)), 0), np.eye(4))
    write_fibre(tmp_path / "reference", (1, 0, 0), np.eye(4))
    angles = np.asarray(image(library(tmp_path).volume("r0", "v1_angle")).dataobj)
    assert angles == pytest.approx(25, abs=0.01)


def test_a_reference_on_another_grid_gives_no_error_maps(tmp_path, make_result, tensors):
    make_result(tmp_path / "model", tensors())
    make_result(tmp_path / "reference", tensors((4, 4, 4)))
    shown = library(tmp_path)
    assert "fa_error" not in shown.describe()["shown"][0]["maps"]
    with pytest.raises(DataError, match="no reference on its grid"):
        shown.volume("r0", "fa_error")


def test_what_is_not_known_is_not_there(tmp_path, make_result, tensors):
    make_result(tmp_path, tensors())
    shown = library(tmp_path)
    assert shown.volume("r1", "fa") is None
    assert shown.volume("r0", "../tensor") is None


def test_a_scan_that_is_reconstructed_anew_is_read_anew(tmp_path, make_result, tensors):
    make_result(tmp_path, tensors())
    shown = library(tmp_path)
    before = shown.volume("r0", "fa")
    make_result(tmp_path, tensors(seed=5))
    assert shown.volume("r0", "fa") != before


def test_the_page_is_told_no_path(tmp_path, make_result, tensors):
    make_result(tmp_path / "secret-folder", tensors(), subject="one")
    assert "secret-folder" not in json.dumps(library(tmp_path).describe())
