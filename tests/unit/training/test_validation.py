"""Validation while a stage trains: whose figures count, and what a subject without an angle does."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from tensorldm.baselines.learned.catalogue import RIVALS
from tensorldm.baselines.learned.runs import open_run
from tensorldm.training import stage_run
from tensorldm.training.stage_run import Progress, StageRun
from tensorldm.training.validation import DRAWS, SCORE, held_out_loss, measure, validate


def _stretched(subject, positions):
    return subject.components * torch.tensor([1.1, 1.0, 1.0, 1.0, 1.0, 1.0]).reshape(1, 6, 1, 1, 1)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["angle first", "angle last"])
def test_a_subject_without_anisotropic_voxels_has_no_say_in_the_angle(order, heads):
    clear = heads.batch(seed=0, position=0, size=1)
    round_ones = torch.zeros_like(clear.components)
    round_ones[:, :3] = 1e-3
    subjects = [clear, replace(clear, components=round_ones)]
    measures, _ = validate(_stretched, [subjects[i] for i in order], pause=lambda: None)
    angle = measure(clear, _stretched(clear, None))["v1 angle"]
    assert measures["v1 angle"] == pytest.approx(angle)


@pytest.mark.parametrize(("first_process", "best"), [(0.1999, True), (0.2001, False)])
def test_all_processes_go_by_the_figures_of_the_first(first_process, best, heads, monkeypatch):
    """This one is another process, whose GPU found 0.2: it writes with the others or not at all."""
    subject = heads.batch(seed=0, position=0, size=1)
    monkeypatch.setattr(stage_run, "validate", lambda *_, **__: ({SCORE: 0.2}, subject.components))
    written = []
    run = StageRun.__new__(StageRun)
    run.model, run.number, run.held_out, run.progress = torch.nn.Identity(), 1, [subject], Progress(best=0.2)
    run.average = SimpleNamespace(applied=torch.no_grad)
    run.work = SimpleNamespace(reconstruct=None)
    run._held_out_loss = lambda: 1.0
    fabric = SimpleNamespace(autocast=torch.no_grad, broadcast=lambda _: {SCORE: first_process})
    log = SimpleNamespace(record=lambda *_, **__: None, picture=lambda *_, **__: None)
    run.session = SimpleNamespace(fabric=fabric, log=log)
    run._write_bundle = lambda name, measures: written.append(name)
    assert run._validate() == {SCORE: first_process}
    assert bool(written) is best
    assert run.progress.best == min(first_process, 0.2)


class _Noting(nn.Module):
    """A loss that is the sample's position, and four times that of heads with draws."""

    def __init__(self, draws: bool) -> None:
        super().__init__()
        self.draws = draws

    def forward(self, batch, positions):
        return positions.float().sum(), {}


@pytest.mark.parametrize(("draws", "positions"), [(False, range(2)), (True, range(2 * DRAWS))])
def test_each_held_out_head_has_draws_of_its_own_where_its_loss_has_any(draws, positions, heads):
    subjects = [heads.batch(seed=0, position=index, size=1) for index in range(2)]
    calls = []
    loss = held_out_loss(_Noting(draws), subjects, pause=lambda: calls.append(1))
    assert loss == pytest.approx(sum(positions) / len(positions))
    assert len(calls) == len(subjects), "somebody who wants to stop is heard before every head"


EVERY_STAGE = [("tensorldm", number) for number in range(1, 6)] + [
    (name, number) for name, kind in RIVALS.items() for number in kind.stages
]


@pytest.mark.parametrize(("name", "number"), EVERY_STAGE)
def test_the_held_out_loss_is_the_same_each_time_and_touches_nothing(name, number, heads):
    method, settings = open_run(name, "smoke", ())
    work = method.prepare(settings, number, start=None)
    work.remember(1)
    subjects = [replace(heads, side=16).batch(seed=0, position=index, size=1) for index in range(2)]
    objective = work.parts[0].objective.train()
    learned, _ = objective(subjects[0], torch.tensor([0]))
    before = {key: value.clone() for key, value in work.model.state_dict().items()}
    objective.eval()
    first, again = (held_out_loss(objective, subjects, pause=lambda: None) for _ in range(2))
    assert first == again
    assert first > 0
    after = work.model.state_dict()
    assert all(torch.equal(after[key], value) for key, value in before.items())
    if encoded := getattr(objective, "encoded", None):
        assert list(encoded._known) == [subjects[0].subjects[0]], "only what training saw is remembered"
    if handover := getattr(objective, "handover", None):
        assert len(handover._waiting) == 1, "no critic waits for a held-out head"
    assert learned.requires_grad
