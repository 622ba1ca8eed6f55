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

from tensorldm.batch import Batch, mask_centre
from tensorldm.build import build_model
from tensorldm.config.reading import read_config
from tensorldm.config.run import RunConfig
from tensorldm.config.training import StageConfig
from tensorldm.training.compiling import compile_blocks
from tensorldm.training.devices import make_fabric, place
from tensorldm.training.ema import Average
from tensorldm.training.loop import Opened, Player, Progress, Stage, accumulate, samples_per_step, train
from tensorldm.training.numbers import Numbers
from tensorldm.training.objectives import DenoisingObjective
from tensorldm.training.recording import record
from tensorldm.training.run import parse_stages
from tensorldm.training.sources import open_source
from tensorldm.training.stage_run import fuse
from tensorldm.training.stages import (
    STAGES,
    attention_mode,
    joint_modes,
    make_optimizer,
    set_trainable,
    settings_of,
    switch_decoders,
)

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


def make_stage(config: RunConfig, number: int, *, fabric, source: str, form: str, encoded: bool = False) -> Stage:
    row, settings = STAGES[number], settings_of(config, number)
    model = place(build_model(config.model), fabric, config.hardware)
    before = (attention_mode(config.model.decoder_cca) if number > 3 else "off", "off")
    model.set_joint(*joint_modes(row, config.model, before=before))
    switch_decoders(model, row, config=config.model)
    optimizer, moving = make_optimizer(set_trainable(model, row, config=config.model), settings)
    if fabric.device.type == "cuda":
        fuse(optimizer)
    if form == "compiled":
        compile_blocks(model)
    objective = row.objective(model, config, number)
    if form == "recorded":
        record(objective)
    if encoded and isinstance(objective, DenoisingObjective):
        objective.encoded.remember = settings.batch_size
    wrapped, stepping = fabric.setup(Opened(objective), optimizer)
    if source == "random":
        stream = OneBatch(random_batch(settings.batch_size, settings.box, fabric.device))
    else:
        opened = open_source(f"cohort:{source}", config.data, device=fabric.device)
        stream = (opened.patches if row.data == "patches" else opened.volumes)(settings.box)
    players = [Player("model", wrapped, moving, stepping)]
    return Stage(number, settings, model, players, Average(model, config.average), stream, seed=0)


def measure(config: RunConfig, number: int, *, fabric, source: str, seconds: float, form: str, encoded: bool) -> dict:
    on_gpu = fabric.device.type == "cuda"
    if on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    torch.compiler.reset()
    flops = count_flops(config, number, fabric=fabric, encoded=encoded)
    stage = make_stage(config, number, fabric=fabric, source=source, form=form, encoded=encoded)
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
        "stage": number,
        "form": form,
        "encoded_before": encoded,
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


def count_flops(config: RunConfig, number: int, *, fabric, encoded: bool) -> float:
    """FLOPs of one step: of one micro-batch, times their number."""
    settings = settings_of(config, number).model_copy(update={"accumulate": 1})
    stage = make_stage(config, number, fabric=fabric, source="random", form="eager", encoded=encoded)
    stage = replace(stage, settings=settings)
    if encoded:
        accumulate(fabric, stage.players[0], stage, 0)
    with FlopCounterMode(display=False) as counter:
        accumulate(fabric, stage.players[0], stage, 0)
    return counter.get_total_flops() * settings_of(config, number).accumulate


def compare(config: RunConfig, number: int, *, fabric) -> dict:
    """How far loss and gradients of a recorded step are from an eager step's, and those of another eager one."""
    settings = settings_of(config, number).model_copy(update={"accumulate": 1})
    found = []
    for form in ("eager", "eager", "recorded"):
        torch.manual_seed(0)
        stage = make_stage(config, number, fabric=fabric, source="random", form=form)
        stage = replace(stage, settings=settings, stream=AnotherBatch(settings, fabric.device))
        player = stage.players[0]
        for step in range(3):  # the first is recorded
            player.optimizer.zero_grad(set_to_none=True)
            loss = accumulate(fabric, player, stage, step)["loss"]
        gradients = [each.grad.flatten().float() for each in player.parameters.values() if each.grad is not None]
        found.append((float(loss), torch.cat(gradients)))
        del stage, player
    (loss, gradient), *others = found
    shares = {
        f"{name}_{what}_differs_by": share
        for name, (other_loss, other_gradient) in zip(("eager", "recorded"), others, strict=True)
        for what, share in (
            ("loss", abs(other_loss - loss) / abs(loss)),
            ("gradient", float((other_gradient - gradient).norm() / gradient.norm())),
        )
    }
    row = {"stage": number, **shares}
    print(json.dumps(row), flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="base")
    parser.add_argument("--device", default="auto", choices=["auto", "cpu", "cuda"])
    parser.add_argument("--stages", default="1-5")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--source", default="random", help="random or procedural")
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=["eager"], help="of a step, one after another")
    parser.add_argument("--encoded", action="store_true", help="Stages 4 and 5: heads that were encoded before")
    parser.add_argument("--set", action="append", default=[], dest="overrides")
    parser.add_argument("--out", type=Path)
    wanted = parser.parse_args()
    config = read_config(RunConfig, wanted.config, wanted.overrides)
    fabric = make_fabric(config.hardware.model_copy(update={"accelerator": wanted.device}))
    if "recorded" in wanted.forms and fabric.device.type != "cuda":
        parser.error("--forms recorded needs a GPU")
    rows = [
        measure(
            config,
            number,
            fabric=fabric,
            source=wanted.source,
            seconds=wanted.seconds,
            form=form,
            encoded=wanted.encoded,
        )
        for number in parse_stages(wanted.stages)
        for form in wanted.forms
    ]
    differences = []
    if "recorded" in wanted.forms:
        differences = [compare(config, number, fabric=fabric) for number in parse_stages(wanted.stages)]
    if wanted.out:
        found = {"config": wanted.config, "device": str(fabric.device), "rows": rows, "differences": differences}
        wanted.out.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
