import gzip
import warnings

import nibabel
import numpy as np
import pytest

from tensorldm.errors import DataError, DataWarning
from tensorldm.imaging.nifti import (
    check_finite,
    check_not_empty,
    read_header,
    read_mask,
    read_volume,
    write_mask,
    write_volume,
)
from tensorldm.imaging.volume import Space, Volume

VALUES = np.arange(4 * 3 * 2 * 5, dtype=np.int16).reshape(4, 3, 2, 5)


def save(path, values=VALUES, affine=None, **fields):
    image = nibabel.Nifti1Image(values, np.diag([-2.0, 2, 2, 1]) if affine is None else affine)
    for key, value in fields.items():
        image.header[key] = value
    nibabel.save(image, path)
    return path


def damage(path, **fields):
    """Overwrite header fields of an uncompressed file behind nibabel's back."""
    raw = bytearray(path.read_bytes())
    header = np.ndarray((), nibabel.Nifti1Header.template_dtype, buffer=raw)
    for key, value in fields.items():
        header[key] = value
    path.write_bytes(raw)
    return path


@pytest.mark.parametrize("packed", [False, True])
def test_slope_and_intercept_are_applied(tmp_path, packed):
    path = damage(save(tmp_path / "x.nii"), scl_slope=0.5, scl_inter=-3)
    if packed:
        (tmp_path / "x.nii.gz").write_bytes(gzip.compress(path.read_bytes()))
        path = tmp_path / "x.nii.gz"
    assert read_volume(path).data.dtype == np.float32
    np.testing.assert_allclose(read_volume(path).data, VALUES * 0.5 - 3, rtol=1e-6)
    np.testing.assert_allclose(read_volume(path, volumes=[4]).data, VALUES[..., [4]] * 0.5 - 3, rtol=1e-6)


def test_chosen_volumes_come_in_the_order_asked_for(tmp_path):
    path = save(tmp_path / "x.nii.gz")
    np.testing.assert_array_equal(read_volume(path, volumes=[3, 0]).data, VALUES[..., [3, 0]])


def test_trailing_axes_of_one_are_dropped(tmp_path):
    series = save(tmp_path / "x.nii.gz", VALUES[..., None])
    single = save(tmp_path / "y.nii.gz", VALUES[..., :1])
    assert read_volume(series).data.shape == (4, 3, 2, 5)
    np.testing.assert_array_equal(read_volume(series, volumes=[2]).data, VALUES[..., [2]])
    assert read_header(single).shape == (4, 3, 2)


def test_a_nifti_2_file_is_read(tmp_path):
    nibabel.save(nibabel.Nifti2Image(VALUES, np.eye(4)), tmp_path / "x.nii.gz")
    np.testing.assert_array_equal(read_volume(tmp_path / "x.nii.gz").data, VALUES)


def test_the_sform_is_used_before_the_qform_and_both_are_kept(tmp_path, oblique):
    scanner, standard = oblique().affine, np.diag([-2.0, 2, 2, 1])
    image = nibabel.Nifti1Image(VALUES, standard)
    image.set_sform(standard, 4)
    image.set_qform(scanner, 1)
    image.to_filename(tmp_path / "x.nii.gz")
    volume = read_volume(tmp_path / "x.nii.gz")
    np.testing.assert_allclose(volume.space.affine, standard)
    write_volume(tmp_path / "y.nii.gz", volume)
    written = nibabel.load(tmp_path / "y.nii.gz")
    np.testing.assert_allclose(written.get_sform(), standard)
    np.testing.assert_allclose(written.get_qform(), scanner, atol=1e-5)
    assert (int(written.header["sform_code"]), int(written.header["qform_code"])) == (4, 1)


def test_the_qform_is_used_where_there_is_no_sform(tmp_path, oblique):
    image = nibabel.Nifti1Image(VALUES, None)
    image.set_qform(oblique().affine, 1)
    image.set_sform(None, 0)
    image.to_filename(tmp_path / "x.nii.gz")
    space = read_header(tmp_path / "x.nii.gz").space
    np.testing.assert_allclose(space.affine, oblique().affine, atol=1e-5)
    assert (space.sform_code, space.qform_code) == (0, 1)


def test_a_file_of_unknown_orientation_is_read_with_a_warning_and_written_with_what_was_assumed(tmp_path):
    image = nibabel.Nifti1Image(VALUES, None)
    image.set_sform(None, 0)
    image.set_qform(None, 0)
    image.to_filename(tmp_path / "x.nii.gz")
    with pytest.warns(DataWarning, match=r"x\.nii\.gz: neither sform nor qform"):
        volume = read_volume(tmp_path / "x.nii.gz")
    write_volume(tmp_path / "y.nii.gz", volume)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_header(tmp_path / "y.nii.gz").space.same_grid(volume.space)


