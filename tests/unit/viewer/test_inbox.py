"""Files from a browser: limits before a byte is read, names of our own, nothing left of a broken upload."""

import io
import shutil
from types import SimpleNamespace

import pytest

from tensorldm.errors import DataError
from tensorldm.reconstruct.guard import FORCE
from tensorldm.viewer.inbox import LARGEST_BYTES, Inbox


@pytest.fixture
def inbox(tmp_path):
    return Inbox(tmp_path / "in")


def put(inbox, kind, content=b"abc", *, name="file", size=None):
    inbox.receive(kind, io.BytesIO(content), size=len(content) if size is None else size, name=name)


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "/etc/passwd", "..\\..\\boot.ini", "a/b.nii.gz", "\x00\n.nii", "x" * 5000, ""]
)
def test_no_name_from_the_browser_reaches_the_disk(inbox, tmp_path, name):
    put(inbox, "image", name=name)
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()] == ["in/dwi.nii"]
    assert "/" not in inbox.names["image"]
    assert 0 < len(inbox.names["image"]) <= 80
    assert inbox.names["image"].isprintable()


def test_packed_images_are_known_by_their_first_bytes_not_by_their_name(inbox):
    put(inbox, "image", b"\x1f\x8b rest", name="scan.nii")
    assert inbox.paths["image"].name == "dwi.nii.gz"


@pytest.mark.parametrize("kind", LARGEST_BYTES)
def test_a_file_over_the_limit_is_refused_before_it_is_read(inbox, kind):
    stream = io.BytesIO(b"abc")
    with pytest.raises(DataError, match="limit"):
        inbox.receive(kind, stream, size=LARGEST_BYTES[kind] + 1, name="big")
    assert stream.tell() == 0


def test_an_empty_file_is_refused(inbox):
    with pytest.raises(DataError, match="empty"):
        put(inbox, "bval", b"")


def test_a_broken_upload_leaves_the_earlier_file_and_nothing_else(inbox):
    put(inbox, "bval", b"0 1000", name="old.bval")
    with pytest.raises(DataError, match="broke off"):
        put(inbox, "bval", b"0", size=10, name="new.bval")
    assert inbox.names["bval"] == "old.bval"
    assert [path.read_bytes() for path in inbox.folder.iterdir()] == [b"0 1000"]


def test_no_more_is_read_than_was_announced(inbox):
    stream = io.BytesIO(b"0 1000 and the next request")
    inbox.receive("bval", stream, size=6, name="a.bval")
    assert inbox.paths["bval"].read_bytes() == b"0 1000"
    assert stream.tell() == 6


def test_a_full_disk_is_told_before_writing(inbox, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10))
    with pytest.raises(DataError, match="no room"):
        put(inbox, "bval", name="a.bval")


def test_what_is_missing_is_named(inbox):
    put(inbox, "image")
    with pytest.raises(DataError, match=r"b-values \(\.bval\) and its directions \(\.bvec\)"):
        inbox.scan()


def test_messages_speak_of_the_users_files(inbox):
    put(inbox, "image", name="patient 7.nii")
    said = inbox.in_users_words(f"{inbox.paths['image']}: too dark. {FORCE}")
    assert said.startswith("patient 7.nii: too dark. ")
    assert "--force" not in said
    assert str(inbox.folder) not in said


def test_cleared_means_gone(inbox):
    for kind in LARGEST_BYTES:
        put(inbox, kind)
    inbox.clear()
    assert list(inbox.folder.iterdir()) == []
