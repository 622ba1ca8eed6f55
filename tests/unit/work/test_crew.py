"""Work that is shared out: every job once, lost workers replaced, a deadly job found, nobody else punished."""

import os
import re
import signal
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from unittest.mock import create_autospec

import pytest

from tensorldm import __version__
from tensorldm.errors import ConfigError, ToolError
from tensorldm.work import cluster, crew, processes
from tensorldm.work.crew import Crew, Done, Lost, perform
from tensorldm.work.processes import gpu_of_worker, let_go, once, threads_each

TASKS = """
import os, signal
from pathlib import Path

def square(job):
    return job * job, os.getpid(), os.environ["OMP_NUM_THREADS"]

def treacherous(job):
    number, flag = job
    if number == 2 and not Path(flag).exists():   # the first worker that meets it dies
        Path(flag).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if number == 4:                               # every worker that meets it dies
        os.kill(os.getpid(), signal.SIGKILL)
    return number
"""


@pytest.fixture
def tasks(tmp_path, monkeypatch):
    """A module that other processes can import."""
    (tmp_path / "tasks_of_the_crew.py").write_text(TASKS)
    monkeypatch.syspath_prepend(tmp_path)
    import tasks_of_the_crew

    yield tasks_of_the_crew
    sys.modules.pop("tasks_of_the_crew")


@pytest.fixture(params=["dask", "pool"])
def kind(request, monkeypatch):
    """With Dask, and as if it were not installed."""
    if request.param == "pool":
        monkeypatch.setattr(crew, "has_dask", lambda: False)
    else:
        pytest.importorskip("distributed")
    return request.param


def silent(_line: str) -> None:
    pass


def test_one_worker_is_this_process_and_keeps_the_order():
    ended = list(perform(lambda job: (job, os.getpid()), [3, 1, 2], crew=Crew(), tell=silent))
    assert [each.value for each in ended] == [(3, os.getpid()), (1, os.getpid()), (2, os.getpid())]


def test_a_lost_worker_is_replaced_and_only_the_deadly_job_is_given_up(kind, tasks, tmp_path):
    jobs = [(number, str(tmp_path / "flag")) for number in range(6)]
    ended = list(perform(tasks.treacherous, jobs, crew=Crew(2), tell=silent))
    assert sorted(each.value for each in ended if isinstance(each, Done)) == [0, 1, 2, 3, 5]
    (lost,) = [each for each in ended if isinstance(each, Lost)]
    assert lost.job[0] == 4
    assert "fewer --workers" in lost.reason


def test_a_cluster_that_trips_over_its_own_end_loses_nothing(tasks, monkeypatch):
    nanny = pytest.importorskip("distributed.nanny")
    kill = nanny.WorkerProcess.kill

    async def killed_before_it_was_started(self, *words, **more):
        await kill(self, *words, **more)
        raise AssertionError("can only join a started process")

    monkeypatch.setattr(nanny.WorkerProcess, "kill", killed_before_it_was_started)
    ended = list(perform(tasks.square, [1, 2, 3], crew=Crew(2), tell=silent))
    assert sorted(each.value[0] for each in ended) == [1, 4, 9]


class Watched(Sequence):
    """Jobs that remember how many were taken."""

    def __init__(self, count):
        self.count, self.taken = count, 0

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if index >= self.count:
            raise IndexError
        self.taken += 1
        return index


