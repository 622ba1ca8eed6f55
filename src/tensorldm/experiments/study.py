"""Run a whole study from its settings: every subject, every method, every experiment; resumable at every tensor."""

from collections.abc import Sequence
from pathlib import Path

import torch

from tensorldm.config.reading import dump_config
from tensorldm.evaluation.table import Row
from tensorldm.experiments import model_studies, runtime
from tensorldm.experiments.config import GroupConfig, RuntimeConfig, StudyConfig
from tensorldm.experiments.measuring import SubjectWork
from tensorldm.experiments.methods import Workbench, identity
from tensorldm.experiments.parts import Part, Results, key_of
from tensorldm.experiments.record import RunRecord
from tensorldm.experiments.subject_jobs import measure_all, subject_work
from tensorldm.experiments.subjects import StudySubject, Tell, gather
from tensorldm.experiments.trained import with_bundles
from tensorldm.experiments.variants import plan_subject, tagged
from tensorldm.imaging.atomic import write_json, write_text
from tensorldm.work.bugs import explain
from tensorldm.work.crew import ALONE, Crew
from tensorldm.work.folder import writing_to

RUNTIME = "runtime"
SETTINGS, RECORD, TRACEBACK = "study.yaml", "run.json", "error.txt"


def check_study(study: StudyConfig) -> list[str]:
    """What will be done, in words; a model that is not there is refused before anything is made."""
    for method in study.methods.values():
        identity(method)
    groups = ", ".join(f"{name} ({_counted(group)})" for name, group in study.groups.items())
    parts = [name for name in ("fits", "sampling", "runtime", "probe", "routing") if getattr(study, name) is not None]
    return [
        f"Subjects: {groups}",
        f"Methods: {', '.join(study.methods)}",
        f"Comparisons: {', '.join(study.comparisons)}; further experiments: {', '.join(parts) or 'none'}",
    ]


def _counted(group: GroupConfig) -> str:
    if group.virtual is not None:
        return f"{group.virtual.subjects} virtual"
    return f"{len(group.scans)} given"


def run_study(
    study: StudyConfig, out: Path, *, device: str, record: RunRecord, tell: Tell, crew: Crew = ALONE
) -> list[str]:
    """Do what is missing of a study in ``out`` and write its long tables; gives remarks on what could not be done.

    Models are checked before a subject is made, and all subjects' headers before the first is read.
    """
    stated, study = study, with_bundles(study, out)
    check_study(study)
    with writing_to(out):
        results, remarks = Results(out), []
        groups = {
            name: gather(name, group, results=results, seed=study.seed, workers=crew.workers, tell=tell)
            for name, group in study.groups.items()
        }
        write_text(out / SETTINGS, dump_config(stated))
        for subjects in groups.values():
            ended = measure_all(study, subjects, results=results, device=device, crew=crew, tell=tell)
            remarks += [remark for outcome in ended.values() for remark in outcome.remarks]
            _join_measured(study, subjects, results)
            usable = [subject for subject in subjects if not ended[subject.name].failed]
            remarks += _look_inside(study, usable, results=results, device=device, tell=tell)
        if study.runtime is not None:
            first = next(iter(groups.values()))[0]
            remarks += _time_methods(study, study.runtime, first, results=results, tell=tell)
        write_json(out / RECORD, {**record.to_json(), "Remarks": remarks})
    return remarks


def _join_measured(study: StudyConfig, subjects: Sequence[StudySubject], results: Results) -> None:
    planned = [each for i, subject in enumerate(subjects) for each in plan_subject(study, subject, position=i)]
    for experiment in dict.fromkeys(each.part.experiment for each in planned):
        parts = [each.part for each in planned if each.part.experiment == experiment]
        results.join(experiment, subjects[0].group, parts=parts)


def _look_inside(
    study: StudyConfig, subjects: Sequence[StudySubject], *, results: Results, device: str, tell: Tell
) -> list[str]:
    """Routing and probe; where a group cannot be looked into, the rest of the study goes on."""
    remarks = []
    bench = Workbench(torch.device(device))
    for experiment, config, run in (
        (model_studies.ROUTING, study.routing, model_studies.run_routing),
        (model_studies.PROBE, study.probe, model_studies.run_probe),
    ):
        if config is None or not subjects:
            continue
        chosen, group = subjects[: config.subjects], subjects[0].group
        parts = model_studies.planned_parts(experiment, study, chosen, config=config)
        works = [subject_work(subject, results=results, bench=bench, tell=tell) for subject in chosen]
        try:
            remark = run(works, parts, study=study, results=results)
        except Exception as error:
            remark = _told(error, results)
        remarks += [f"{group}, {experiment}: {remark}"] if remark else []
        results.join(experiment, group, parts=parts)
    return remarks


def _time_methods(
    study: StudyConfig, config: RuntimeConfig, subject: StudySubject, *, results: Results, tell: Tell
) -> list[str]:
    """Seconds on one subject, on every device that is here; what another machine has measured before is kept."""
    remarks, keys = [], []
    for device in config.devices:
        bench = runtime.bench_on(device)
        work = None if bench is None else subject_work(subject, results=results, bench=bench, tell=tell)
        if work is None:
            remarks.append(f"Runtime on {device} was not measured here: there is no such device.")
        for name in config.methods:
            for steps in _steps_of(study, name, config):
                key = key_of(method=identity(study.methods[name]), steps=steps, subject=subject.identity)
                keys.append(key)
                if work is not None:
                    tell(f"runtime of {name} on {device}" + (f", {steps} steps" if steps else ""))
                    remarks += _time_one(study, work, name, steps=steps, key=key, results=results)
    results.join_keys(RUNTIME, subject.group, subject=subject.name, keys=keys)
    return remarks


def _time_one(study: StudyConfig, work: SubjectWork, name: str, *, steps: int, key: str, results: Results) -> list[str]:
    """Measure where it is missing; a remark where it cannot be."""
    assert study.runtime is not None
    where, subject = runtime.hardware(work.bench.device), work.subject
    label = tagged(name, steps=steps) if steps else name
    part = Part(RUNTIME, subject.group, subject.name, f"{label} {where}", key)
    if not results.missing([part]):
        return []
    try:
        seconds = runtime.time_method(work, study.methods[name], steps=steps, config=study.runtime)
    except Exception as error:
        return [f"Runtime of {label} was not measured: {_told(error, results)}"]
    rows = [Row(label, subject.name, where, metric, value, subject.anatomy) for metric, value in seconds.items()]
    results.write(part, rows)
    return []


def _told(error: Exception, results: Results) -> str:
    """Why a part is missing, for who reads the tables that are made without it; a bug leaves its traceback."""
    sentence, traceback = explain(error, where=results.root / TRACEBACK)
    if traceback:
        write_text(results.root / TRACEBACK, traceback)
    return sentence


def _steps_of(study: StudyConfig, name: str, config: RuntimeConfig) -> tuple[int, ...]:
    """0 for a method that has no steps."""
    bundle = study.methods[name].bundle
    return config.steps if bundle is not None and runtime.draws(bundle) else (0,)
