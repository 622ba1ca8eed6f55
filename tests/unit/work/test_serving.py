"""What only the first process holds: workers ask, it answers one at a time, and nobody waits in vain."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from tensorldm.errors import DataError
from tensorldm.work.crew import Done, Lost
from tensorldm.work.pool import perform_in_pool
from tensorldm.work.serving import Message, receive, send

TASKS = """
import os, signal, traceback
from pathlib import Path
import numpy as np
from tensorldm.errors import DataError
from tensorldm.work.serving import Message, ServingError, ask

def doubled(job):
    number, folder = job
    mark = Path(folder) / f"{number}.alive"
    mark.touch()
    try:
        answer = ask(Message((number, folder), (np.full(300_000, float(number)),)))
        return os.getpid(), answer.note, float(answer.arrays[0].sum())
    except DataError as error:
        return "data", str(error)
    except ServingError as error:
        return "bug", error.kind, "".join(traceback.format_exception(error))
    finally:
        mark.unlink()

def deadly(job):
    number, flag = job
    if number == 1 and not Path(flag).exists():
        Path(flag).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return ask(Message(number)).note
"""


@pytest.fixture
def tasks(tmp_path, monkeypatch):
    """A module that other processes can import."""
    (tmp_path / "tasks_that_ask.py").write_text(TASKS)
    monkeypatch.syspath_prepend(tmp_path)
    import tasks_that_ask

    yield tasks_that_ask
    sys.modules.pop("tasks_that_ask")


@pytest.mark.parametrize(
    "array",
    [
        np.arange(700_000, dtype=np.float32).reshape(100, 70, 100),
        np.arange(24.0).reshape(2, 3, 4).transpose(2, 0, 1),
        np.array([True, False, True]),
        np.zeros((0, 3)),
    ],
    ids=["larger than a socket holds", "not contiguous", "truth values", "empty"],
)
def test_an_array_arrives_as_it_was_sent_and_may_be_written_to(array):
    here, there = multiprocessing.Pipe()
    sender = threading.Thread(target=send, args=(here, Message({"a": 1}, (array, array))))
    sender.start()
    found = receive(there)
    sender.join()
    assert found.note == {"a": 1}
    for each in found.arrays:
        assert each.dtype == array.dtype
        np.testing.assert_array_equal(each, array)
        each[...] = 0
    here.close()
    there.close()


def test_workers_are_answered_one_at_a_time_here_and_what_goes_wrong_is_told_to_the_one_who_asked(tasks, tmp_path):
    threads, alive, before = set(), [], threading.active_count()

    def serve(message):
        number, _ = message.note
        threads.add(threading.current_thread())
        if not alive:
            _wait_for(lambda: len(list(tmp_path.glob("*.alive"))) == 2)  # another goes on while this one is answered
        alive.append(len(list(tmp_path.glob("*.alive"))))
        if number == 2:
            raise DataError("this scan is bad.")
        if number == 3:
            raise ZeroDivisionError("ours")
        return Message(number, (2 * message.arrays[0],))

    jobs = [(number, str(tmp_path)) for number in range(6)]
    began = []
    ended = list(
        perform_in_pool(tasks.doubled, jobs, workers=2, serve=serve, meanwhile=lambda: began.append(len(alive)))
    )
    found = {each.job[0]: each.value for each in ended}
    assert found[2] == ("data", "this scan is bad.")
    assert found[3][:2] == ("bug", "ZeroDivisionError")
    assert "In the process that answers" in found[3][2]
    assert "in serve" in found[3][2]
    for number in (0, 1, 4, 5):
        worker, note, total = found[number]
        assert worker != os.getpid()
        assert (note, total) == (number, 2.0 * number * 300_000)
    assert threads == {threading.main_thread()}
    assert began == [0], "what can be done while workers start is done before the first call"
    assert max(alive) <= 2, "no more jobs are under way than there are workers"
    assert threading.active_count() == before


def test_a_worker_that_dies_before_it_asks_is_replaced_and_the_others_are_answered(tasks, tmp_path):
    jobs = [(number, str(tmp_path / "flag")) for number in range(4)]
    ended = list(perform_in_pool(tasks.deadly, jobs, workers=2, serve=lambda message: Message(10 * message.note)))
    assert not [each for each in ended if isinstance(each, Lost)]
    assert sorted(each.value for each in ended if isinstance(each, Done)) == [0, 10, 20, 30]


def test_stopping_in_the_middle_leaves_no_process_and_no_thread(tasks, tmp_path):
    before = threading.active_count()

    def stopped(message):
        raise KeyboardInterrupt

    jobs = [(number, str(tmp_path)) for number in range(4)]
    with (
        pytest.raises(KeyboardInterrupt),
        closing(perform_in_pool(tasks.doubled, jobs, workers=2, serve=stopped)) as ended,
    ):
        list(ended)
    assert threading.active_count() == before
    assert multiprocessing.active_children() == []


ORPHANS = """
import sys, time
sys.path.insert(0, {folder!r})
from tasks_of_orphans import linger
from tensorldm.work.pool import perform_in_pool
if __name__ == "__main__":
    list(perform_in_pool(linger, [1, 2], workers=2))
"""
LINGER = """
import os, time
from pathlib import Path
def linger(job):
    (Path(__file__).parent / f"{os.getpid()}.worker").touch()
    time.sleep(60)
"""


def test_workers_end_with_the_first_process_even_if_that_is_killed(tmp_path):
    (tmp_path / "tasks_of_orphans.py").write_text(LINGER)
    script = tmp_path / "first.py"
    script.write_text(ORPHANS.format(folder=str(tmp_path)))
    process = subprocess.Popen([sys.executable, script])
    _wait_for(lambda: len(list(tmp_path.glob("*.worker"))) == 2 or process.poll() is not None)
    workers = [int(path.stem) for path in tmp_path.glob("*.worker")]
    assert len(workers) == 2
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    _wait_for(lambda: not any(_runs(worker) for worker in workers))


def _runs(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _wait_for(condition, *, seconds=40):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)
