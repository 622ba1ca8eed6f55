from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from torch import nn

from tensorldm.config.training import AverageConfig, StageConfig
from tensorldm.errors import TensorldmError
from tensorldm.training import loop
from tensorldm.training.ema import Average
from tensorldm.training.loop import Opened, Player, Progress, Stage, samples, train


class _OneProcess:
    """What the loop needs of Fabric, without Fabric; ``rank`` and ``world_size`` only choose samples."""

    device = torch.device("cpu")

    def __init__(self, rank: int = 0, world_size: int = 1) -> None:
        self.global_rank, self.world_size = rank, world_size

    def backward(self, tensor):
        tensor.backward()

    def no_backward_sync(self, module, enabled):
        return nullcontext()

    def clip_gradients(self, module, optimizer, *, max_norm, error_if_nonfinite):
        return torch.nn.utils.clip_grad_norm_(module.parameters(), max_norm)

    def all_reduce(self, data, *, reduce_op):
        return data


class _MeanDiffusivity(nn.Module):
    """Learns the mean diffusivity of the heads; its best answer is known."""

    def __init__(self) -> None:
        super().__init__()
        self.guess = nn.Parameter(torch.zeros(()))
        self.seen: list[int] = []

    def forward(self, batch, positions):
        self.seen += positions.tolist()
        truth = torch.stack([c[:3].mean(0)[m].mean() for c, m in zip(batch.components, batch.mask, strict=True)])
        return (1e3 * truth - self.guess).square().mean(), {"guess": self.guess.detach()}


def _stage(heads, *, objective: nn.Module | None = None, **settings) -> Stage:
    objective = objective or _MeanDiffusivity()
    config = StageConfig(**{"steps": 60, "box": (8, 8, 8), "learning_rate": 0.05, **settings})
    optimizer = torch.optim.Adam(objective.parameters(), lr=config.learning_rate)
    player = Player("model", Opened(objective), dict(objective.named_parameters()), optimizer)
    return Stage(1, config, objective, [player], Average(objective, AverageConfig()), heads, seed=0)


def _nothing(step: int, numbers: dict[str, float]) -> None:
    return None


def test_the_loop_learns_a_number_whose_value_is_known(heads):
    stage = _stage(heads, batch_size=4)
    train(_OneProcess(), stage, Progress(), after_step=_nothing)
    assert float(stage.model.guess.detach()) == pytest.approx(0.8, abs=0.05)


def test_accumulating_gives_the_same_weights_as_one_large_batch(heads):
    large, parts = _stage(heads, steps=5, batch_size=4), _stage(heads, steps=5, batch_size=2, accumulate=2)
    for stage in (large, parts):
        train(_OneProcess(), stage, Progress(), after_step=_nothing)
    assert sorted(large.model.seen) == sorted(parts.model.seen) == list(range(20))
    assert torch.allclose(large.model.guess, parts.model.guess, atol=1e-6)


def test_processes_share_the_positions_out_without_gap_or_overlap(heads):
    stage = _stage(heads, batch_size=2, accumulate=3)
    seen = [
        int(position)
        for step in range(2)
        for micro in range(3)
        for rank in range(2)
        for position in samples(_OneProcess(rank, 2), stage, step, micro=micro)[1]
    ]
    assert seen == list(range(24))


def test_a_loss_that_is_no_number_is_refused_before_the_weights_move(heads):
    class Broken(_MeanDiffusivity):
        def forward(self, batch, positions):
            loss, logs = super().forward(batch, positions)
            return loss * (float("nan") if 3 in positions.tolist() else 1.0), logs

    stage = _stage(heads, objective=Broken())
    progress = Progress()
    before: list[float] = []
    with pytest.raises(TensorldmError, match=r"Stage 1, step 3: loss.*not finite.*learning_rate"):
        train(_OneProcess(), stage, progress, after_step=lambda *_: before.append(float(stage.model.guess.detach())))
    assert progress.step == 3
    assert float(stage.model.guess.detach()) == before[-1]


def test_a_fused_optimizer_leaves_the_weights_alone_without_being_waited_for(heads):
    """As on a GPU, where nobody reads the loss in every step: the broken step is skipped and told of when asked."""

    class Broken(_MeanDiffusivity):
        def forward(self, batch, positions):
            loss, logs = super().forward(batch, positions)
            return loss * (float("nan") if 3 in positions.tolist() else 1.0), logs

    stage = _stage(heads, objective=Broken(), steps=6)
    for group in stage.players[0].optimizer.param_groups:
        group["fused"] = True
    values: list[float] = []
    with pytest.raises(TensorldmError, match=r"Stage 1, step 3: loss, gradient_norm is not finite"):
        train(_OneProcess(), stage, Progress(), after_step=lambda *_: values.append(float(stage.model.guess.detach())))
    assert values[3] == values[2], "not moved"
    assert len(set(values)) == 5, "every other step was taken"


