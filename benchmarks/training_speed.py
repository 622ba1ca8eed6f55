"""Speed of every training stage on random data held on the device: steps/s, peak memory, model-FLOPs utilisation.

    python benchmarks/training_speed.py --config base --device cuda --stages 1-5 --seconds 20 --forms eager recorded

A step is the loop's own: accumulation, clipping, optimiser and average included. FLOPs are counted once on an eager
step (forward and backward). Stages 4 and 5 encode their heads in every step, unless --encoded is given: a run encodes a
head once while it is replayed. With --source procedural the virtual stream feeds the steps, and its time is part of
them. Where a step is recorded, its loss and gradients on heads that it was not recorded with are first compared with an
eager step's, as a share of the eager ones; a second eager step tells how much of that a GPU does by itself.
"""

import argparse
import contextlib
import json
import time
import warnings
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch.utils.flop_counter import FlopCounterMode

from tensorldm.baselines.learned.runs import open_run
from tensorldm.batch import Batch, mask_centre
from tensorldm.bundle_files import OURS
from tensorldm.config.run import RunSettings
from tensorldm.config.training import StageConfig
from tensorldm.training.compiling import compile_blocks, compile_objective
from tensorldm.training.devices import Fabric, make_fabric, place
from tensorldm.training.ema import Average
from tensorldm.training.loop import Progress, Stage, accumulate, samples_per_step, train
from tensorldm.training.method import TrainedMethod
from tensorldm.training.numbers import Numbers
from tensorldm.training.paper_stage import PaperStage
from tensorldm.training.recording import record
from tensorldm.training.run import parse_stages
from tensorldm.training.sources import open_source
from tensorldm.training.stage_run import fuse, wrapped_players
from tensorldm.training.stages import attention_mode, joint_modes, settings_of

FIRST_JOINT = 3
"""The stage that lets the components see each other in the decoder."""
PEAK_TFLOP_PER_S = 790.0  # bfloat16 matrix products measured on one H200
WARMUP_STEPS = 3
FORMS = ("eager", "compiled", "recorded")
READ_EVERY = 5
"""Steps between two looks at the numbers, each of which waits for the device."""


class EnoughError(Exception):
    """The time is up."""


@dataclass
class OneBatch:
    """The same random head each time."""

    batch_of: Batch

    def batch(self, *, seed: int, position: int, size: int) -> Batch:  # noqa: ARG002
        return self.batch_of


@dataclass
class AnotherBatch:
    """Random heads that differ from time to time."""

    settings: StageConfig
    device: torch.device

    def batch(self, *, seed: int, position: int, size: int) -> Batch:  # noqa: ARG002
        return random_batch(size, self.settings.box, self.device, seed=position)


def random_batch(number: int, box: tuple[int, int, int], device: torch.device, *, seed: int = 0) -> Batch:
    random = torch.Generator(device=device).manual_seed(seed)
    components = 1e-4 * torch.randn(number, 6, *box, generator=random, device=device)
    components[:, :3] += 8e-4
    axes = [torch.linspace(-1, 1, side, device=device) for side in box]
    mask = torch.stack(torch.meshgrid(*axes, indexing="ij")).square().sum(0) < 0.9
    return Batch(
        dwi=torch.rand(number, 4, *box, generator=random, device=device) * mask,
        bvals=torch.tensor([[0.0, 1000.0, 1000.0, 1000.0]]).repeat(number, 1),
        directions=torch.cat([torch.zeros(1, 3), torch.eye(3)]).repeat(number, 1, 1),
        components=components * mask,
        clean=components * mask,
        mask=mask.repeat(number, 1, 1, 1),
        voxel_size=torch.full((number, 3), 2.0),
        centre=mask_centre(mask.repeat(number, 1, 1, 1)).cpu(),
        subjects=tuple(f"random{i}" for i in range(number)),
    )


@dataclass(frozen=True)
class Subject:
    """What is measured: a stage of a method with these settings."""

    method: TrainedMethod
    config: RunSettings
    number: int
    fabric: Fabric
    encoded: bool = False

    @property
    def settings(self) -> StageConfig:
        return settings_of(self.config, self.number)


def make_stage(subject: Subject, *, source: str, form: str) -> Stage:
    config, number, fabric = subject.config, subject.number, subject.fabric
    settings, work = subject.settings, subject.method.prepare(config, number, start=None)
    if isinstance(work, PaperStage) and number > FIRST_JOINT:  # the decoder as the stage before leaves it
        before = (attention_mode(config.model.decoder_cca), "off")
        work.model.set_joint(*joint_modes(work.outline, config.model, before=before))
    place(work.model, fabric, config.hardware)
    for part in work.parts:
        if fabric.device.type == "cuda":
            fuse(part.optimizer)
        if form == "compiled":
            compile_objective(part.objective)
        if form == "recorded":
            assert record(part.objective), "nothing of this stage can be recorded"
    if form == "compiled":
        compile_blocks(work.model)
    if subject.encoded:
        work.remember(settings.batch_size)
    if source == "random":
        stream = OneBatch(random_batch(settings.batch_size, settings.box, fabric.device))
    else:
        opened = open_source(f"cohort:{source}", config.data, device=fabric.device)
        stream = (opened.patches if work.outline.data == "patches" else opened.volumes)(settings.box)
    players, average = wrapped_players(fabric, work.parts), Average(work.model, config.average)
    return Stage(number, settings, work.model, players, average, stream, seed=0)


