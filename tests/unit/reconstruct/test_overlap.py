"""Helpers around a GPU: when they are worth starting, and that an engine elsewhere says what one here would say."""

import multiprocessing
import os
import warnings
from types import SimpleNamespace

import pytest
import torch

from tensorldm.errors import ConfigError, DataWarning
from tensorldm.reconstruct import overlap, shared_engine
from tensorldm.reconstruct.engine import Engine, Traits, WorkingScan
from tensorldm.reconstruct.overlap import VARIABLE, bytes_of_helper, cores_here
from tensorldm.reconstruct.shared_engine import EngineAtDesk, SharedEngine
from tensorldm.reconstruct.uncertainty import Calibration
from tensorldm.work.serving import Message, receive, send

GPU, CPU = torch.device("cuda"), torch.device("cpu")
GIB = 2**30


def helpers_for(device, scans, bytes_each=2 * GIB):
    return overlap.helpers_for(device, scans, bytes_each=bytes_each)


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    """Sixteen cores and plenty of memory."""
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(overlap, "cores_here", lambda: 16)
    monkeypatch.setattr(overlap.bounded, "machine_bytes", lambda: 128 * GIB)


def test_a_gpu_with_a_queue_gets_all_cores_but_one():
    assert helpers_for(GPU, 50) == 15
    assert helpers_for(GPU, 6) == 6, "never more than there are scans"


def test_one_scan_a_few_or_a_cpu_get_none():
    assert [helpers_for(GPU, scans) for scans in (0, 1, 3)] == [0, 0, 0]
    assert helpers_for(CPU, 50) == 0


def test_memory_and_cores_bound_the_helpers(monkeypatch):
    monkeypatch.setattr(overlap.bounded, "machine_bytes", lambda: 8 * GIB)
    assert helpers_for(GPU, 50) == 4
    monkeypatch.setattr(overlap.bounded, "machine_bytes", lambda: 3 * GIB)
    assert helpers_for(GPU, 50) == 0, "one helper would overlap with nothing"
    monkeypatch.setattr(overlap.bounded, "machine_bytes", lambda: 512 * GIB)
    assert helpers_for(GPU, 50, bytes_each=128 * GIB) == 4
    for cores, wanted in ((1, 2), (2, 2), (64, 16)):
        monkeypatch.setattr(overlap, "cores_here", lambda cores=cores: cores)
        assert helpers_for(GPU, 50) == wanted


def test_a_helper_is_given_room_by_the_size_of_its_scan():
    clinical, fine = bytes_of_helper((91, 109, 91), 4), bytes_of_helper((145, 174, 145), 108)
    assert 1.2 * GIB < clinical < 2 * GIB
    assert fine > 5 * clinical


def test_the_user_decides_on_any_device(monkeypatch):
    monkeypatch.setenv(VARIABLE, "3")
    assert (helpers_for(CPU, 50), helpers_for(GPU, 2), helpers_for(GPU, 1)) == (3, 2, 0)
    monkeypatch.setenv(VARIABLE, "0")
    assert helpers_for(GPU, 50) == 0
    monkeypatch.setenv(VARIABLE, "many")
    with pytest.raises(ConfigError, match="TENSORLDM_HELPERS is 'many'; give a number of processes"):
        helpers_for(GPU, 50)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system binds no process to cores")
def test_cores_are_those_that_a_batch_system_leaves(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5})
    assert cores_here() == 2


class Forgetful:
    """An engine that runs out of GPU memory on its first scan, and says so."""

    traits = Traits("forgetful", voxelwise=False, fixed_input=False, samples=True)
    calibration = Calibration(fa=1.5)

    def __init__(self):
        self.notes = {"Method": "forgetful", "Device": "cuda"}

    def estimate(self, scan):
        warnings.warn("Out of GPU memory.", DataWarning, stacklevel=2)
        self.notes = {**self.notes, "Device": "cpu"}
        assert scan.dwi.is_contiguous()
        return torch.stack([scan.signal @ torch.ones(4, 6, dtype=torch.float64) * k for k in (1, 2)])


@pytest.fixture
def scan():
    random = torch.Generator().manual_seed(0)
    return WorkingScan(
        dwi=torch.rand(4, 5, 6, 7, generator=random).permute(0, 3, 2, 1),
        bvals=torch.tensor([0.0, 1000, 1000, 1000], dtype=torch.float64),
        directions=torch.eye(4, 3, dtype=torch.float64),
        mask=torch.rand(7, 6, 5, generator=random) > 0.5,
        voxel_size=(2.0, 2.0, 2.5),
        b0_scale=0.7,
        key="abc",
    )


def sent(message: Message) -> Message:
    here, there = multiprocessing.Pipe()
    with here, there:
        send(here, message)  # small enough for the pipe to hold
        return receive(there)


def test_an_engine_elsewhere_gives_the_same_samples_words_and_notes(scan, monkeypatch):
    here, elsewhere, named = Forgetful(), Forgetful(), []
    desk = EngineAtDesk(lambda: elsewhere, named.append)
    monkeypatch.setattr(shared_engine, "ask", lambda message: sent(desk(sent(message))))
    engine = SharedEngine(elsewhere.traits, "sub-01")
    assert isinstance(engine, Engine)
    with pytest.warns(DataWarning, match="Out of GPU memory") as told:
        found = engine.estimate(scan)
    assert len(told) == 1
    with pytest.warns(DataWarning):
        wanted = here.estimate(SimpleNamespace(signal=scan.signal, dwi=scan.dwi.contiguous()))
    assert torch.equal(found, wanted)
    assert engine.notes == {"Method": "forgetful", "Device": "cpu"}, "as it is after the work"
    assert engine.calibration == Calibration(fa=1.5)
    assert engine.waited >= 0
    assert named == ["sub-01"]
