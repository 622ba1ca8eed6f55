"""Which steps, sampler, number of samples and mean a model should have by default: accuracy beside seconds, one run.

    python benchmarks/sampling_defaults.py BUNDLE --data cohort:procedural+templates:FOLDER --device cuda --out sampling

Subjects are virtual, of the validation anatomies. For each sampler and number of steps the largest number of samples is
drawn once, the way `tensorldm reconstruct` draws them; smaller numbers are the first of these. Written to --out as
sampling.csv and sampling.md; a line of JSON tells of each finished part. No package is needed that only training or
pictures need.
"""

import argparse
import csv
import io
import json
import shlex
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

import torch

from tensorldm.build import build_scaling
from tensorldm.cohort.config import read_cohort
from tensorldm.components import OFF_DIAGONAL
from tensorldm.diffusion.samplers import SAMPLERS
from tensorldm.dti.maps import fractional_anisotropy
from tensorldm.errors import ConfigError, TensorldmError
from tensorldm.experiments.known_scans import CLEAN, FIT, open_split
from tensorldm.experiments.record import record_run
from tensorldm.imaging.atomic import write_text
from tensorldm.metrics.image import nmse, psnr
from tensorldm.metrics.ranges import ANISOTROPY_RANGE, OFF_DIAGONAL_RANGE_MM2_PER_S
from tensorldm.metrics.tensors import lem, off_diagonal_lem, v1_angles
from tensorldm.reconstruct.choice import pick_device
from tensorldm.reconstruct.model_engine import load_model, model_traits
from tensorldm.reconstruct.settings import Settings
from tensorldm.reconstruct.uncertainty import mean_tensor

WITHIN = 0.01
"""Of the best LEM: a difference that no picture shows."""
SPREAD_NEEDS = 4
"""Samples from which intervals are worth a map."""
SINGLE = "single"
MEANS = ("arithmetic", "log-euclidean", "eigenvalues", "latents")
FIGURES = {
    "LEM": ".4f",
    "off-diagonal LEM": ".4f",
    "v1 angle": ".2f",
    "FA NMSE": ".4f",
    "PSNR off-diagonal": ".2f",
    "PSNR FA": ".2f",
    "LEM clean": ".4f",
}
KEYS = ("steps", "sampler", "samples", "mean")
READING = (
    "Figures are against the fit of the whole acquisition (`LEM clean`: against the noise-free tensor), each a mean "
    "over the subjects. Seconds are the engine's, from volumes to samples, on the first subject: the least of the "
    "repeats after a warm-up, in this same run. Means of the samples are `arithmetic`, `log-euclidean` (eigenvalues "
    "below 1e-4 mm²/s count as that), `eigenvalues` (the samples' own, averaged, with the axes of the arithmetic "
    "mean) or one decoding of the mean of the `latents`, which saves no time, because "
    "samples are decoded for their spread in any case. Samples are as drawn, not centred on an expectation. Chosen is "
    f"the quickest of the rows whose LEM is within {WITHIN:.0%} of the best."
)


@dataclass
class Tap:
    """Hears what a model decodes: the latents of samples that are drawn the product's own way."""

    model: torch.nn.Module

    def __enter__(self):
        self.latents, self.features, self.decode = [], None, self.model.decode

        def heard(latents, features, *, size):
            self.latents.append(latents)
            self.features = features
            return self.decode(latents, features, size=size)

        self.model.decode = heard
        return self

    def __exit__(self, *_):
        del self.model.decode


def for_maths(device):
    """Where eigenvalues of millions of tensors are quickest; Apple's devices have no double precision."""
    return device if device.type == "cuda" else torch.device("cpu")


