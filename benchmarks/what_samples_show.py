"""How much of what a scan leaves open a model's latents can carry, and how much of it its samples show.

    python benchmarks/what_samples_show.py BUNDLE --data cohort:procedural+templates:FOLDER --device cuda

On the validation subjects of a training, as shares of the squared difference between reference and expectation, of the
diagonal and of the off-diagonal components:

- carried: what decoding the reference's own latents takes away; look at it after Stage 3, before any diffusion;
- white: what is decoded of independent Gaussian latents. Far below what the reference's own give (``own``), samples
  depend on what the diffusion has to learn; near it, they vary enough from the start;
- drawn: how much samples vary about their mean. Those of an ideal model would vary by as much as ``own``;
- mean: the squared error of the samples' mean; 1 is the expectation's own.
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import torch
from torch import Tensor

from tensorldm.batch import Batch
from tensorldm.bundle import load_bundle
from tensorldm.config.reading import read_config
from tensorldm.config.run import RunConfig
from tensorldm.errors import ConfigError, TensorldmError
from tensorldm.model import TensorLDM
from tensorldm.reconstruct.choice import pick_device
from tensorldm.rng import generator
from tensorldm.training.sources import open_source

GROUPS = {"diagonal": slice(0, 3), "off-diagonal": slice(3, 6)}
DRAWS_IN_STAGE = 4


@dataclass(frozen=True)
class Way:
    """How samples are drawn."""

    samples: int
    steps: int
    sampler: str


def main() -> None:
    """Print a table, or say in a sentence why not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--data", required=True)
    parser.add_argument("--config", default="base", help="settings of the data: those of the training")
    parser.add_argument("--set", action="append", default=[], dest="overrides")
    parser.add_argument("--box", type=int, nargs=3, default=(96, 112, 96))
    parser.add_argument("--subjects", type=int, default=4)
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--sampler", default="dpm++2m")
    parser.add_argument("--device", default="auto")
    wanted = parser.parse_args()
    try:
        print(to_table(measure_all(wanted)))
    except TensorldmError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(2) from None


def measure_all(wanted: argparse.Namespace) -> list[dict[str, float]]:
    """The figures of each subject."""
    device = pick_device(wanted.device)
    model, info = load_bundle(wanted.bundle, device)
    if model.expectation is None:
        raise ConfigError(f"{wanted.bundle}: a model without an expectation, so there is no difference from it.")
    config = read_config(RunConfig, wanted.config, wanted.overrides)
    source = open_source(wanted.data, config.data, device=device)
    subjects = source.validation_subjects(wanted.subjects, box=tuple(wanted.box), device=device, seed=config.seed)
    way = Way(wanted.samples, wanted.steps, wanted.sampler) if DRAWS_IN_STAGE in info.card.stages else None
    with torch.autocast("cuda", torch.bfloat16, enabled=device.type == "cuda"):
        return [measure(model, batch, way) for batch in subjects]


@torch.inference_mode()
def measure(model: TensorLDM, batch: Batch, way: Way | None) -> dict[str, float]:
    """Shares of one subject's squared difference; without a ``way`` nothing is drawn."""
    units = units_of(model)
    x, y, z = size = tuple(batch.mask.shape[1:])
    target = (batch.components / units).float()
    reading = model.read(**batch.scan)
    assert reading.features.expected is not None
    expected = reading.features.expected[..., :x, :y, :z].float()

    def decode(latents: Tensor) -> Tensor:
        return model.decode(latents, reading.features, size=size).float()

    def noise(number: int) -> Tensor:
        drawn = torch.randn(model.latent_shape(1, size), generator=generator(0, "shown", number))
        return drawn.to(target.device)

    latents = model.encode(target, reading.features).float()
    inside = model.latent_mask(batch.mask)
    fields = {"own": decode(latents), "white": decode(noise(0) * deviation(latents, inside))}
    found = {
        **shares("carried", -(fields["own"] - target).square(), target - expected, batch.mask, plus=1.0),
        **shares("own", (fields["own"] - expected).square(), target - expected, batch.mask),
        **shares("white", (fields["white"] - expected).square(), target - expected, batch.mask),
    }
    if way is None:
        return found
    drawn = torch.cat(
        [model.draw(reading, noise(k), num_steps=way.steps, sampler=way.sampler).float() for k in range(way.samples)]
    )
    varied, mean = drawn.var(dim=0, keepdim=True), drawn.mean(dim=0, keepdim=True)
    return {
        **found,
        **shares("drawn", varied, target - expected, batch.mask),
        **shares("mean", (mean - target).square(), target - expected, batch.mask),
    }


def units_of(model: TensorLDM) -> Tensor:
    """mm²/s for one network unit, to divide components by."""
    some = next(model.parameters())
    return torch.tensor(model.component_scales, device=some.device).reshape(1, 6, 1, 1, 1)


def deviation(latents: Tensor, inside: Tensor) -> Tensor:
    """Of each component's channels in the brain."""
    spread: Tensor = latents[0][..., inside[0]].std(dim=-1)
    return spread[None, ..., None, None, None]


def shares(name: str, squares: Tensor, difference: Tensor, mask: Tensor, *, plus: float = 0.0) -> dict[str, float]:
    """Sums over the mask, over those of the squared difference, of each group."""
    inside = mask[:, None]
    return {
        f"{name} {group}": plus
        + float((squares * inside)[:, part].sum() / (difference.square() * inside)[:, part].sum())
        for group, part in GROUPS.items()
    }


def to_table(subjects: list[dict[str, float]]) -> str:
    """A line for each figure: the mean, and the subjects' own."""
    lines = ["| | mean | subjects |", "|---|---|---|"]
    for name in subjects[0]:
        each = [subject[name] for subject in subjects]
        lines.append(f"| {name} | {fmean(each):.3f} | {', '.join(f'{value:.3f}' for value in each)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
