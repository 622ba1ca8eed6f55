"""Ablations that no setting describes, as stages of the same method: other rows, the same loop and bundles.

No-Anatomy: FiLM of the decoders and the conditioner never move, and FiLM starts as the identity: no decoder ever hears
of the scan. No-Pretrain: the components are joined from the first step of diffusion, and all of the U-Net trains.
[choice: ablation-variants]
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tensorldm.config.run import RunConfig
from tensorldm.errors import ConfigError
from tensorldm.experiments.recipes import Variant
from tensorldm.training.paper_stage import TENSORLDM, PaperStage
from tensorldm.training.stages import DIFFUSION, NOTHING, STAGES, StageRow

ANATOMY: Final = r"^autoencoder\.(conditioner\.|decoder\..*\.film\.)"
"""All by which the scan reaches the decoders."""


def _without_anatomy(row: StageRow) -> StageRow:
    return replace(row, except_for=f"{row.except_for}|{ANATOMY}")


ROWS: Final[Mapping[Variant, Mapping[int, StageRow]]] = {
    "": STAGES,
    "no-anatomy": {number: _without_anatomy(STAGES[number]) for number in (1, 2)},
    "no-pretrain": {
        5: replace(
            STAGES[5],
            title="denoising, components together from the start",
            trains=DIFFUSION,
            except_for=NOTHING,
            starts_from=(1, 2, 3),
            sets_latent_scale=True,
        )
    },
}


@dataclass(frozen=True)
class AblatedMethod:
    """TensorLDM with the stages of a variant."""

    variant: Variant

    @property
    def name(self) -> str:
        """Its bundles are TensorLDM's."""
        return TENSORLDM.name

    @property
    def stages(self) -> Mapping[int, StageRow]:
        """Those that the variant has."""
        return ROWS[self.variant]

    def prepare(self, config: RunConfig, number: int, *, start: Path | None) -> PaperStage:
        """A stage from the bundle it starts from, or afresh."""
        if self.variant == "no-anatomy" and config.model.expectation is not None:
            raise ConfigError(
                "no-anatomy: an expectation tells the decoders of the scan. Set model.expectation to null and leave "
                "Stage 0 out."
            )
        return PaperStage(config, self.stages[number], start=start)

    def check_start(self, folder: Path, config: RunConfig) -> str:
        """As of TensorLDM itself."""
        return TENSORLDM.check_start(folder, config)
