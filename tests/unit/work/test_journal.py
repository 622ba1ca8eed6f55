"""What has been done, and what earlier runs left."""

import os
from contextlib import ExitStack

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tensorldm.config.reading import Strict
from tensorldm.errors import DataError
from tensorldm.work import sources
from tensorldm.work.debris import sweep
from tensorldm.work.journal import Journal
from tensorldm.work.lock import holding
from tensorldm.work.sources import describe_sources


class Note(Strict):
    name: str
    value: int


def test_what_is_written_is_read_and_what_is_forgotten_is_gone(tmp_path):
    journal = Journal(tmp_path / "journal", Note)
    assert journal.entry("anna") is None
    journal.write("bert", Note(name="bert", value=2))
    journal.write("anna", Note(name="anna", value=1))
    assert [each.value for each in journal.entries()] == [1, 2]
    journal.forget("anna")
    journal.forget("nobody")
    assert journal.entry("anna") is None
    assert journal.entry("bert") == Note(name="bert", value=2)


@pytest.mark.parametrize("content", [b"", b"{", b'{"name": "anna"}', b'{"name": "anna", "value": "many"}', b"\xff\xfe"])
def test_a_damaged_entry_counts_as_not_there(tmp_path, content):
    journal = Journal(tmp_path, Note)
    journal.write("anna", Note(name="anna", value=1))
    (tmp_path / "anna.json").write_bytes(content)
    assert journal.entry("anna") is None
    assert list(journal.entries()) == []


@example(".")
@example("")
@given(st.text(max_size=300))
def test_no_name_leaves_the_folder_or_hides_in_it(tmp_path_factory, name):
    journal = Journal(tmp_path_factory.getbasetemp() / "journal", Note)
    path = journal._path(name)
    assert path.parent == journal.folder
    assert not path.name.startswith(".")
    assert len(path.name.encode()) < 255


def test_an_untouched_file_is_not_read_again_and_a_touched_one_is(tmp_path, monkeypatch):
    path, read = tmp_path / "dwi.nii.gz", []
    path.write_bytes(b"first")
    real = sources.file_hash
    monkeypatch.setattr(sources, "file_hash", lambda each: read.append(each) or real(each))
    known = describe_sources([("dwi", path)])
    assert describe_sources([("dwi", path)], known=known) == known
    assert len(read) == 1
    path.write_bytes(b"other")  # of the same length
    os.utime(path, ns=(1, 1))
    assert describe_sources([("dwi", path)], known=known)[0].sha256 != known[0].sha256


def test_a_source_that_is_gone_is_told(tmp_path):
    with pytest.raises(DataError, match=r"dwi\.nii: cannot be read"):
        describe_sources([("dwi", tmp_path / "dwi.nii")])


def test_sweeping_removes_what_is_unfinished_and_nothing_else(tmp_path):
    out = tmp_path / "out"
    unfinished = [out / ".fa.nii.gz.0123abcd.part", out / "sub-01" / ".md.json.deadbeef.part"]
    unfinished += [out / ".out.01234567.part" / "sub-01" / "fa.nii.gz", tmp_path / ".out.89abcdef.part" / "fa.nii.gz"]
    others = [out / "fa.nii.gz", out / ".hidden", out / "notes.part", tmp_path / ".other.89abcdef.part" / "fa.nii.gz"]
    for path in (*unfinished, *others):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert sweep(out) == 4
    assert not any(path.exists() for path in unfinished)
    assert all(path.exists() for path in others)


@pytest.mark.parametrize("inside", [False, True], ids=["held beside it", "held inside it"])
def test_sweeping_leaves_alone_what_another_run_writes_in_a_folder_inside(tmp_path, monkeypatch, inside):
    out, other = tmp_path / "out", tmp_path / "out" / "other"
    theirs = [other / "sub-01" / ".fa.nii.gz.0123abcd.part"]
    theirs += [] if inside else [out / ".other.0123abcd.part" / "x", out / ".other.journal" / ".x.json.0123abcd.part"]
    ours = [out / ".fa.nii.gz.0123abcd.part", out / "others" / ".fa.nii.gz.0123abcd.part"]
    for path in (*theirs, *ours):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    with monkeypatch.context() as patch, ExitStack() as stack:
        patch.setattr("tensorldm.work.lock.os.access", lambda *_: not inside)
        stack.enter_context(holding(other))
        stack.enter_context(holding(out))
        assert sweep(out) == len(ours)
    assert all(path.exists() for path in theirs)
    assert not any(path.exists() for path in ours)
    with holding(out):
        assert sweep(out) == len(theirs), "nobody writes them any more"


def test_sweeping_a_folder_that_is_not_there_is_nothing(tmp_path):
    assert sweep(tmp_path / "deep" / "out") == 0
