"""Rivals whose steps a GPU records: the middle part of every loss asks nothing of the host."""

from types import SimpleNamespace

import pytest
import torch

from tensorldm.baselines.learned.catalogue import RIVALS
from tensorldm.baselines.learned.runs import open_run
from tensorldm.training.recording import Recordable, Recorder
from tensorldm.training.stage_run import record_parts

STAGES = [(name, number) for name, kind in RIVALS.items() for number in kind.stages]


def _parts(name, number):
    method, settings = open_run(name, "smoke", ())
    work = method.prepare(settings, number, start=None)
    work.model.train()
    return work


def _on_meta(group):
    return {name: each.to("meta") for name, each in group.items()} if isinstance(group, dict) else group.to("meta")


@pytest.mark.parametrize(("name", "number"), STAGES)
def test_the_middle_part_of_every_rivals_loss_asks_nothing_of_the_host(name, number, heads, request):
    work, positions = _parts(name, number), torch.arange(2)
    gathered = [[_on_meta(each) for each in part.objective.gather(heads, positions)] for part in work.parts]
    work.model.to("meta")
    watching = request.getfixturevalue("watching")
    for part, given in zip(work.parts, gathered, strict=True):
        part.objective.to("meta")
        with watching:
            loss, logs, kept = part.objective.evaluate(*given)
            loss.backward()
        assert watching.found == []
        assert not any(each.requires_grad for each in (*logs.values(), *kept))


@pytest.mark.parametrize(("name", "number"), STAGES)
def test_every_rivals_stage_can_be_recorded(name, number, monkeypatch):
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: "memory")
    parts = _parts(name, number).parts
    record_parts(parts, number, SimpleNamespace(world_size=1, device=torch.device("cuda")))
    assert all(isinstance(part.objective, Recordable) for part in parts)
    assert all(isinstance(part.objective.recorder, Recorder) for part in parts)


@pytest.mark.parametrize("name", ["pix2pix", "resvit", "cyclegan"])
def test_the_critics_see_the_very_fakes_of_the_generators_turn(name, heads):
    generator, critic = (part.objective for part in _parts(name, 1).parts)
    positions = torch.tensor([3, 4])
    generator(heads, positions)
    *_, kept = generator.evaluate(*generator.gather(heads, positions))
    seen = critic.gather(heads, positions)[-len(kept) :]
    assert all(torch.equal(fake, made) for fake, made in zip(seen, kept, strict=True))
    assert not any(fake.requires_grad for fake in seen)