def draw(engine, scan):
    """All samples, and a function that decodes the mean of the first K latents; mm²/s inside the mask."""
    with Tap(engine.model) as tap:
        samples = engine.estimate(scan)
    samples = samples.to(for_maths(engine.device))
    latents, size = torch.cat(tap.latents), tuple(scan.mask.shape)
    scaling = build_scaling(engine.info.model)

    @torch.inference_mode()
    def decode_mean(count):
        on_gpu = engine.device.type == "cuda"
        with torch.autocast("cuda", torch.bfloat16, enabled=on_gpu):
            decoded = engine.model.decode(latents[:count].mean(dim=0, keepdim=True), tap.features, size=size)
        return scaling.unscale(decoded.float()).cpu()[0][:, scan.mask].T.double()

    return samples, decode_mean


def tensors_of(samples, decode_mean, counts):
    """The tensor that each number of samples and each kind of mean would give."""
    for count in counts:
        if count == 1:
            yield 1, SINGLE, samples[0]
            continue
        for kind in MEANS:
            yield count, kind, decode_mean(count) if kind == "latents" else mean_tensor(samples[:count], kind)


@torch.inference_mode()
def expect(engine, scan):
    """What the model gives without drawing anything, mm²/s inside the mask; None of a model without an expectation."""
    if engine.model.expectation is None:
        return None
    return replace(engine, traits=replace(engine.traits, samples=False)).estimate(scan)[0]


def figures(packed, known, device):
    """Every figure of one tensor field."""
    where = for_maths(device)
    found, truth, clean = (values.to(where) for values in (packed, known.truths[FIT], known.truths[CLEAN]))
    mask = torch.ones(len(found), dtype=torch.bool, device=where)
    fa, true_fa = fractional_anisotropy(found), fractional_anisotropy(truth)
    off = [psnr(truth[:, d], found[:, d], mask, data_range=OFF_DIAGONAL_RANGE_MM2_PER_S).item() for d in OFF_DIAGONAL]
    return {
        "LEM": lem(truth, found, mask).item(),
        "off-diagonal LEM": off_diagonal_lem(truth, found, mask).item(),
        "v1 angle": v1_angles(truth, found, mask).median().item(),
        "FA NMSE": nmse(true_fa, fa, mask).item(),
        "PSNR off-diagonal": fmean(off),
        "PSNR FA": psnr(true_fa, fa, mask, data_range=ANISOTROPY_RANGE).item(),
        "LEM clean": lem(clean, found, mask).item(),
    }


def seconds_of(engine, scan, repeats):
    """The least time from volumes to samples; the engine ends on the CPU, so nothing is left to wait for."""
    engine.estimate(scan)
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        engine.estimate(scan)
        taken.append(time.perf_counter() - start)
    return min(taken)


def measure_all(engine, split, wanted):
    """A row for every combination; and the figures of the expectation alone, which samples have to be worth."""
    ways = [(steps, sampler) for sampler in wanted.samplers for steps in wanted.steps]
    engine = replace(engine, centres=False)  # else every arithmetic mean would be the expectation
    base, found, seconds, expected = engine.settings, {}, {}, []
    for number, known in enumerate(split.scans(engine.device)):
        alone = expect(engine, known.scan)
        if alone is not None:
            expected.append(figures(alone, known, engine.device))
        for steps, sampler in ways:
            engine.settings = replace(base, steps=steps, sampler=sampler, samples=max(wanted.samples))
            for count, kind, packed in tensors_of(*draw(engine, known.scan), sorted(wanted.samples)):
                found.setdefault((steps, sampler, count, kind), []).append(figures(packed, known, engine.device))
            for count in wanted.samples if number == 0 else ():
                engine.settings = replace(engine.settings, samples=count)
                seconds[steps, sampler, count] = seconds_of(engine, known.scan, wanted.repeats)
            print(json.dumps({"subject": known.name, "steps": steps, "sampler": sampler}), flush=True)
    rows = [
        {**dict(zip(KEYS, key, strict=True)), **means(subjects), "seconds": seconds[key[:3]]}
        for key, subjects in found.items()
    ]
    return rows, means(expected) if expected else None


