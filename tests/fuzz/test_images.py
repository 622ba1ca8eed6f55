"""NIfTI files with damaged and hostile headers."""

import gzip
import struct
from pathlib import Path

import nibabel
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorldm.imaging.grid import working_grid
from tensorldm.imaging.header import LARGEST_FIELD_M3
from tensorldm.imaging.nifti import read_header, read_volume

VALUES = np.arange(5 * 4 * 3 * 4, dtype=np.int16).reshape(5, 4, 3, 4)
FIELDS = [
    name
    for name in nibabel.Nifti1Header.template_dtype.names
    if name not in ("data_type", "db_name", "descrip", "aux_file", "intent_name")
]
NUMBERS = st.one_of(
    st.sampled_from([0, 1, -1, 2, 4, 16, 64, 127, 128, 255, 256, 512, 1024, 2304, 32767, -32768]),
    st.integers(-(2**15), 2**15 - 1),
    st.floats(allow_nan=True, allow_infinity=True, width=32),
)
SUFFIXES = st.sampled_from([".nii", ".nii.gz"])


def _valid(kind: type) -> bytes:
    return kind(VALUES, np.diag([-2.0, 2, 2, 1])).to_bytes()


NIFTI = {1: _valid(nibabel.Nifti1Image), 2: _valid(nibabel.Nifti2Image)}


def _write(place: Path, content: bytes, suffix: str) -> Path:
    path = place / f"x{suffix}"
    path.write_bytes(gzip.compress(content, compresslevel=1) if suffix == ".nii.gz" else content)
    return path


def _read(path: Path) -> None:
    """As the package does it: header, the grid it will be taken to, all voxels, one volume."""
    space, shape = read_header(path)
    grid = working_grid(space)
    assert np.prod(grid.working.shape) <= 1.5e9 * LARGEST_FIELD_M3, "the working grid is of a size that fits"
    volume = read_volume(path)
    assert volume.data.shape == shape
    if len(shape) == 4:
        assert read_volume(path, volumes=[shape[3] - 1]).data.shape == (*shape[:3], 1)


@given(version=st.sampled_from([1, 2]), places=st.lists(st.integers(0, 560)), byte=st.integers(0, 255), suffix=SUFFIXES)
def test_any_bytes_of_a_header_may_be_wrong(version, places, byte, suffix, place, survives):
    content = bytearray(NIFTI[version])
    for index in places:
        content[index] = byte
    survives(_read, _write(place, bytes(content), suffix))


@given(changes=st.dictionaries(st.sampled_from(FIELDS), NUMBERS, min_size=1, max_size=4), suffix=SUFFIXES)
def test_any_field_of_a_header_may_be_absurd(changes, suffix, place, survives):
    content = bytearray(NIFTI[1])
    header = np.ndarray((), nibabel.Nifti1Header.template_dtype, buffer=content)
    with np.errstate(all="ignore"):
        for field, value in changes.items():
            kind = header[field].dtype.kind
            if kind == "S":
                continue
            finite = value == value and abs(value) < 2**31
            header[field] = np.asarray(value).astype(header[field].dtype) if kind == "f" or finite else 0
    survives(_read, _write(place, bytes(content), suffix))


@given(shape=st.lists(st.integers(-2, 32767), min_size=1, max_size=7), suffix=SUFFIXES)
def test_any_shape_may_be_claimed(shape, suffix, place, survives):
    content = bytearray(NIFTI[1])
    struct.pack_into(f"<{1 + len(shape)}h", content, 40, len(shape), *shape)
    survives(_read, _write(place, bytes(content), suffix))


@given(length=st.integers(0, len(NIFTI[1])), suffix=SUFFIXES)
def test_a_file_may_end_anywhere(length, suffix, place, survives):
    whole = _write(place, NIFTI[1], suffix).read_bytes()
    (place / f"x{suffix}").write_bytes(whole[: min(length, len(whole) - 1)])
    assert survives(_read, place / f"x{suffix}") is None


@given(content=st.binary(max_size=400), suffix=SUFFIXES, packed=st.booleans())
def test_any_bytes_may_be_called_an_image(content, suffix, packed, place, survives):
    path = _write(place, content, suffix) if packed else place / f"x{suffix}"
    if not packed:
        path.write_bytes(content)
    assert survives(_read, path) is None


@pytest.mark.parametrize("suffix", [".nii", ".nii.gz"])
def test_what_the_examples_are_made_from_is_read(suffix, place, survives):
    for content in NIFTI.values():
        path = _write(place, content, suffix)
        assert np.array_equal(survives(read_volume, path).data, VALUES)
