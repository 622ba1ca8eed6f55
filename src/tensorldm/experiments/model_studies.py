"""Tables 8 and 9 over the subjects of a group: the linear probe of FA and the experts' shares.

A probe is fitted on all anatomies but one and judged on that one, in turn: no head is judged by itself.
[choice: fa-probe]
"""

from collections.abc import Sequence
from pathlib import Path

from tensorldm.evaluation.table import Row
from tensorldm.experiments.config import ModelsConfig, StudyConfig
from tensorldm.experiments.inside import probe_moments, routing
from tensorldm.experiments.linear_probe import Moments, fit, joined, r_squared
from tensorldm.experiments.measuring import SubjectWork
from tensorldm.experiments.methods import identity
from tensorldm.experiments.parts import Part, Results, key_of
from tensorldm.experiments.subjects import StudySubject

PROBE, ROUTING = "probe", "routing"
LEAST_ANATOMIES = 2


def planned_parts(
    experiment: str, study: StudyConfig, subjects: Sequence[StudySubject], *, config: ModelsConfig
) -> list[Part]:
    """A part for every model and subject; a probe depends on all of them."""
    chosen = subjects[: config.subjects]
    together = [subject.identity for subject in chosen] if experiment == PROBE else []
    return [
        Part(experiment, subject.group, subject.name, name, key_of(
            method=identity(study.methods[name]), subject=subject.identity, together=together
        ))
        for name in config.methods
        for subject in chosen
    ]  # fmt: skip


def run_routing(works: Sequence[SubjectWork], parts: Sequence[Part], *, study: StudyConfig, results: Results) -> str:
    """The shares of the DWI volumes in each component's condition, subject by subject; no remark."""
    by_name = {work.subject.name: work for work in works}
    for part in results.missing(parts):
        work = by_name[part.subject]
        work.tell(f"routing of {part.label}")
        found = routing(work.opened(_bundle(study, part.label)))
        work.unload()
        subject = work.subject
        rows = [
            Row(part.label, subject.name, component, metric, value, anatomy=subject.anatomy)
            for (component, metric), value in found.items()
        ]
        results.write(part, rows)
    return ""


def run_probe(works: Sequence[SubjectWork], parts: Sequence[Part], *, study: StudyConfig, results: Results) -> str:
    """R² of FA on anatomies that the probe has not seen; a remark where there are too few of them, else nothing."""
    heads = {work.subject.name: work.subject.anatomy or work.subject.name for work in works}
    if len(set(heads.values())) < LEAST_ANATOMIES:
        return f"The probe needs at least {LEAST_ANATOMIES} anatomies to be judged on one that it has not seen."
    for name in dict.fromkeys(part.label for part in results.missing(parts)):
        sums: dict[str, dict[tuple[str, str], Moments]] = {}
        for work in works:
            work.tell(f"features and latents of {name}")
            sums[work.subject.name] = probe_moments(work.opened(_bundle(study, name)))
            work.unload()
        for part, work in zip([part for part in parts if part.label == name], works, strict=True):
            others = [each for other, each in sums.items() if heads[other] != heads[part.subject]]
            own = sums[part.subject]
            rows = [
                Row(name, part.subject, *key, judged([other[key] for other in others], own[key]), work.subject.anatomy)
                for key in own
            ]
            results.write(part, rows)
    return ""


def judged(seen: Sequence[Moments], unseen: Moments) -> float:
    """R² on one subject of the probe fitted to others."""
    return r_squared(fit(joined(seen)), unseen)


def _bundle(study: StudyConfig, name: str) -> Path:
    bundle = study.methods[name].bundle
    assert bundle is not None, "the settings were checked"
    return bundle