def measure(subject: Subject, *, source: str, seconds: float, form: str) -> dict:
    fabric = subject.fabric
    on_gpu = fabric.device.type == "cuda"
    if on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    torch.compiler.reset()
    flops = count_flops(subject)
    stage = make_stage(subject, source=source, form=form)
    times: list[float] = []
    started = time.perf_counter()

    def after_step(step: int, numbers: Numbers) -> None:
        if step == WARMUP_STEPS or step % READ_EVERY == 0:
            numbers.read()  # as often as a run does; waits for the device
        times.append(time.perf_counter())
        warm = step > WARMUP_STEPS and step % READ_EVERY == 0
        if warm and times[-1] - times[WARMUP_STEPS - 1] > seconds:
            raise EnoughError

    with contextlib.suppress(EnoughError):
        train(fabric, stage, Progress(), after_step=after_step)
    per_step = (times[-1] - times[WARMUP_STEPS - 1]) / (len(times) - WARMUP_STEPS)
    row = {
        "stage": subject.number,
        "form": form,
        "encoded_before": subject.encoded,
        "steps_per_s": 1 / per_step,
        "samples_per_s": samples_per_step(fabric, stage.settings) / per_step,
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30 if on_gpu else 0.0,
        "tflop_per_step": flops / 1e12,
        "waits_per_step": count_waits(stage, fabric=fabric) if on_gpu else None,
        "utilisation_percent": 100 * flops / per_step / (PEAK_TFLOP_PER_S * 1e12),
        "first_steps_s": times[WARMUP_STEPS - 1] - started,
        "hours_for_all_steps": stage.settings.steps * per_step / 3600,
    }
    print(json.dumps(row), flush=True)
    return row


def count_waits(stage: Stage, *, fabric) -> int:
    """How often the host waits for the device in one step more; once is to read the numbers at its end."""
    once = replace(stage, settings=stage.settings.model_copy(update={"steps": 1, "minutes": None}))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            train(fabric, once, Progress(), after_step=lambda *_: None)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return sum("synchroniz" in str(warning.message) for warning in found)


def count_flops(subject: Subject) -> float:
    """FLOPs of one step: of one micro-batch, times their number."""
    stage = make_stage(subject, source="random", form="eager")
    stage = replace(stage, settings=stage.settings.model_copy(update={"accumulate": 1}))
    if subject.encoded:
        turns(subject, stage, 0)
    with FlopCounterMode(display=False) as counter:
        turns(subject, stage, 0)
    return counter.get_total_flops() * subject.settings.accumulate


def turns(subject: Subject, stage: Stage, step: int) -> list[float]:
    """Gradients of every player in its turn, and its loss."""
    losses = []
    for player in stage.players:
        player.optimizer.zero_grad(set_to_none=True)
        losses.append(accumulate(subject.fabric, player, stage, step)["loss"])
    return [float(loss) for loss in losses]


def compare(subject: Subject) -> dict:
    """How far loss and gradients of a recorded step are from an eager step's, and those of another eager one."""
    settings = subject.settings.model_copy(update={"accumulate": 1})
    found = []
    for form in ("eager", "eager", "recorded"):
        torch.manual_seed(0)
        stage = make_stage(subject, source="random", form=form)
        stage = replace(stage, settings=settings, stream=AnotherBatch(settings, subject.fabric.device))
        losses = [turns(subject, stage, step) for step in range(3)][-1]  # the first step is recorded
        weights = [each for player in stage.players for each in player.parameters.values()]
        gradients = [each.grad.flatten().float() for each in weights if each.grad is not None]
        found.append((losses[0], torch.cat(gradients).clone()))
        del stage, weights, gradients
    (loss, gradient), *others = found
    shares = {
        f"{name}_{what}_differs_by": share
        for name, (other_loss, other_gradient) in zip(("eager", "recorded"), others, strict=True)
        for what, share in (
            ("loss", abs(other_loss - loss) / abs(loss)),
            ("gradient", float((other_gradient - gradient).norm() / gradient.norm().clamp_min(1e-30))),
        )
    }
    row = {"stage": subject.number, **shares}
    print(json.dumps(row), flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", default=OURS)
    parser.add_argument("--config", default="base")
    parser.add_argument("--device", default="auto", choices=["auto", "cpu", "cuda"])
    parser.add_argument("--stages", help="as 1-5 or 1,2; all of the method's")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--source", default="random", help="random or procedural")
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=["eager"], help="of a step, one after another")
    parser.add_argument("--encoded", action="store_true", help="Stages 4 and 5: heads that were encoded before")
    parser.add_argument("--set", action="append", default=[], dest="overrides")
    parser.add_argument("--out", type=Path)
    wanted = parser.parse_args()
    method, config = open_run(wanted.method, wanted.config, wanted.overrides)
    fabric = make_fabric(config.hardware.model_copy(update={"accelerator": wanted.device}))
    if "recorded" in wanted.forms and fabric.device.type != "cuda":
        parser.error("--forms recorded needs a GPU")
    described = [number for number in method.stages if str(number) in config.stages]
    numbers = parse_stages(wanted.stages, method) if wanted.stages else described
    subjects = [Subject(method, config, number, fabric, encoded=wanted.encoded) for number in numbers]
    several = [each.number for each in subjects if each.settings.accumulate > 1]
    if "recorded" in wanted.forms and several:
        parser.error(f"--forms recorded: stage {several[0]} accumulates, give --set stages.{several[0]}.accumulate=1")
    rows = [
        measure(subject, source=wanted.source, seconds=wanted.seconds, form=form)
        for subject in subjects
        for form in wanted.forms
    ]
    differences = [compare(subject) for subject in subjects] if "recorded" in wanted.forms else []
    if wanted.out:
        found = {
            "method": wanted.method,
            "config": wanted.config,
            "device": str(fabric.device),
            "rows": rows,
            "differences": differences,
        }
        wanted.out.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