def test_jobs_are_handed_out_a_few_at_a_time_with_few_threads_each_and_an_early_end_is_clean(tasks, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    jobs = Watched(40)
    with closing(perform(tasks.square, jobs, crew=Crew(2), tell=silent)) as ended:
        for number, each in enumerate(ended, start=1):
            assert each.value[0] == each.job**2
            assert each.value[1] != os.getpid()
            assert each.value[2] == "1"
            assert jobs.taken <= number + 2 * crew.WORKERS_AHEAD
            if number == 10:
                break
    assert jobs.taken < 40


def test_workers_and_scheduler_exclude_each_other():
    with pytest.raises(ConfigError, match="give one of the two"):
        Crew(2, "tcp://here:1")
    with pytest.raises(ConfigError, match="--workers is 0"):
        Crew(0)


def test_a_cluster_without_dask_names_the_extra(monkeypatch):
    monkeypatch.setattr(crew, "has_dask", lambda: False)
    with pytest.raises(ToolError, match=r"pip install 'tensorldm\[cluster\]'"):
        Crew(scheduler="tcp://here:1")


def test_a_scheduler_that_does_not_answer_is_told(monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 0.3)
    with pytest.raises(ToolError, match=r"tcp://127\.0\.0\.1:9: no Dask scheduler answers there"):
        list(perform(abs, [1, 2], crew=Crew(scheduler="tcp://127.0.0.1:9"), tell=silent))


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("0.0.1", rf"tcp://two:1 has tensorldm 0\.0\.1, this program is {re.escape(__version__)}"),
        (ModuleNotFoundError("No module named 'tensorldm'"), r"tcp://two:1 cannot load tensorldm \(No module"),
    ],
    ids=["another version", "no tensorldm at all"],
)
def test_a_worker_that_would_do_other_work_is_told_before_anything_is_sent(answer, words):
    client = create_autospec(pytest.importorskip("distributed").Client, instance=True)
    client.run.side_effect = lambda ask, **_: {"tcp://one:1": ask(), "tcp://two:1": answer}
    with pytest.raises(ToolError, match=words):
        cluster._require_same_package(client, "tcp://here:1")
    assert client.run.call_args.kwargs == {"on_error": "return"}


def test_a_worker_that_does_not_see_the_users_disk_is_told_before_anything_is_sent(tmp_path, monkeypatch):
    client = create_autospec(pytest.importorskip("distributed").Client, instance=True)
    client.run.side_effect = lambda look, folder: {"tcp://one:1": look(folder), "tcp://two:1": look(f"{folder}/no")}
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ToolError, match=rf"tcp://two:1 does not see the folder {re.escape(str(tmp_path))}\."):
        cluster._require_same_paths(client, "tcp://here:1")


def test_a_job_is_done_in_the_folder_that_the_user_is_in(tmp_path):
    here = Path.cwd()
    assert processes.do_alone(lambda _: Path.cwd(), 1, folder=tmp_path) == tmp_path.resolve()
    assert Path.cwd() == here


def test_what_is_costly_is_made_once_per_process_and_call():
    made = []
    for key in ("a", "a", "b", "b", "a"):
        assert once(key, lambda key=key: made.append(key) or key.upper()) == key.upper()
    assert made == ["a", "b", "a"], "the last one is kept, and only it"
    let_go("b")
    once("a", lambda: made.append("again"))
    let_go("a")
    once("a", lambda: made.append("anew"))
    let_go("a")
    assert made == ["a", "b", "a", "anew"]


@pytest.mark.parametrize(
    ("name", "count", "gpu"), [(0, 4, 0), (3, 4, 3), (5, 4, 1), ("SLURMCluster-0-7", 4, 3), ("x", 2, 0)]
)
def test_workers_take_the_gpus_in_turn(monkeypatch, name, count, gpu):
    monkeypatch.setattr(processes.signal, "signal", lambda *_: None)  # the test keeps its Ctrl-C
    for variable in (*processes.THREAD_VARIABLES, processes.ORDINAL):
        monkeypatch.setenv(variable, "1")
    processes.begin_worker(name, 1)
    assert gpu_of_worker(count) == gpu


def test_a_worker_is_deaf_to_the_terminals_ctrl_c(monkeypatch):
    heard = []
    monkeypatch.setattr(processes.signal, "signal", lambda *words: heard.append(words))
    for variable in (*processes.THREAD_VARIABLES, processes.ORDINAL):
        monkeypatch.setenv(variable, "1")
    processes.begin_worker(0, 1)
    assert heard == [(signal.SIGINT, signal.SIG_IGN)]


def test_threads_are_what_the_user_said_or_an_equal_share(monkeypatch):
    monkeypatch.setattr(processes.os, "cpu_count", lambda: 8)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert threads_each(4) == 3
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert [threads_each(workers) for workers in (1, 2, 3, 16)] == [8, 4, 2, 1]
