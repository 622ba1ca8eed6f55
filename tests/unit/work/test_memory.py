import ctypes
import multiprocessing
import resource
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
import torch

from tensorldm.work.memory import freed_memory_kept

GNU = sys.platform == "linux" and hasattr(ctypes.CDLL(None), "gnu_get_libc_version")
needs_glibc = pytest.mark.skipif(not GNU, reason="another C library has no such knobs")
MEGABYTES, TIMES = 64, 20


def pages_asked_for():
    """Pages that the system had to find while arrays came and went."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(TIMES):
        torch.ones(MEGABYTES * 2**20 // 4)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def pages_without_and_with():
    usually = pages_asked_for()
    with freed_memory_kept("cpu"):
        pages_asked_for()  # the heap grows
        return usually, pages_asked_for()


def held():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def held_before_inside_and_after():
    before = held()
    with freed_memory_kept("cpu"):
        torch.ones(512 * 2**18)
        inside = held()
    return before, inside, held()


def in_a_new_process(measure):
    """Where no earlier test has left a hole in the heap that an array fits into."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(measure).result()


@needs_glibc
def test_inside_the_block_an_array_is_made_where_the_last_one_was():
    pages = MEGABYTES * 2**20 // resource.getpagesize()
    usually, inside = in_a_new_process(pages_without_and_with)
    assert usually > TIMES * pages / 2, "usually each has new pages, or this test says nothing"
    assert inside < pages


@needs_glibc
def test_afterwards_the_system_has_the_memory_again():
    before, inside, after = in_a_new_process(held_before_inside_and_after)
    assert inside - before > 256 * 2**20, "freed, and kept"
    assert after - before < 64 * 2**20


def test_a_bug_inside_the_block_is_not_hidden():
    with pytest.raises(ZeroDivisionError), freed_memory_kept("cpu"):
        _ = 1 / 0


def test_a_gpus_work_changes_nothing_here(monkeypatch):
    monkeypatch.setattr("tensorldm.work.memory._tuner", lambda: pytest.fail("asked for the C library"))
    with freed_memory_kept("cuda"):
        pass


def test_without_glibc_the_block_is_plain(monkeypatch):
    monkeypatch.setattr("tensorldm.work.memory._tuner", lambda: None)
    with freed_memory_kept("cpu"):
        assert torch.ones(2).sum() == 2