def test_a_sheared_affine_is_told(tmp_path):
    affine = np.eye(4)
    affine[0, 1] = 0.1
    image = nibabel.Nifti1Image(VALUES, None)
    image.set_sform(affine, 1)
    image.to_filename(tmp_path / "x.nii.gz")
    with pytest.warns(DataWarning, match=r"5\.7° from perpendicular"):
        read_header(tmp_path / "x.nii.gz")


@pytest.mark.parametrize("suffix", [".nii", ".nii.gz"])
def test_what_is_written_is_read_back_and_gives_the_same_bytes_each_time(tmp_path, oblique, suffix):
    volume = Volume(VALUES.astype(np.float32) / 7, oblique((4, 3, 2)))
    for name in ("a", "b"):
        write_volume(tmp_path / f"{name}{suffix}", volume)
    back = read_volume(tmp_path / f"a{suffix}")
    np.testing.assert_array_equal(back.data, volume.data)
    assert back.space.same_grid(volume.space)
    assert (tmp_path / f"a{suffix}").read_bytes() == (tmp_path / f"b{suffix}").read_bytes()


def test_a_mask_is_written_as_bytes_and_read_back(tmp_path, oblique):
    mask = np.random.default_rng(0).random((4, 3, 2)) > 0.5
    write_mask(tmp_path / "mask.nii.gz", mask, space=oblique((4, 3, 2)))
    assert nibabel.load(tmp_path / "mask.nii.gz").get_data_dtype() == np.uint8
    np.testing.assert_array_equal(read_mask(tmp_path / "mask.nii.gz")[0], mask)


def test_a_gzip_that_ends_too_soon_is_told(tmp_path):
    values = np.random.default_rng(0).integers(0, 30000, (30, 30, 30, 2)).astype(np.int16)
    path = save(tmp_path / "x.nii.gz", values)
    path.write_bytes(path.read_bytes()[:-2000])
    assert read_header(path).shape == (30, 30, 30, 2)
    with pytest.raises(DataError, match=r"x\.nii\.gz: the voxels cannot be read, the file may be cut short"):
        read_volume(path)


def test_an_uncompressed_file_that_ends_too_soon_is_told_before_it_is_read(tmp_path):
    path = save(tmp_path / "x.nii")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"more than the file can hold"):
        read_header(path)


@pytest.mark.parametrize(
    ("content", "name"),
    [(b"", "x.nii"), (b"", "x.nii.gz"), (b"not an image" * 50, "x.nii"), (b"not a gzip" * 50, "x.nii.gz")],
)
def test_what_is_no_nifti_is_told(tmp_path, content, name):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=r"not a readable NIfTI file"):
        read_volume(tmp_path / name)


def test_an_empty_file_is_called_empty(tmp_path):
    (tmp_path / "x.nii.gz").touch()
    with pytest.raises(DataError, match=r"x\.nii\.gz: not a readable NIfTI file \(it is empty\)"):
        read_volume(tmp_path / "x.nii.gz")


@pytest.mark.parametrize("factor", [1e-3, 1e3])
def test_a_header_in_metres_or_micrometres_is_told(tmp_path, factor):
    path = tmp_path / "x.nii"
    nibabel.save(nibabel.Nifti1Image(np.ones((4, 4, 4), np.float32), np.diag([2 * factor] * 3 + [1])), path)
    with pytest.raises(DataError, match="some programs count in metres or micrometres"):
        read_header(path)


def test_a_mask_with_holes_of_nan_is_told_as_a_mask(tmp_path):
    nibabel.save(
        nibabel.Nifti1Image(np.full((4, 4, 4), np.nan, np.float32), np.diag([2.0, 2, 2, 1])), tmp_path / "mask.nii"
    )
    with pytest.raises(DataError, match="64 voxels of the mask are NaN or infinite"):
        read_mask(tmp_path / "mask.nii")


def test_a_gzip_of_something_else_is_told(tmp_path):
    (tmp_path / "x.nii.gz").write_bytes(gzip.compress(b"letter to the editor" * 100))
    with pytest.raises(DataError, match=r"starts with b'lett', not with a NIfTI header"):
        read_volume(tmp_path / "x.nii.gz")


