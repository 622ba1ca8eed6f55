"""Validation while a stage trains: whose figures count, and what a subject without an angle does."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from tensorldm.training import stage_run
from tensorldm.training.stage_run import Progress, StageRun
from tensorldm.training.validation import SCORE, measure, validate


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
    fabric = SimpleNamespace(autocast=torch.no_grad, broadcast=lambda _: {SCORE: first_process})
    log = SimpleNamespace(record=lambda *_, **__: None, picture=lambda *_, **__: None)
    run.session = SimpleNamespace(fabric=fabric, log=log)
    run._write_bundle = lambda name, measures: written.append(name)
    assert run._validate() == {SCORE: first_process}
    assert bool(written) is best
    assert run.progress.best == min(first_process, 0.2)