def test_a_fused_optimizer_learns_what_a_plain_one_learns(heads):
    plain, fused = _stage(heads, steps=8), _stage(heads, steps=8)
    for group in fused.players[0].optimizer.param_groups:
        group["fused"] = True
    for stage in (plain, fused):
        train(_OneProcess(), stage, Progress(), after_step=_nothing)
    assert float(fused.model.guess.detach()) == pytest.approx(float(plain.model.guess.detach()), rel=1e-5)


def test_numbers_are_read_when_asked_for_and_count_the_samples_since(heads):
    read = []

    def every_third(step, numbers):
        if step % 3 == 0:
            read.append(numbers.read())

    stage = _stage(heads, steps=6, batch_size=2)
    train(_OneProcess(), stage, Progress(), after_step=every_third)
    assert [set(each) for each in read] == [{"loss", "guess", "gradient_norm", "samples_per_second"}] * 2
    assert read[1]["loss"] < read[0]["loss"]


def test_a_budget_of_minutes_ends_a_stage_and_turns_its_rate_down(heads, monkeypatch):
    """The clock is the test's: looked at twice a step, a step takes three seconds."""
    now = [0.0]

    def tick() -> float:
        now[0] += 3.0  # looked at twice a step
        return now[0]

    stage = _stage(heads, steps=1000, minutes=1.0, decay="cosine")
    monkeypatch.setattr(loop.time, "perf_counter", tick)
    rates, progress = [], Progress()
    train(_OneProcess(), stage, progress, after_step=lambda *_: rates.append(_rate(stage)))
    assert progress.seconds == pytest.approx(60, abs=4)
    assert progress.step == pytest.approx(20, abs=1)
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] < 0.05 * rates[0]


def _rate(stage: Stage) -> float:
    return stage.players[0].optimizer.param_groups[0]["lr"]


def test_stopping_after_a_step_and_going_on_gives_the_same_weights(heads):
    class EnoughError(Exception):
        pass

    def until_four(step: int, numbers: dict[str, float]) -> None:
        if step == 4:
            raise EnoughError

    unbroken, broken = _stage(heads, steps=8), _stage(heads, steps=8)
    train(_OneProcess(), unbroken, Progress(), after_step=_nothing)
    progress = Progress()
    with pytest.raises(EnoughError):
        train(_OneProcess(), broken, progress, after_step=until_four)
    train(_OneProcess(), broken, progress, after_step=_nothing)
    assert torch.equal(unbroken.model.guess, broken.model.guess)


def test_with_two_players_each_moves_its_own_parameters_alone(heads):
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.maker, self.judge = nn.Parameter(torch.tensor(1.0)), nn.Parameter(torch.tensor(1.0))

    class Side(nn.Module):
        def __init__(self, pair: Pair, sign: float) -> None:
            super().__init__()
            self.pair, self.sign = pair, sign

        def forward(self, batch, positions):
            return self.sign * self.pair.maker * self.pair.judge, {}

    pair = Pair()
    players = []
    for name, sign in (("maker", 1.0), ("judge", -1.0)):
        parameter = getattr(pair, name)
        players.append(Player(name, Opened(Side(pair, sign)), {name: parameter}, torch.optim.SGD([parameter], lr=0.1)))
    stage = replace(_stage(heads, steps=1), model=pair, players=players, average=Average(pair, AverageConfig()))
    train(_OneProcess(), stage, Progress(), after_step=_nothing)
    assert float(pair.maker.detach()) == pytest.approx(1.0 - 0.1 * 1.0)
    assert float(pair.judge.detach()) == pytest.approx(1.0 + 0.1 * 0.9)


def test_minutes_count_what_a_device_has_done_and_not_what_was_asked_of_it(heads, monkeypatch):
    """The host asks for a step in 0.1 s, the device does it in 2 s: a minute holds thirty steps, not six hundred."""
    now, queued, waits = [0.0], [0.0], []

    def tick() -> float:
        now[0] += 0.05  # looked at twice a step
        queued[0] += 1.0 - 0.05
        return now[0]

    def wait(device: torch.device) -> None:
        now[0], queued[0] = now[0] + max(queued[0], 0.0), 0.0
        waits.append(device)

    stage = _stage(heads, steps=1000, minutes=1.0)
    monkeypatch.setattr(loop.time, "perf_counter", tick)
    monkeypatch.setattr(loop, "wait_for", wait)
    progress = Progress()
    train(_OneProcess(), stage, progress, after_step=_nothing)
    assert progress.step == pytest.approx(30, abs=loop.CLOCK_STEPS)
    assert len(waits) <= progress.step / loop.CLOCK_STEPS, "not in each step"
    waits.clear()
    train(_OneProcess(), replace(stage, settings=stage.settings.model_copy(update={"minutes": None, "steps": 20})),
          Progress(), after_step=_nothing)  # fmt: skip
    assert not waits, "where no clock decides, nobody waits"
