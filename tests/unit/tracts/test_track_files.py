import nibabel
import numpy as np
import pytest
from trx.trx_file_memmap import load

from tensorldm.errors import DataError
from tensorldm.imaging.volume import Space
from tensorldm.tracts.streamlines import Streamlines
from tensorldm.tracts.tck import join_tck, read_tck, write_tck
from tensorldm.tracts.trx import write_trx


@pytest.fixture
def some():
    rng = np.random.default_rng(0)
    return Streamlines.of([rng.normal(0, 30, (count, 3)).astype(np.float32) for count in (3, 1, 50, 7)])


def same(a, b):
    return np.array_equal(a.points, b.points) and np.array_equal(a.offsets, b.offsets)


def test_nibabel_reads_what_is_written(some, tmp_path):
    write_tck(tmp_path / "a.tck", some)
    lines = nibabel.streamlines.load(tmp_path / "a.tck").streamlines
    assert len(lines) == len(some)
    assert all(np.array_equal(a, b) for a, b in zip(lines, some, strict=True))


def test_what_nibabel_writes_is_read(some, tmp_path):
    tractogram = nibabel.streamlines.Tractogram(list(some), affine_to_rasmm=np.eye(4))
    nibabel.streamlines.save(tractogram, tmp_path / "a.tck")
    assert same(read_tck(tmp_path / "a.tck"), some)


def test_joined_files_are_one_after_the_other(some, tmp_path):
    for name in ("a", "b"):
        write_tck(tmp_path / f"{name}.tck", some)
    write_tck(tmp_path / "none.tck", Streamlines.of([]))
    assert join_tck(tmp_path / "all.tck", [tmp_path / f"{name}.tck" for name in ("a", "none", "b")]) == 8
    assert same(read_tck(tmp_path / "all.tck"), Streamlines.of([*some, *some]))
    assert nibabel.streamlines.load(tmp_path / "all.tck", lazy_load=True).header["count"] == "0000000008"


def test_an_empty_tractogram_comes_back_empty(tmp_path):
    write_tck(tmp_path / "none.tck", Streamlines.of([]))
    assert len(read_tck(tmp_path / "none.tck")) == 0
    write_trx(tmp_path / "none.trx", Streamlines.of([]), space=Space((2, 2, 2), np.eye(4)))
    assert load(str(tmp_path / "none.trx")).streamlines.total_nb_rows == 0


def test_trx_python_reads_the_same_streamlines_on_the_same_grid(some, tmp_path):
    affine = np.diag([-2.0, 2, 2, 1])
    affine[:3, 3] = [10, -20, -30]
    write_trx(tmp_path / "a.trx", some, space=Space((4, 5, 6), affine))
    found = load(str(tmp_path / "a.trx"))
    assert np.allclose(found.header["VOXEL_TO_RASMM"], affine)
    assert list(found.header["DIMENSIONS"]) == [4, 5, 6]
    assert all(np.array_equal(a, b) for a, b in zip(found.streamlines, some, strict=True))
    found.close()


def test_the_same_streamlines_give_the_same_bytes(some, tmp_path):
    for name in ("a", "b"):
        write_tck(tmp_path / f"{name}.tck", some)
        write_trx(tmp_path / f"{name}.trx", some, space=Space((2, 2, 2), np.eye(4)))
    assert (tmp_path / "a.tck").read_bytes() == (tmp_path / "b.tck").read_bytes()
    assert (tmp_path / "a.trx").read_bytes() == (tmp_path / "b.trx").read_bytes()


def test_a_file_cut_short_is_told(some, tmp_path):
    write_tck(tmp_path / "a.tck", some)
    (tmp_path / "a.tck").write_bytes((tmp_path / "a.tck").read_bytes()[:-100])
    with pytest.raises(DataError, match="ends in the middle"):
        read_tck(tmp_path / "a.tck")


def test_a_last_streamline_without_its_end_is_told(tmp_path):
    points = np.array([[0.0, 0, 0], [1, 0, 0], [np.inf] * 3], dtype="<f4")
    (tmp_path / "a.tck").write_bytes(
        b"mrtrix tracks\ndatatype: Float32LE\nfile: . 50\nEND".ljust(50, b"\n") + points.tobytes()
    )
    with pytest.raises(DataError, match="no end"):
        read_tck(tmp_path / "a.tck")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"hello\n",
        b"mrtrix tracks\ncount: 3\n",
        b"mrtrix tracks\ndatatype: Float16LE\nfile: . 40\nEND\n" + b"\0" * 60,
    ],
    ids=["empty", "other text", "a header that never ends", "another kind of number"],
)
def test_something_else_is_told(content, tmp_path):
    (tmp_path / "a.tck").write_bytes(content)
    with pytest.raises(DataError, match=r"a.tck: not"):
        read_tck(tmp_path / "a.tck")
