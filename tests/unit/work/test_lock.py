"""One run per output folder."""

import multiprocessing
import os

import pytest

from tensorldm.errors import DataError
from tensorldm.work import lock
from tensorldm.work.lock import holding, lock_path


def test_a_second_run_on_the_same_folder_is_refused_and_told_who_holds_it(tmp_path):
    with holding(tmp_path / "out"), pytest.raises(DataError, match=rf"another run .*process {os.getpid()} on"):
        holding(tmp_path / "out").__enter__()


def test_other_folders_of_the_same_place_are_free(tmp_path):
    with holding(tmp_path / "one"), holding(tmp_path / "two"):
        pass


def test_afterwards_the_folder_is_free_and_nothing_is_left(tmp_path):
    for _ in range(2):
        with holding(tmp_path / "out"):
            pass
    assert not list(tmp_path.iterdir())


def test_a_run_that_ended_in_an_error_holds_nothing(tmp_path):
    with pytest.raises(ZeroDivisionError), holding(tmp_path / "out"):
        raise ZeroDivisionError
    with holding(tmp_path / "out"):
        pass


def _die_holding(folder):
    with holding(folder):
        os._exit(9)


def test_a_killed_process_holds_nothing(tmp_path):
    process = multiprocessing.get_context("fork").Process(target=_die_holding, args=(tmp_path / "out",))
    process.start()
    process.join()
    assert lock_path(tmp_path / "out").exists(), "it had no time to remove its file"
    with holding(tmp_path / "out"):
        pass


def test_the_lock_lies_beside_the_folder_so_that_the_folder_may_appear_by_a_rename(tmp_path):
    with holding(tmp_path / "deep" / "out"):
        assert not (tmp_path / "deep" / "out").exists()


def test_a_second_run_is_refused_where_the_first_had_to_make_the_folders_above(tmp_path):
    out = tmp_path / "deep" / "er" / "out"
    with holding(out):
        out.mkdir(parents=True, exist_ok=True)
        with pytest.raises(DataError, match="another run"):
            holding(out).__enter__()


def test_folders_of_the_same_name_in_places_that_are_not_there_yet_are_two_folders(tmp_path):
    with holding(tmp_path / "one" / "out"), holding(tmp_path / "two" / "out"):
        pass


def test_folders_that_were_made_for_the_lock_alone_go_with_it_and_others_stay(tmp_path):
    with holding(tmp_path / "deep" / "er" / "out"):
        pass
    assert not list(tmp_path.iterdir())
    with holding(tmp_path / "deep" / "er" / "out"):
        (tmp_path / "deep" / "kept").touch()
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["kept"]


def test_a_place_below_a_file_is_told(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"out: cannot be written"):
        holding(tmp_path / "file" / "out").__enter__()


def test_it_lies_inside_where_the_place_beside_may_not_be_written_to(tmp_path, monkeypatch):
    (tmp_path / "out").mkdir()
    monkeypatch.setattr(lock.os, "access", lambda path, mode: path != tmp_path)
    assert lock_path(tmp_path / "out") == tmp_path / "out" / ".this-folder.lock"
    with holding(tmp_path / "out"), pytest.raises(DataError, match="another run"):
        holding(tmp_path / "out").__enter__()
    assert not list((tmp_path / "out").iterdir())


def test_a_lock_that_its_holder_removes_meanwhile_is_not_taken_for_a_new_one(tmp_path, monkeypatch):
    """The holder leaves between our opening of its file and our locking of it: that file is nobody's any more."""
    path, real = lock_path(tmp_path / "out"), lock.fcntl.flock
    removed = []

    def leaving(stream, how):
        real(stream, how)
        if not removed:
            removed.append(path.unlink())

    monkeypatch.setattr(lock.fcntl, "flock", leaving)
    with holding(tmp_path / "out"):
        assert path.exists(), "the lock that is held must be the one that others find"
        with pytest.raises(DataError):
            holding(tmp_path / "out").__enter__()


def test_a_folder_that_may_not_be_written_to_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(lock.os, "access", lambda path, mode: False)
    with pytest.raises(DataError, match=r"out: cannot be written"):
        holding(tmp_path / "out").__enter__()
