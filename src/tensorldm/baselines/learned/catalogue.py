"""Every learned rival by name: what it is, its stages, how it is built. Networks are imported when they are needed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal

import torch

from tensorldm.baselines.learned.config import RivalModel
from tensorldm.baselines.learned.rival import Rival
from tensorldm.data.scaling import TensorScaling
from tensorldm.errors import ConfigError, ToolError
from tensorldm.rng import derive_seed


@dataclass(frozen=True)
class RivalRow:
    """One stage of a rival."""

    number: int
    title: str
    data: Literal["patches", "volumes"]
    starts_from: tuple[int, ...] = ()
    fresh: bool = True


@dataclass(frozen=True)
class RivalKind:
    """A rival before it is built."""

    name: str
    description: str
    rows: tuple[RivalRow, ...]
    stochastic: bool
    build: Callable[[Any, TensorScaling], Rival]

    @property
    def stages(self) -> Mapping[int, RivalRow]:
        """Its stages by number."""
        return {row.number: row for row in self.rows}


def _unet(config: Any, scaling: TensorScaling) -> Rival:
    from tensorldm.baselines.learned.regression import Regression

    return Regression(config, scaling)


def _pix2pix(config: Any, scaling: TensorScaling) -> Rival:
    from tensorldm.baselines.learned.pix2pix import build_pix2pix

    return build_pix2pix(config, scaling)


def _cyclegan(config: Any, scaling: TensorScaling) -> Rival:
    from tensorldm.baselines.learned.cyclegan import CycleGAN

    return CycleGAN(config, scaling)


def _resvit(config: Any, scaling: TensorScaling) -> Rival:
    from tensorldm.baselines.learned.resvit import build_resvit

    return build_resvit(config, scaling)


def _superdti(config: Any, scaling: TensorScaling) -> Rival:
    from tensorldm.baselines.learned.superdti import SuperDTI

    return SuperDTI(config, scaling)


def _diffdti(config: Any, scaling: TensorScaling) -> Rival:
    from tensorldm.baselines.learned.diffdti import DiffDTI

    return DiffDTI(config, scaling)


def _ldm(config: Any, scaling: TensorScaling) -> Rival:
    from tensorldm.baselines.learned.ldm import LDM

    return LDM(config, scaling)


def _coupled(config: Any, scaling: TensorScaling) -> Rival:
    from tensorldm.baselines.learned.coupled import Coupled

    return Coupled(config, scaling)


ADVERSARIAL = (RivalRow(1, "generator and critic", "volumes"),)
SLICES = (RivalRow(1, "slices", "volumes"),)
RIVALS: Final[Mapping[str, RivalKind]] = MappingProxyType(
    {
        kind.name: kind
        for kind in (
            RivalKind(
                "unet",
                "a 3D U-Net that regresses the six components",
                (RivalRow(1, "patches", "patches"), RivalRow(2, "whole volumes", "volumes", starts_from=(1,))),
                False,
                _unet,
            ),
            RivalKind("pix2pix", "Pix2Pix in 3D", ADVERSARIAL, False, _pix2pix),
            RivalKind("cyclegan", "CycleGAN in 3D, unpaired", ADVERSARIAL, False, _cyclegan),
            RivalKind("resvit", "ResViT in 3D", ADVERSARIAL, False, _resvit),
            RivalKind("superdti", "SuperDTI: maps by slices, then E13", SLICES, False, _superdti),
            RivalKind("diffdti", "Diff-DTI: maps by slices from noise, then E13", SLICES, True, _diffdti),
            RivalKind(
                "ldm",
                "a plain latent diffusion model",
                (
                    RivalRow(1, "autoencoders", "patches"),
                    RivalRow(2, "denoising", "volumes", starts_from=(1,), fresh=False),
                ),
                True,
                _ldm,
            ),
            RivalKind(
                "coupled",
                "an ablation of TensorLDM: its latents denoised as one stack",
                (
                    RivalRow(1, "patches", "patches"),
                    RivalRow(2, "whole volumes", "volumes", starts_from=(1,)),
                    RivalRow(3, "denoising", "volumes", starts_from=(1, 2), fresh=False),
                ),
                True,
                _coupled,
            ),
        )
    }
)
"""In the order of the tables."""
BY_SLICES: Final = tuple(name for name, kind in RIVALS.items() if kind.rows is SLICES)
"""Rivals that know no third dimension."""


def find_rival(name: str) -> RivalKind:
    """The rival of this name."""
    if name not in RIVALS:
        raise ConfigError(f"There is no method '{name}'. Give tensorldm or one of {', '.join(RIVALS)}.")
    return RIVALS[name]


def build_rival(config: RivalModel, *, name: str, seed: int = 0) -> Rival:
    """The rival with first weights that depend on the seed alone; the global generator is left as it was."""
    scaling = TensorScaling(diagonal=config.scaling.diagonal, off_diagonal=config.scaling.off_diagonal)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "first weights"))
        try:
            return find_rival(name).build(config, scaling)
        except ImportError as error:
            raise ToolError(
                f"The rival '{name}' is made of parts of MONAI, which cannot be imported ({error}). "
                "Install it with: pip install 'tensorldm[train]'."
            ) from error
