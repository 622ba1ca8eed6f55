"""One stage of a run: made ready from its start, resumed where it stopped, trained, validated, handed on."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, isfinite
from pathlib import Path

import torch
from torch.optim import Adam, Optimizer

from tensorldm.batch import Batch
from tensorldm.config.run import RunSettings
from tensorldm.config.training import StageConfig
from tensorldm.errors import ConfigError
from tensorldm.training.again import Again
from tensorldm.training.checkpoint import (
    Checkpoint,
    load_optimizer_tensors,
    optimizer_tensors,
    read_newest,
    write_checkpoint,
)
from tensorldm.training.compiling import compile_blocks, compile_objective
from tensorldm.training.devices import Fabric, place
from tensorldm.training.ema import Average
from tensorldm.training.loop import CLOCK_STEPS, Opened, Player, Progress, Stage, held_still, train
from tensorldm.training.method import Part, StageWork
from tensorldm.training.numbers import Numbers
from tensorldm.training.recording import forget, record
from tensorldm.training.runlog import RunLog
from tensorldm.training.schedule import expected_steps, is_over
from tensorldm.training.signals import StoppedError, StopRequest
from tensorldm.training.sources import Source
from tensorldm.training.stages import settings_of
from tensorldm.training.streams import Stream
from tensorldm.training.validation import SCORE, colour_fa_picture, held_out_loss, validate


@dataclass(frozen=True)
class Session:
    """What the stages of one run share."""

    config: RunSettings
    fabric: Fabric
    source: Source
    log: RunLog
    stop: StopRequest


def leave_if_asked(fabric: Fabric, stop: StopRequest, *, where: str) -> None:
    """End here, where all there is has been written down.

    A signal may reach only one of several processes: each of them comes by, and all leave together.
    """
    asked = bool(stop)
    if fabric.world_size > 1:
        answer = torch.tensor(float(asked), device=fabric.device)
        asked = bool(fabric.all_reduce(answer, reduce_op="sum") > 0)
    if asked:
        raise StoppedError(f"Stopped by {stop.name or 'another process'} {where}; the same command goes on from here.")


class StageRun:
    """A stage of any method on its device, ready to train."""

    def __init__(self, session: Session, work: StageWork, *, folder: Path) -> None:
        self.session, self.work, self.folder = session, work, folder
        config, fabric = session.config, session.fabric
        self.number = work.outline.number
        self.settings = settings_of(config, self.number)
        check_box(work, self.settings, validates=config.validation.subjects > 0)
        self.model = place(work.model, fabric, config.hardware)
        if fabric.device.type == "cuda":
            for part in work.parts:
                fuse(part.optimizer)
        self.progress = Progress()
        self._resume_or_begin()
        work.remember(session.source.repeating)
        if self.settings.compile:
            compile_blocks(self.model)
            for part in work.parts:
                compile_objective(part.objective)
        if self.settings.record:
            record_parts(work.parts, self.number, fabric)
        make_stream = session.source.patches if work.outline.data == "patches" else session.source.volumes
        stream: Stream = make_stream(self.settings.box)
        self.stage = Stage(
            number=self.number,
            settings=self.settings,
            model=self.model,
            players=wrapped_players(fabric, work.parts),
            average=self.average,
            stream=stream if len(work.parts) == 1 else Again(stream, self.settings.accumulate),
            seed=config.seed,
            clock_every=gcd(CLOCK_STEPS, config.keep.log_every, config.keep.every, config.validation.every),
        )
        self.held_out: list[Batch] = []

    def train(self) -> None:
        """To the stage's end; the averaged weights become its bundle. What follows has the memory for itself."""
        try:
            self._train()
        finally:
            forget(part.objective for part in self.work.parts)

    def _train(self) -> None:
        title = f"Stage {self.number}: {self.work.outline.title}"
        self.session.log.begin(title, step=self.progress.step, steps=self.settings.steps)
        if self.session.config.validation.subjects:
            self.held_out = self.session.source.validation_subjects(
                self.session.config.validation.subjects,
                box=self.work.validation_box,
                device=self.session.fabric.device,
                seed=self.session.config.seed,
                pause=self._pause,
            )
            if self.progress.step == 0:
                self.session.log.record("start", stage=self.number, step=0, loss=self._held_out_loss())
            if self.progress.validation_due:
                self._validate()
        train(self.session.fabric, self.stage, self.progress, after_step=self._after_step)
        measures = self._validate() if self.held_out else {}
        self._write_bundle("bundle", measures)

    def _after_step(self, step: int, numbers: Numbers) -> None:
        config, log = self.session.config, self.session.log
        log.advance(step, steps=expected_steps(self.settings, step, seconds=self.progress.seconds))
        last = is_over(self.settings, step, seconds=self.progress.seconds)
        if step % config.keep.log_every == 0 or last:
            log.record("train", stage=self.number, step=step, **numbers.read())
        stopped: StoppedError | None = None
        try:
            self._pause()
            if self.held_out and step % config.validation.every == 0 and not last:
                numbers.check()
                self._validate()
        except StoppedError as asked:
            stopped = asked
            # Whoever goes on validates first: the best weights are those that they would have been.
            self.progress.validation_due = bool(self.held_out) and step % config.validation.every == 0 and not last
        if step % config.keep.every == 0 or last or stopped:
            numbers.check()
            self._save()
        if stopped is not None:
            raise stopped

    def _pause(self) -> None:
        where = f"in Stage {self.number}, step {self.progress.step}"
        leave_if_asked(self.session.fabric, self.session.stop, where=where)

    @torch.no_grad()
    def _validate(self) -> dict[str, float]:
        """Measure the averaged weights; every process does the same, so that none waits for another.

        The first one's figures are everybody's: GPUs may differ in the last digit, and where only some of the processes
        found these weights the best, they would wait for the others without end.
        """
        self.model.eval()
        with self.average.applied(), self.session.fabric.autocast():
            found, first = validate(self.work.reconstruct, self.held_out, pause=self._pause)
            loss = self._held_out_loss()
        self.model.train()
        measures: dict[str, float] = self.session.fabric.broadcast(found)
        number, step = self.number, self.progress.step
        self.session.log.record("validation", stage=number, step=step, loss=loss, **measures)
        picture = colour_fa_picture(self.held_out[0], first)
        self.session.log.picture("colour FA: reference, reconstruction", picture, stage=number, step=step)
        self.progress.validation_due = False
        if self.progress.best is None or measures[SCORE] < self.progress.best:
            self.progress.best = measures[SCORE]
            self._write_bundle("best", measures)
        return measures

    @torch.no_grad()
    def _held_out_loss(self) -> float | None:
        """Of the weights as they are; nothing where it is no number."""
        objective = self.work.parts[0].objective.eval()
        with self.session.fabric.autocast():
            loss = held_out_loss(objective, self.held_out, pause=self._pause)
        objective.train()
        return loss if isfinite(loss) else None

    def _resume_or_begin(self) -> None:
        """Go on from the newest checkpoint, or begin: then the stage measures what it fixes once."""
        saved = read_newest(self.folder / "checkpoints")
        if saved is None:
            self.work.begin(self.session.source.interrupted_by(self._pause), self.session.fabric.device)
        self.average = Average(self.model, self.session.config.average)
        if saved is None:
            return
        self.model.load_state_dict(saved.owned_by("model"))
        self.average.load(saved.owned_by("average"))
        for part in self.work.parts:
            tensors = saved.owned_by(f"optimizer/{part.name}")
            load_optimizer_tensors(part.optimizer, list(part.moving), tensors=tensors)
        known = saved.numbers
        self.progress = Progress(
            saved.step, known["best"], known.get("seconds", 0.0), known.get("validation_due", False)
        )
        self.session.log.say(f"Stage {self.number} goes on from step {saved.step}.")

    def _save(self) -> None:
        if self.session.fabric.is_global_zero:
            owned = {"model": self.model.state_dict(), "average": self.average.values}
            for part in self.work.parts:
                owned[f"optimizer/{part.name}"] = optimizer_tensors(part.optimizer, list(part.moving))
            tensors = {f"{owner}/{name}": value for owner, part in owned.items() for name, value in part.items()}
            now = self.progress
            numbers = {"best": now.best, "seconds": now.seconds, "validation_due": now.validation_due}
            point = Checkpoint(now.step, tensors, numbers)
            write_checkpoint(self.folder / "checkpoints", point, keep=self.session.config.keep.last)
        self.session.fabric.barrier()

    def _write_bundle(self, name: str, measures: dict[str, float]) -> None:
        if self.session.fabric.is_global_zero:
            before = self.work.card
            card = before.model_copy(
                update={
                    "stages": (*before.stages, self.number),
                    "data": self.session.source.description,
                    "num_anatomies": self.session.source.num_anatomies,
                    "measures": measures,
                }
            )
            self.work.write(self.folder / name, self.average.values, card=card)
        self.session.fabric.barrier()


