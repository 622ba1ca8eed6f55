"""Recording a loss on a GPU: what may be recorded at all, and how recordings are kept.

Where there is no GPU it is played by functions that note what they are asked.
"""

import gc
import weakref
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from tensorldm.build import build_model
from tensorldm.config.reading import read_config
from tensorldm.config.run import RunConfig
from tensorldm.config.training import StageConfig
from tensorldm.errors import ConfigError
from tensorldm.training.method import Part
from tensorldm.training.recording import Evaluated, Recordable, Recorder, forget, form_of, record
from tensorldm.training.stage_run import StageRun, record_parts
from tensorldm.training.stages import STAGES, joint_modes, set_trainable, switch_decoders

DIRECTIONAL = [
    "model.autoencoder.conditioner=directional",
    "model.expectation={channels: [8, 8], blocks: [1, 1], vector_channels: 8, patch: 2, detail_channels: 4}",
    "model.spread_channels=4",
    "stages.0={steps: 1, box: [16, 16, 16]}",
]


def _objective(number: int, overrides: list[str]) -> Recordable:
    config = read_config(RunConfig, "smoke", overrides)
    model, row = build_model(config.model, seed=1).train(), STAGES[number]
    model.set_joint(*joint_modes(row, config.model, before=("gated" if number > 3 else "off", "off")))
    switch_decoders(model, row, config=config.model)
    set_trainable(model, row, config=config.model)
    return row.objective(model, config, number)


def _on_meta(group):
    return {name: each.to("meta") for name, each in group.items()} if isinstance(group, dict) else group.to("meta")


@pytest.mark.parametrize("number", range(6))
@pytest.mark.parametrize("form", [DIRECTIONAL, []], ids=["base", "paper"])
def test_the_second_half_of_every_stages_loss_asks_nothing_of_the_host(number, form, heads, request):
    if number == 0 and not form:
        pytest.skip("the paper has no Stage 0")
    objective = _objective(number, form)
    batch = replace(heads, side=16).batch(seed=0, position=0, size=2)
    gathered = [_on_meta(each) for each in objective.gather(batch, torch.arange(2))]
    objective.to("meta")
    with request.getfixturevalue("watching") as watching:
        loss = objective.evaluate(*gathered).loss
        loss.backward()
    assert watching.found == []


@pytest.mark.parametrize(
    "asks",
    [
        lambda volume: volume + torch.ones(()),
        lambda volume: volume[[0, 1]],
        lambda volume: volume[volume > 0],
        lambda volume: volume * volume.new_tensor([1.0, 2.0, 3.0, 4.0]),
        lambda volume: 2.0 if volume.sum() > 0 else 1.0,
    ],
)
def test_the_watch_sees_what_cannot_be_recorded(asks, watching):
    failed = False
    with watching:
        try:
            asks(torch.ones(4, device="meta"))
        except (AssertionError, RuntimeError, NotImplementedError):
            failed = True
    assert failed or watching.found


class _Counting(Recordable):
    """A loss with a weight and a count, of what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.calls, self.kept = nn.Parameter(torch.tensor(2.0)), 0, ()
        self.mixed: set[tuple[bool, torch.dtype, bool]] = set()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, volume, positions):
        loss, logs, self.kept = self.replay({"volume": volume}, positions.float())
        return loss, logs

    def evaluate(self, group, positions):
        self.calls += 1
        self.mixed.add(
            (torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda"), torch.is_autocast_cache_enabled())
        )
        self.seen.add_(1)
        loss = self.weight * group["volume"].mean() + positions.mean()
        return Evaluated(loss, {"mean": group["volume"].mean().detach()}, (self.weight.detach() * group["volume"],))


@pytest.fixture
def played(monkeypatch):
    """torch's recording, played: three warm-ups, one recording, then a function that reads the places."""
    made = []

    def make(module, places, *, allow_unused_input, pool):
        assert allow_unused_input
        assert torch.is_autocast_enabled("cuda") is False or not torch.is_autocast_cache_enabled()
        for _ in range(4):
            module(*places)
        made.append(
            SimpleNamespace(
                places=places,
                pool=pool,
                weights=[name for name, _ in module.named_parameters()],
                mixed=torch.is_autocast_enabled("cuda"),
                module=weakref.ref(module),
            )
        )

        def play(*gathered):
            for place, each in zip(places, gathered, strict=True):
                pairs = [(place[k], each[k]) for k in place] if isinstance(place, dict) else [(place, each)]
                for mine, given in pairs:
                    mine.copy_(given)
            loss, logs, kept = module(*places)
            all_learn = 0 * next(module.parameters())  # so it looks from outside
            return Evaluated(
                loss, {name: log + all_learn for name, log in logs.items()}, tuple(k + all_learn for k in kept)
            )

        module.played = play  # torch's recordings refer to themselves too
        return play

    monkeypatch.setattr(torch.cuda, "make_graphed_callables", make)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: "memory")
    return made


