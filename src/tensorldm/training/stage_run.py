"""One stage of a run: made ready from its start, resumed where it stopped, trained, validated, handed on."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from tensorldm.batch import Batch
from tensorldm.build import build_model, build_scaling
from tensorldm.bundle import Card, load_bundle, write_bundle
from tensorldm.config.run import RunConfig
from tensorldm.errors import ConfigError
from tensorldm.model import TensorLDM
from tensorldm.networks.attention import AttentionMode
from tensorldm.rng import generator
from tensorldm.shapes import Components
from tensorldm.training.checkpoint import (
    Checkpoint,
    load_optimizer_tensors,
    optimizer_tensors,
    read_newest,
    write_checkpoint,
)
from tensorldm.training.compiling import compile_blocks
from tensorldm.training.devices import Fabric, place
from tensorldm.training.ema import Average
from tensorldm.training.latents import measure_latent_scale
from tensorldm.training.loop import Opened, Player, Progress, Stage, train
from tensorldm.training.objectives import DenoisingObjective
from tensorldm.training.runlog import RunLog
from tensorldm.training.signals import StopRequest
from tensorldm.training.sources import Source
from tensorldm.training.stages import StageRow, joint_modes, make_optimizer, set_trainable, settings_of
from tensorldm.training.validation import SCORE, colour_fa_picture, validate

Joint = tuple[AttentionMode, AttentionMode]


class StoppedError(Exception):
    """Somebody asked the run to end; what there is has been written down."""


@dataclass(frozen=True)
class Session:
    """What the stages of one run share."""

    config: RunConfig
    fabric: Fabric
    source: Source
    log: RunLog
    stop: StopRequest


class StageRun:
    """A stage that is ready to train."""

    def __init__(self, session: Session, row: StageRow, *, folder: Path, start: Path | None) -> None:
        self.session, self.row, self.folder = session, row, folder
        config, fabric = session.config, session.fabric
        self.settings = settings_of(config, row.number)
        model, before, self.card = starting_model(config, start)
        self.joint = joint_modes(row, config.model, before=before)
        self.model = place(model, fabric, config.hardware)
        self.model.set_joint(*self.joint)
        check_box(self.model, config, row.number)
        moving = set_trainable(self.model, row, config=config.model)
        self.optimizer, self.moving = make_optimizer(moving, self.settings)
        self.average = Average(self.model, config.average)
        self.progress = Progress()
        self._resume()
        objective = row.objective(self.model, config, row.number)
        if isinstance(objective, DenoisingObjective):
            objective.encoded.remember = session.source.repeats
        if self.settings.compile:
            compile_blocks(self.model)
        wrapped, stepping = fabric.setup(Opened(objective), self.optimizer)
        make_stream = session.source.patches if row.data == "patches" else session.source.volumes
        self.stage = Stage(
            number=row.number,
            settings=self.settings,
            model=self.model,
            players=[Player("model", wrapped, self.moving, stepping)],
            average=self.average,
            stream=make_stream(self.settings.box),
            seed=config.seed,
        )
        self.held_out: list[Batch] = []

    def train(self) -> None:
        """To the stage's end; the averaged weights become its bundle."""
        row, steps = self.row, self.settings.steps
        self.session.log.begin(f"Stage {row.number}: {row.title}", step=self.progress.step, steps=steps)
        if self.session.config.validation.subjects:
            self.held_out = self.session.source.validation_subjects(
                self.session.config.validation.subjects,
                box=self.settings.box if row.data == "volumes" else settings_of(self.session.config, 2).box,
                device=self.session.fabric.device,
                seed=self.session.config.seed,
            )
        train(self.session.fabric, self.stage, self.progress, after_step=self._after_step)
        measures = self._validate() if self.held_out else {}
        self._write_bundle("bundle", measures)

    def _after_step(self, step: int, numbers: dict[str, float]) -> None:
        config, log = self.session.config, self.session.log
        log.advance(step)
        last = step == self.settings.steps
        if step % config.keep.log_every == 0 or last:
            log.record("train", stage=self.row.number, step=step, **numbers)
        if self.held_out and step % config.validation.every == 0 and not last:
            self._validate()
        stop = self._stop_asked()
        if step % config.keep.every == 0 or last or stop:
            self._save()
        if stop:
            raise StoppedError(
                f"Stopped by {self.session.stop.name or 'another process'} after Stage {self.row.number}, step {step}; "
                "the same command goes on from here."
            )

    def _stop_asked(self) -> bool:
        """All processes stop together: a signal may reach only one of them."""
        fabric = self.session.fabric
        if fabric.world_size == 1:
            return bool(self.session.stop)
        asked = torch.tensor(float(bool(self.session.stop)), device=fabric.device)
        return bool(fabric.all_reduce(asked, reduce_op="sum") > 0)

    @torch.no_grad()
    def _validate(self) -> dict[str, float]:
        """Measure the averaged weights; every process does the same, so that none waits for another."""
        self.model.eval()
        with self.average.applied(), self.session.fabric.autocast():
            measures = validate(self.reconstruct, self.held_out)
            picture = colour_fa_picture(self.held_out[0], self.reconstruct(self.held_out[0], torch.tensor([0])))
        self.model.train()
        number, step = self.row.number, self.progress.step
        self.session.log.record("validation", stage=number, step=step, **measures)
        self.session.log.picture("colour FA: reference, reconstruction", picture, stage=number, step=step)
        if self.progress.best is None or measures[SCORE] < self.progress.best:
            self.progress.best = measures[SCORE]
            self._write_bundle("best", measures)
        return measures

    def reconstruct(self, batch: Batch, positions: Tensor) -> Components:
        """Components in mm²/s: from noise in Phase II, by encoding and decoding the reference in Phase I."""
        model, scaling = self.model, build_scaling(self.session.config.model)
        x, y, z = batch.mask.shape[1:]
        if self.row.samples:
            random = generator(self.session.config.seed, "validation noise", int(positions[0]))
            noise = torch.randn(model.latent_shape(1, (x, y, z)), generator=random).to(batch.dwi.device)
            found = model.reconstruct(
                batch.dwi,
                batch.bvals,
                directions=batch.directions,
                mask=batch.mask,
                voxel_size=batch.voxel_size,
                noise=noise,
                num_steps=self.session.config.validation.sampler_steps,
            )
        elif self.row.expects:
            found = model.expect(
                batch.dwi, batch.bvals, directions=batch.directions, mask=batch.mask, voxel_size=batch.voxel_size
            )
        else:
            features = model.scan_features(
                batch.dwi, batch.bvals, directions=batch.directions, mask=batch.mask, voxel_size=batch.voxel_size
            )
            found = model.decode(model.encode(scaling.scale(batch.components), features), features, size=(x, y, z))
        return scaling.unscale(found.float()) * batch.mask[:, None]

    def _resume(self) -> None:
        """Go on from the newest checkpoint, or begin: then the latents' scale is set where the stage does that."""
        config = self.session.config
        saved = read_newest(self.folder / "checkpoints")
        if saved is None:
            if self.row.sets_latent_scale:
                measure_latent_scale(
                    self.model,
                    self.session.source,
                    box=self.settings.box,
                    scaling=build_scaling(config.model),
                    seed=config.seed,
                    device=self.session.fabric.device,
                )
                self.average = Average(self.model, config.average)
            return
        self.model.load_state_dict(saved.owned_by("model"))
        self.average.load(saved.owned_by("average"))
        load_optimizer_tensors(self.optimizer, list(self.moving), tensors=saved.owned_by("optimizer/model"))
        self.progress = Progress(saved.step, saved.numbers["best"])
        self.session.log.say(f"Stage {self.row.number} goes on from step {saved.step}.")

    def _save(self) -> None:
        if self.session.fabric.is_global_zero:
            parts = {
                "model": self.model.state_dict(),
                "average": self.average.values,
                "optimizer/model": optimizer_tensors(self.optimizer, list(self.moving)),
            }
            tensors = {f"{owner}/{name}": value for owner, part in parts.items() for name, value in part.items()}
            point = Checkpoint(self.progress.step, tensors, {"best": self.progress.best})
            write_checkpoint(self.folder / "checkpoints", point, keep=self.session.config.keep.last)
        self.session.fabric.barrier()

    def _write_bundle(self, name: str, measures: dict[str, float]) -> None:
        if self.session.fabric.is_global_zero:
            card = self.card.model_copy(
                update={
                    "stages": (*self.card.stages, self.row.number),
                    "data": self.session.source.description,
                    "num_anatomies": self.session.source.num_anatomies,
                    "measures": measures,
                }
            )
            config = self.session.config.model
            write_bundle(self.folder / name, self.average.values, config=config, joint=self.joint, card=card)
        self.session.fabric.barrier()


def starting_model(config: RunConfig, start: Path | None) -> tuple[TensorLDM, Joint, Card]:
    """The model that a stage begins with, how its parts are joined, and the card of what was trained before."""
    if start is None:
        return build_model(config.model, config.seed), ("off", "off"), Card()
    model, info = load_bundle(start)
    if info.model != config.model:
        raise ConfigError(
            f"{start}: a model of another size or form than the configuration's. Use the one it was made with."
        )
    return model.train(), (info.decoder_joint, info.unet_joint), info.card


def check_box(model: TensorLDM, config: RunConfig, stage: int) -> None:
    """Training never pads inside the model: a box is made of whole latents."""
    box, multiple = settings_of(config, stage).box, model.side_multiple
    if any(side % multiple for side in box):
        raise ConfigError(
            f"stages.{stage}.box is {list(box)}, but this model needs sides that are multiples of {multiple}. "
            f"Use {[-(-side // multiple) * multiple for side in box]}."
        )
