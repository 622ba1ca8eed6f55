"""TensorLDM as the training loop sees a method: its stages are the rows of `stages.STAGES`."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from tensorldm.batch import Batch
from tensorldm.build import build_model, build_scaling
from tensorldm.bundle import BundleInfo, Card, load_bundle, read_info, write_bundle
from tensorldm.config.model import ModelConfig
from tensorldm.config.run import RunConfig
from tensorldm.config.training import Box
from tensorldm.errors import ConfigError
from tensorldm.model import TensorLDM
from tensorldm.networks.attention import AttentionMode
from tensorldm.rng import generator
from tensorldm.shapes import Components
from tensorldm.training.latents import measure_latent_scale
from tensorldm.training.method import Part
from tensorldm.training.objectives import DenoisingObjective
from tensorldm.training.sources import Source
from tensorldm.training.stages import (
    STAGES,
    StageRow,
    joint_modes,
    make_optimizer,
    set_trainable,
    settings_of,
    switch_decoders,
)

Joint = tuple[AttentionMode, AttentionMode]
WHOLE_VOLUMES = 2
"""The stage whose box whole heads have; patches are validated on it too."""
PROBE_SIDES = {False: 32, True: 64}
"""Voxels a side of the volume that memory is measured on, in Phase I and II; activations grow with their number. The
U-Net works on a sixteenth of a side, where windows of a small volume would be mostly padding."""


class PaperStage:
    """One row of the table, made ready."""

    def __init__(self, config: RunConfig, row: StageRow, *, start: Path | None) -> None:
        self.config, self.outline = config, row
        self.settings = settings_of(config, row.number)
        self.model, before, self.card = starting_model(config, start)
        self.joint = joint_modes(row, config.model, before=before)
        self.model.set_joint(*self.joint)
        switch_decoders(self.model, row, config=config.model)
        optimizer, moving = make_optimizer(set_trainable(self.model, row, config=config.model), self.settings)
        self.objective = row.objective(self.model, config, row.number)
        self.parts = (Part("model", self.objective, moving, optimizer),)

    @property
    def side_multiple(self) -> int:
        """A box is made of whole latents."""
        return self.model.side_multiple

    @property
    def probe(self) -> Box:
        """A cube that the model need not pad."""
        side = -(-PROBE_SIDES[self.outline.samples] // self.side_multiple) * self.side_multiple
        return side, side, side

    @property
    def validation_box(self) -> Box:
        """The stage's own, or that of whole volumes where it has patches."""
        whole = self.outline.data == "volumes"
        return self.settings.box if whole else settings_of(self.config, WHOLE_VOLUMES).box

    def begin(self, source: Source, device: torch.device) -> None:
        """Set the latents' scale, in the stage that does."""
        if self.outline.sets_latent_scale:
            measure_latent_scale(
                self.model,
                source,
                box=self.settings.box,
                scaling=build_scaling(self.config.model),
                seed=self.config.seed,
                device=device,
            )

    def remember(self, number: int) -> None:
        """Encode each subject once."""
        if isinstance(self.objective, DenoisingObjective):
            self.objective.encoded.remember = number

    def reconstruct(self, batch: Batch, positions: Tensor) -> Components:
        """Components in mm²/s: from noise in Phase II, by encoding and decoding the reference in Phase I."""
        model, scaling = self.model, build_scaling(self.config.model)
        x, y, z = batch.mask.shape[1:]
        if self.outline.samples:
            random = generator(self.config.seed, "validation noise", int(positions[0]))
            noise = torch.randn(model.latent_shape(1, (x, y, z)), generator=random).to(batch.dwi.device)
            found = model.draw(model.read(**batch.scan), noise, num_steps=self.config.validation.sampler_steps)
        elif self.outline.expects:
            found = model.expect(**batch.scan)
        else:
            features = model.scan_features(**batch.scan)
            found = model.decode(model.encode(scaling.scale(batch.components), features), features, size=(x, y, z))
        return scaling.unscale(found.float()) * batch.mask[:, None]

    def write(self, folder: Path, weights: dict[str, Tensor], *, card: Card) -> None:
        """A bundle of TensorLDM, joined as this stage joins it."""
        write_bundle(folder, weights, config=self.config.model, joint=self.joint, card=card)


class PaperMethod:
    """The paper's method, with the expectation before it where a model has one."""

    name = "tensorldm"
    stages: Mapping[int, StageRow] = STAGES

    def prepare(self, config: RunConfig, number: int, *, start: Path | None) -> PaperStage:
        """A stage from the bundle it starts from, or afresh."""
        return PaperStage(config, STAGES[number], start=start)

    def check_start(self, folder: Path, config: RunConfig) -> str:
        """The weights' hash; the bundle must be of this size and form."""
        info = read_info(folder)
        check_form(folder, info, config.model)
        return info.weights_sha256


TENSORLDM = PaperMethod()


def starting_model(config: RunConfig, start: Path | None) -> tuple[TensorLDM, Joint, Card]:
    """The model that a stage begins with, how its parts are joined, and the card of what was trained before."""
    if start is None:
        return build_model(config.model, config.seed), ("off", "off"), Card()
    model, info = load_bundle(start)
    check_form(start, info, config.model)
    if info.card.stages == (0,):  # what else it holds is no start: another form's, or first weights of another seed
        expectation, model = model.expectation, build_model(config.model, config.seed)
        assert expectation is not None
        assert model.expectation is not None
        model.expectation.load_state_dict(expectation.state_dict())
    return model.train(), (info.decoder_joint, info.unet_joint), info.card


def check_form(folder: Path, info: BundleInfo, wanted: ModelConfig) -> None:
    """Refuse a start of another form. Of a bundle that knows Stage 0 alone, only what Stage 0 trains counts."""
    found, only_expects = info.model, info.card.stages == (0,) and wanted.expectation is not None
    same_start = (found.expectation, found.scaling) == (wanted.expectation, wanted.scaling)
    if found != wanted and not (only_expects and same_start):
        raise ConfigError(
            f"{folder}: a model of another size or form than the configuration's. Use the one it was made with."
        )