def test_each_form_is_recorded_once_in_places_of_its_own_and_counts_stay(played):
    objective = _Counting()
    assert record(objective)
    small, large, positions = torch.ones(2), torch.full((3,), 5.0), torch.arange(1)
    values = [float(objective(each, positions)[0].detach()) for each in (small, large, 2 * small, large)]
    assert values == [2.0, 10.0, 4.0, 10.0]
    assert len(played) == 2
    assert {each.pool for each in played} == {"memory"}
    assert played[0].weights == ["objective.weight"]
    assert played[0].places[0]["volume"] is not small
    assert float(small.sum()) == 2.0
    assert float(objective.seen) == 4.0, "one for each call, none for a recording"


def test_gradients_reach_the_weights_and_who_wants_none_is_not_recorded(played):
    objective = _Counting()
    record(objective)
    with torch.no_grad():
        objective(torch.ones(2), torch.arange(1))
    assert not played
    loss, logs = objective(torch.full((2,), 3.0), torch.arange(1))
    loss.backward()
    assert float(objective.weight.grad) == 3.0
    assert float(logs["mean"]) == 3.0
    assert not logs["mean"].requires_grad
    assert [each.tolist() for each in objective.kept] == [[6.0, 6.0]]
    assert not objective.kept[0].requires_grad


def test_a_loss_is_recorded_in_mixed_precision_and_its_gradients_outside(played, monkeypatch):
    monkeypatch.setattr(torch.cuda.amp.common, "amp_definitely_not_available", lambda: False)
    objective = _Counting()
    record(objective)
    with torch.autocast("cuda", torch.float16):
        objective(torch.ones(2), torch.arange(1))
    assert objective.mixed == {(True, torch.float16, False)}
    assert not played[0].mixed, "torch works out the gradients in what is in force around it"


def test_recordings_are_gone_once_they_are_forgotten_and_the_objective_goes_on_without(played):
    objective = _Counting()
    record(objective)
    objective(torch.ones(2), torch.arange(1))
    gc.disable()
    try:
        forget([objective, nn.Identity()])
        assert played[0].module() is None
    finally:
        gc.enable()
    assert float(objective(torch.full((2,), 3.0), torch.arange(1))[0].detach()) == 6.0


def test_a_stage_forgets_its_recordings_however_it_ends(played):
    def broken():
        raise InterruptedError

    objective = _Counting()
    record(objective)
    run = SimpleNamespace(_train=broken, work=SimpleNamespace(parts=[_part(objective)]))
    with pytest.raises(InterruptedError):
        StageRun.train(run)
    assert objective.recorder is None


def test_forms_differ_by_order_in_memory():
    volume = torch.zeros(1, 2, 3, 4, 5)
    last = volume.to(memory_format=torch.channels_last_3d)
    assert form_of((volume,)) != form_of((last,))
    assert form_of(({"a": volume},)) == form_of((volume.clone(),))


def _part(objective) -> Part:
    return Part("model", objective, {}, torch.optim.Adam([nn.Parameter(torch.zeros(1))]))


def test_a_stage_records_on_one_gpu_says_where_it_cannot_and_leaves_a_cpu_alone(played):
    gpu = SimpleNamespace(world_size=1, device=torch.device("cuda"))
    objective = _Counting()
    record_parts([_part(objective)], 4, SimpleNamespace(world_size=1, device=torch.device("cpu")))
    assert objective.recorder is None
    record_parts([_part(objective)], 4, gpu)
    assert isinstance(objective.recorder, Recorder)
    with pytest.raises(ConfigError, match=r"stages\.1\.record: nothing of this method's stage"):
        record_parts([_part(nn.Identity())], 1, gpu)
    with pytest.raises(ConfigError, match="works on one GPU, not on 2"):
        record_parts([_part(objective)], 4, SimpleNamespace(world_size=2, device=torch.device("cuda")))


@pytest.mark.parametrize(("other", "words"), [({"compile": True}, "exclude"), ({"accumulate": 2}, "accumulate=1")])
def test_what_does_not_go_with_recording_is_refused(other, words):
    with pytest.raises(ValueError, match=words):
        StageConfig(steps=1, box=(16, 16, 16), record=True, **other)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("number", range(6))
def test_a_recorded_stage_has_the_loss_and_gradients_of_an_eager_one(number, heads):
    batch = replace(heads, side=16).batch(seed=0, position=0, size=2).to("cuda")
    found = []
    for recorded in (False, True):
        objective = _objective(number, DIRECTIONAL).to("cuda")
        if recorded:
            record(objective)
        loss, _ = objective(batch, torch.arange(2))
        loss.backward()
        gradients = {name: each.grad for name, each in objective.named_parameters() if each.grad is not None}
        found.append((loss.detach(), gradients))
    (loss, gradients), (again, others) = found
    torch.testing.assert_close(loss, again, rtol=1e-4, atol=1e-5)
    assert set(gradients) == set(others)
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, others[name], rtol=1e-2, atol=1e-3 * float(gradient.abs().max()) + 1e-7)