def wrapped_players(fabric: Fabric, parts: Sequence[Part]) -> list[Player]:
    """Each part as a player; a strategy that reduces gradients hears of the player's own parameters alone."""
    players = []
    for part in parts:
        others = [other for other in parts if other is not part]
        with held_still(part.moving, *(other.moving for other in others)):
            wrapped, stepping = fabric.setup(Opened(part.objective), part.optimizer)
        players.append(Player(part.name, wrapped, part.moving, stepping))
    return players


def fuse(optimizer: Optimizer) -> None:
    """One kernel for all of an optimiser's parameters, which also sees for itself when a step must not be taken."""
    if isinstance(optimizer, Adam):
        for group in optimizer.param_groups:
            group["fused"] = True


def record_parts(parts: Sequence[Part], number: int, fabric: Fabric) -> None:
    """Record every part's loss; on a CPU there is nothing to gain and nothing is done."""
    if fabric.world_size > 1:
        raise ConfigError(f"stages.{number}.record works on one GPU, not on {fabric.world_size}. Leave it out.")
    if fabric.device.type == "cuda" and not all(record(part.objective) for part in parts):
        raise ConfigError(f"stages.{number}.record: nothing of this method's stage can be recorded. Leave it out.")


def check_box(work: StageWork, settings: StageConfig, *, validates: bool) -> None:
    """A loss never pads inside the model, on held-out heads either: a box is made of whole latents."""
    multiple, number = work.side_multiple, work.outline.number
    boxes = {f"stages.{number}.box": settings.box}
    if validates:
        boxes |= {f"The box of whole volumes, in which Stage {number} is validated,": work.validation_box}
    for name, box in boxes.items():
        if any(side % multiple for side in box):
            raise ConfigError(
                f"{name} is {list(box)}, but this model needs sides that are multiples of {multiple}. "
                f"Use {[-(-side // multiple) * multiple for side in box]}."
            )
