"""Tensor images and sidecars: what is written comes back, and what is not said is refused."""

import json

import nibabel
import numpy as np
import pytest

from tensorldm.components import CONVENTIONS
from tensorldm.errors import DataError
from tensorldm.imaging.nifti import write_volume
from tensorldm.imaging.tensor_files import (
    Provenance,
    read_convention,
    read_provenance,
    read_tensor,
    sidecar_path,
    write_tensor,
)
from tensorldm.imaging.volume import Space, Volume


def oblique_affine(*, determinant: int) -> np.ndarray:
    """Voxels of 2 × 2.2 × 2.5 mm, turned about two axes, with a mirror or without."""
    a, b = np.radians(20), np.radians(-35)
    about_z = np.array([[np.cos(a), -np.sin(a), 0], [np.sin(a), np.cos(a), 0], [0, 0, 1]])
    about_x = np.array([[1, 0, 0], [0, np.cos(b), -np.sin(b)], [0, np.sin(b), np.cos(b)]])
    affine = np.eye(4)
    affine[:3, :3] = about_z @ about_x @ np.diag([2.0 * determinant, 2.2, 2.5])
    affine[:3, 3] = [-40, 12, 7]
    return affine


@pytest.fixture(params=[1, -1], ids=["positive determinant", "negative determinant"])
def image(request: pytest.FixtureRequest) -> Volume:
    generator = np.random.default_rng(0)
    roots = generator.normal(scale=0.02, size=(5, 4, 3, 3, 3))
    matrices = roots @ np.swapaxes(roots, -1, -2)
    packed = np.stack([matrices[..., i, j] for i, j in ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))], axis=-1)
    return Volume(packed.astype(np.float32), Space((5, 4, 3), oblique_affine(determinant=request.param)))


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_a_tensor_comes_back_from_every_convention(image, convention, tmp_path):
    write_tensor(tmp_path / "tensor.nii.gz", image.data, space=image.space, convention=convention)
    back = read_tensor(tmp_path / "tensor.nii.gz")
    np.testing.assert_allclose(back.data, image.data, atol=2e-9)
    assert back.space.same_grid(image.space)


def test_the_sidecar_tells_order_frame_units_and_origin(image, tmp_path):
    known = Provenance(method="ols-6", subject="volunteer", mask=tmp_path / "mask.nii.gz", volumes=(0, 3, 5))
    path = tmp_path / "methods" / "tensor.nii.gz"
    write_tensor(path, image.data, space=image.space, convention="fsl", notes={**known.notes_for(path), "Seed": 4})
    note = json.loads(sidecar_path(path).read_text())
    assert note == {
        "TensorConvention": "fsl",
        "ComponentOrder": ["xx", "xy", "xz", "yy", "yz", "zz"],
        "TensorFrame": "fsl",
        "Units": "mm^2/s",
        "Method": "ols-6",
        "Subject": "volunteer",
        "Mask": "../mask.nii.gz",
        "Volumes": [0, 3, 5],
        "Seed": 4,
    }
    back = read_provenance(path)
    assert (back.method, back.subject, back.volumes) == ("ols-6", "volunteer", (0, 3, 5))
    assert back.mask is not None
    assert back.mask.resolve() == (tmp_path / "mask.nii.gz").resolve()


def test_a_five_dimensional_tensor_declares_itself_a_symmetric_matrix(image, tmp_path):
    write_tensor(tmp_path / "tensor.nii", image.data, space=image.space, convention="nifti")
    header = nibabel.load(tmp_path / "tensor.nii").header
    assert header.get_intent("code")[0] == 1005
    assert header.get_data_shape() == (5, 4, 3, 1, 6)


def test_without_a_sidecar_the_convention_must_be_given(image, tmp_path):
    path = tmp_path / "tensor.nii.gz"
    write_tensor(path, image.data, space=image.space, convention="dipy")
    sidecar_path(path).unlink()
    with pytest.raises(DataError, match=r"tensor\.nii\.gz.*--convention mrtrix\|fsl\|dipy\|nifti"):
        read_tensor(path)
    np.testing.assert_allclose(read_tensor(path, convention="dipy").data, image.data, atol=1e-9)


def test_a_default_convention_is_only_for_images_without_a_sidecar(image, tmp_path):
    path = tmp_path / "tensor.nii.gz"
    write_tensor(path, image.data, space=image.space, convention="dipy")
    assert read_convention(path, default="fsl") == "dipy"
    with pytest.raises(DataError, match="no tensor convention 'spm'"):
        read_convention(path, default="spm")
    sidecar_path(path).unlink()
    assert read_convention(path, default="fsl") == "fsl"
    with pytest.raises(DataError, match="no tensor convention 'spm'"):
        read_convention(path, default="spm")


def test_notes_cannot_overrule_how_the_numbers_are_stored(image, tmp_path):
    path = tmp_path / "tensor.nii.gz"
    write_tensor(path, image.data, space=image.space, convention="dipy", notes={"TensorConvention": "fsl"})
    assert read_convention(path) == "dipy"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"Units": "um^2/ms"}, "'Units' is um.*convert it"),
        ({"TensorFrame": "image"}, "'TensorFrame' is image, expected scanner"),
        ({"ComponentOrder": ["xx", "xy", "xz", "yy", "yz", "zz"]}, "'ComponentOrder'.*mend the sidecar"),
        ({"TensorConvention": "spm"}, "no tensor convention 'spm'"),
    ],
)
def test_a_sidecar_that_contradicts_itself_is_refused(image, tmp_path, change, words):
    path = tmp_path / "tensor.nii.gz"
    write_tensor(path, image.data, space=image.space)
    note = json.loads(sidecar_path(path).read_text())
    sidecar_path(path).write_text(json.dumps(note | change))
    with pytest.raises(DataError, match=words):
        read_tensor(path)


@pytest.mark.parametrize("text", ["{", "[1, 2]"])
def test_a_damaged_sidecar_is_named(image, tmp_path, text):
    path = tmp_path / "tensor.nii.gz"
    write_tensor(path, image.data, space=image.space)
    sidecar_path(path).write_text(text)
    with pytest.raises(DataError, match=r"tensor\.json.*Mend it"):
        read_tensor(path)


def test_an_image_of_another_shape_is_refused_by_name(image, tmp_path):
    path = tmp_path / "fa.nii.gz"
    nibabel.save(nibabel.Nifti1Image(image.data[..., :3], image.space.affine), path)
    with pytest.raises(DataError, match=r"fa\.nii\.gz.*shape"):
        read_tensor(path, convention="mrtrix")


def test_writing_where_one_may_not_leaves_nothing(image, tmp_path):
    blocked = tmp_path / "blocked"
    blocked.write_text("a file, not a folder")
    with pytest.raises(DataError, match="blocked"):
        write_tensor(blocked / "tensor.nii.gz", image.data, space=image.space)
    assert [path.name for path in tmp_path.iterdir()] == ["blocked"]


@pytest.mark.parametrize(("num_values", "words"), [(1, "one value"), (4, "4 values")])
def test_a_map_or_a_series_is_told_to_be_no_tensor(image, tmp_path, num_values, words):
    path, values = tmp_path / "fa.nii.gz", image.data[..., :num_values]
    write_volume(path, Volume(values[..., 0] if num_values == 1 else values, image.space))
    with pytest.raises(DataError, match=rf"fa\.nii\.gz: {words} in a voxel, and a tensor has six"):
        read_convention(path)
    with pytest.raises(DataError, match=r"nowhere\.nii\.gz: there is no such file"):
        read_convention(tmp_path / "nowhere.nii.gz")