def means(subjects):
    return {name: fmean(each[name] for each in subjects) for name in FIGURES}


def choose(rows, *, least_samples=1):
    """The quickest row whose LEM is within 1 % of the best, among those with samples enough; None without any."""
    enough = [row for row in rows if row["samples"] >= least_samples]
    if not enough:
        return None
    best = min(row["LEM"] for row in enough)
    near = [row for row in enough if row["LEM"] <= (1 + WITHIN) * best]
    return min(near, key=lambda row: (row["seconds"], row["LEM"]))


def describe(row):
    return (
        f"{row['steps']} steps of {row['sampler']}, {row['samples']} samples, mean: {row['mean']} "
        f"(LEM {row['LEM']:.4f}, {row['seconds']:.3g} s)"
    )


def compare(rows, expected):
    """Whether the mean of the samples is better than what it is drawn around; nothing of a model without that."""
    if expected is None:
        return []
    best = min((row for row in rows if row["samples"] > 1), key=lambda row: row["LEM"], default=rows[0])
    shown = ", ".join(f"{name} {expected[name]:{form}}" for name, form in FIGURES.items())
    verdict = "better" if best["LEM"] < expected["LEM"] else "no better"  # then centred samples lose nothing
    return [
        f"The expectation alone, without samples: {shown}. The best mean of samples is {verdict}: {describe(best)}."
    ]


def to_markdown(rows, record, *, subjects, expected=None):
    """The table, and what follows from it."""
    heads = (*KEYS, *FIGURES, "seconds")
    lines = [heads, tuple("---" for _ in heads)]
    for row in rows:
        shown = [format(row[name], form) for name, form in FIGURES.items()]
        lines.append((*(str(row[key]) for key in KEYS), *shown, f"{row['seconds']:.3g}"))
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    chosen = [f"Chosen: {describe(choose(rows))}."]
    with_spread = choose(rows, least_samples=SPREAD_NEEDS)
    if with_spread is not None:
        chosen.append(f"Chosen among those with {SPREAD_NEEDS} samples or more: {describe(with_spread)}.")
    return (
        "\n\n".join(
            [
                "# Sampling defaults",
                record.to_markdown(),
                f"{subjects} virtual subjects of validation anatomies. {READING}",
                table,
                *compare(rows, expected),
                *chosen,
            ]
        )
        + "\n"
    )


def to_csv(rows):
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--data", default="cohort:procedural")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--subjects", type=int, default=4)
    parser.add_argument("--steps", type=int, nargs="+", default=[4, 6, 8, 12, 16, 25])
    parser.add_argument("--samplers", nargs="+", default=list(SAMPLERS), choices=list(SAMPLERS))
    parser.add_argument("--samples", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--cohort", default="clinical")
    parser.add_argument("--set", dest="overrides", action="append", default=[])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=2)
    return parser.parse_args()


def main():
    wanted = parse()
    split = open_split(
        wanted.data,
        "validation",
        cohort=read_cohort(wanted.cohort, wanted.overrides),
        number=wanted.subjects,
        seed=wanted.seed,
    )
    engine = load_model(wanted.bundle, device=pick_device(wanted.device), settings=Settings(seed=wanted.seed))
    if not model_traits(engine.info).samples:
        raise ConfigError(f"{wanted.bundle}: it draws no samples, only an expected tensor. Train Stage 4 first.")
    rows, expected = measure_all(engine, split, wanted)
    record = replace(record_run([], seed=wanted.seed), command=shlex.join(["python", *sys.argv]))
    write_text(wanted.out / "sampling.csv", to_csv(rows))
    write_text(wanted.out / "sampling.md", to_markdown(rows, record, subjects=wanted.subjects, expected=expected))
    print(f"Chosen: {describe(choose(rows))}. Tables are in {wanted.out}", flush=True)


if __name__ == "__main__":
    try:
        main()
    except TensorldmError as error:
        sys.exit(f"error: {error}")
