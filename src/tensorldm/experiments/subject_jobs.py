"""The subjects of a group measured by a crew: this process, several, or a cluster's; each keeps its models loaded.

Parts are files that appear whole, and no two subjects share one, so that workers need not know of each other.
"""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial

import torch

from tensorldm.experiments.config import StudyConfig
from tensorldm.experiments.measuring import SubjectWork, measure_subject
from tensorldm.experiments.methods import Workbench
from tensorldm.experiments.parts import Results
from tensorldm.experiments.subjects import StudySubject, Tell
from tensorldm.experiments.variants import plan_subject
from tensorldm.reconstruct.choice import own_gpu
from tensorldm.work.crew import Crew, Done, perform, silent
from tensorldm.work.processes import once


@dataclass(frozen=True, eq=False)
class SubjectJob:
    """One subject of a study, as it travels to a worker."""

    study: StudyConfig
    subject: StudySubject
    position: int
    count: int
    """Of subjects in the group."""
    results: Results
    device: str


@dataclass(frozen=True)
class Outcome:
    """What there is to say of a subject."""

    remarks: tuple[str, ...] = ()
    failed: bool = False
    """The scan could not be used at all."""


def measure_all(
    study: StudyConfig, subjects: Sequence[StudySubject], *, results: Results, device: str, crew: Crew, tell: Tell
) -> dict[str, Outcome]:
    """Every subject of a group, by name."""
    jobs = [
        SubjectJob(study, subject, position, len(subjects), results, device)
        for position, subject in enumerate(subjects)
    ]
    here = crew.stays_here(len(jobs))
    outcomes = {}
    task = partial(measure_job, tell=tell if here else silent)
    with closing(perform(task, jobs, crew=crew, tell=tell)) as ended:
        for end in ended:
            name = end.job.subject.name
            if isinstance(end, Done):
                outcomes[name] = end.value
            else:
                outcomes[name] = Outcome((f"{name} is left out: {end.reason}",), failed=True)
            tell(f"{end.job.subject.group}: {name} is measured ({len(outcomes)} of {len(jobs)})")
    return {subject.name: outcomes[subject.name] for subject in subjects}


def measure_job(job: SubjectJob, *, tell: Tell) -> Outcome:
    """Do one job; the bench with its models is kept for the next."""
    work = subject_work(job.subject, results=job.results, bench=_bench(job.device), tell=_telling(job, tell))
    planned = plan_subject(job.study, job.subject, position=job.position)
    measure_subject(work, planned, results=job.results, keep=job.position < job.study.keep_tensors)
    return Outcome(tuple(work.remarks), work.failed)


def subject_work(subject: StudySubject, *, results: Results, bench: Workbench, tell: Tell) -> SubjectWork:
    """A subject with its folder."""
    return SubjectWork(subject, results.work(subject.group, subject.name), bench, tell)


def _bench(device: str) -> Workbench:
    return once(f"bench of a study on {device}", lambda: Workbench(own_gpu(torch.device(device))))


def _telling(job: SubjectJob, tell: Tell) -> Tell:
    subject = job.subject
    return lambda what: tell(f"{subject.group}: {subject.name} ({job.position + 1} of {job.count}): {what}")
