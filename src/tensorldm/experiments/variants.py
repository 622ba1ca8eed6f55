"""What is measured of a subject: methods under varied settings, each with a label that says what was varied.

``tensorldm@seed=3`` is a method and one setting; the long table keeps its six columns.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tensorldm.experiments.config import SEPARATOR, FitsConfig, MethodConfig, SamplingConfig, StudyConfig
from tensorldm.experiments.methods import identity
from tensorldm.experiments.parts import Part, key_of
from tensorldm.experiments.subjects import StudySubject

ACCURACY, FITS, SEEDS, STEPS = "accuracy", "fits", "seeds", "steps"
"""Experiments whose figures come from comparing tensors."""
PAPER_FIT: Final = "ols"
TRUTH: Final = "truth"
"""The noise-free tensor of virtual subjects, as a reference."""


@dataclass(frozen=True)
class Variant:
    """A method under some settings."""

    label: str
    """In its tensor's sidecar and in the long table."""
    config: MethodConfig | None
    """None for a fit of the whole series, which is measured like a method in Table 11."""
    seed: int


@dataclass(frozen=True)
class Planned:
    """One part of a study: a variant measured against a reference."""

    part: Part
    variant: Variant
    reference: str
    row_label: str
    """What its rows are called in the long table."""


def tagged(method: str, **settings: str | int) -> str:
    """A method's name with what was varied."""
    return f"{method}{SEPARATOR}{','.join(f'{name}={value}' for name, value in settings.items())}"


def untagged(label: str) -> tuple[str, dict[str, str]]:
    """The method's name and what was varied."""
    method, _, settings = label.partition(SEPARATOR)
    return method, dict(pair.split("=", 1) for pair in settings.split(",")) if settings else {}


def plan_subject(study: StudyConfig, subject: StudySubject, *, position: int) -> list[Planned]:
    """Everything that is to be measured of the subject at this position of its group, in the order of the tables."""
    planned = [
        _planned(ACCURACY, subject, Variant(name, method, study.seed))
        for name, method in study.methods.items()
        if method.subjects is None or position < method.subjects
    ]
    if study.fits is not None and position < study.fits.subjects:
        planned += _plan_fits(study, study.fits, subject)
    if study.sampling is not None and position < study.sampling.subjects:
        planned += _plan_sampling(study, study.sampling, subject)
    return planned


def _plan_fits(study: StudyConfig, fits: FitsConfig, subject: StudySubject) -> Iterator[Planned]:
    known = subject.truth is not None and not subject.resample  # the truth stays on its own grid
    references = (*fits.fits, *([TRUTH] if known else []))
    for reference in references:
        for fit in fits.fits:
            if fit != reference and reference in (PAPER_FIT, TRUTH):
                yield _planned(FITS, subject, Variant(fit, None, study.seed), reference=reference)
        for name in fits.methods:
            yield _planned(FITS, subject, Variant(name, study.methods[name], study.seed), reference=reference)


def _plan_sampling(study: StudyConfig, sampling: SamplingConfig, subject: StudySubject) -> Iterator[Planned]:
    for name in sampling.methods:
        single = study.methods[name].model_copy(update={"samples": 1})
        for seed in range(sampling.seeds):
            yield _planned(SEEDS, subject, Variant(tagged(name, seed=seed), single, seed))
        for sampler in sampling.samplers:
            for steps in sampling.steps:
                config = single.model_copy(update={"sampler": sampler, "steps": steps})
                label = tagged(name, sampler=sampler, steps=steps)
                yield _planned(STEPS, subject, Variant(label, config, study.seed))


def _planned(experiment: str, subject: StudySubject, variant: Variant, *, reference: str = PAPER_FIT) -> Planned:
    label = tagged(variant.label, reference=reference) if experiment == FITS else variant.label
    key = variant_key(variant, subject, reference=reference)
    return Planned(Part(experiment, subject.group, subject.name, label, key), variant, reference, label)


def variant_key(variant: Variant, subject: StudySubject, **more: str) -> str:
    """A hash of all that decides a variant's tensor, and of ``more``."""
    known = {} if variant.config is None else identity(variant.config)
    return key_of(label=variant.label, method=known, seed=variant.seed, subject=subject.identity, **more)