def test_another_kind_of_name_and_a_missing_file_are_told(tmp_path):
    with pytest.raises(DataError, match=r"scan\.mif: not the name of a NIfTI file"):
        read_volume(tmp_path / "scan.mif")
    with pytest.raises(DataError, match=r"scan\.nii: there is no such file"):
        read_volume(tmp_path / "scan.nii")


@pytest.mark.parametrize("size", [0.0, 50.0, float("nan"), float("inf")])
def test_absurd_voxel_sizes_are_refused(tmp_path, size):
    path = save(tmp_path / "x.nii")
    damage(path, srow_x=(size, 0, 0, 0))
    with pytest.raises(DataError, match=r"affine"):
        read_header(path)


@pytest.mark.parametrize("size", [0.0, -2.0, float("nan")])
def test_absurd_voxel_sizes_are_refused_where_only_the_qform_counts(tmp_path, size):
    path = save(tmp_path / "x.nii")
    damage(path, sform_code=0, qform_code=1, pixdim=(1, 2, size, 2, 1, 1, 1, 1))
    with pytest.raises(DataError, match=r"x\.nii: (the affine|its qform|voxels of)"):
        read_header(path)


def test_axes_that_coincide_are_refused(tmp_path):
    path = damage(save(tmp_path / "x.nii"), srow_x=(2, 2, 0, 0), srow_y=(0, 0, 0.001, 0), srow_z=(0, 0, 2, 0))
    with pytest.raises(DataError, match="span no usable grid"):
        read_header(path)


def test_a_header_that_claims_a_petabyte_is_refused_before_memory_is_asked_for(tmp_path):
    path = damage(save(tmp_path / "x.nii"), dim=(4, 30000, 30000, 30000, 30000, 1, 1, 1))
    (tmp_path / "x.nii.gz").write_bytes(gzip.compress(path.read_bytes()))
    for claimed in (path, tmp_path / "x.nii.gz"):
        with pytest.raises(DataError, match="more than the file can hold"):
            read_volume(claimed)


def test_a_series_beyond_the_limit_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("tensorldm.imaging.header.LARGEST_READ_BYTES", 400)
    with pytest.raises(DataError, match="over the limit"):
        read_volume(save(tmp_path / "x.nii"))


def test_a_flat_image_and_colours_are_refused(tmp_path):
    with pytest.raises(DataError, match="which is no volume"):
        read_header(save(tmp_path / "x.nii", VALUES[:, :, 0, 0]))
    with pytest.raises(DataError, match="expected real numbers"):
        read_header(save(tmp_path / "y.nii", VALUES.astype(np.complex64)))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_volume_that_is_not_finite_is_named(tmp_path, bad, oblique):
    data = np.ones((4, 3, 2, 5), np.float32)
    data[1, 1, 1, 3] = bad
    with pytest.raises(DataError, match=r"x\.nii: 1 voxels of volume 3 are NaN or infinite"):
        check_finite(Volume(data, oblique((4, 3, 2))), tmp_path / "x.nii")


def test_a_volume_of_zeros_is_named(tmp_path, oblique):
    data = np.ones((4, 3, 2, 5), np.float32)
    data[..., 2] = 0
    check_finite(Volume(data, oblique((4, 3, 2))), tmp_path / "x.nii")
    with pytest.raises(DataError, match=r"volume 2 is zero everywhere"):
        check_not_empty(Volume(data, oblique((4, 3, 2))), tmp_path / "x.nii")


def test_a_disk_that_fills_up_in_mid_image_leaves_nothing(tmp_path, monkeypatch, oblique):
    def fill_up(self, stream):
        stream.write(b"\x00" * 100)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(nibabel.Nifti1Image, "to_stream", fill_up)
    with pytest.raises(DataError, match=r"x\.nii\.gz: cannot be written \(No space left on device\)"):
        write_volume(tmp_path / "x.nii.gz", Volume(np.ones((4, 3, 2), np.float32), oblique((4, 3, 2))))
    assert list(tmp_path.iterdir()) == []


def test_a_default_space_is_written_with_both_forms(tmp_path, oblique):
    write_volume(tmp_path / "x.nii.gz", Volume(np.ones((4, 3, 2), np.float32), Space((4, 3, 2), oblique().affine)))
    written = nibabel.load(tmp_path / "x.nii.gz")
    np.testing.assert_allclose(written.get_sform(), written.get_qform(), atol=1e-5)
    assert (int(written.header["sform_code"]), int(written.header["qform_code"])) == (1, 1)
