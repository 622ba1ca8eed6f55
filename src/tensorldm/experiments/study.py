"""Run a whole study from its settings: every subject, every method, every experiment; resumable at every tensor."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tensorldm.config.reading import dump_config
from tensorldm.errors import DataError
from tensorldm.evaluation.table import Row
from tensorldm.experiments import model_studies, runtime
from tensorldm.experiments.config import RuntimeConfig, StudyConfig
from tensorldm.experiments.measuring import SubjectWork, measure_subject
from tensorldm.experiments.methods import Workbench, identity
from tensorldm.experiments.parts import Part, Results, key_of
from tensorldm.experiments.record import RunRecord
from tensorldm.experiments.subjects import StudySubject, Tell, gather
from tensorldm.experiments.variants import Planned, plan_subject, tagged
from tensorldm.imaging.atomic import write_json, write_text

RUNTIME = "runtime"
SETTINGS, RECORD = "study.yaml", "run.json"


def check_study(study: StudyConfig) -> list[str]:
    """What will be done, in words; a model that is not there is refused before anything is made."""
    for method in study.methods.values():
        identity(method)
    groups = ", ".join(
        f"{name} ({group.virtual.subjects} virtual subjects)" if group.virtual else f"{name} ({len(group.scans)} scans)"
        for name, group in study.groups.items()
    )
    parts = [name for name in ("fits", "sampling", "runtime", "probe", "routing") if getattr(study, name) is not None]
    return [
        f"Subjects: {groups}",
        f"Methods: {', '.join(study.methods)}",
        f"Comparisons: {', '.join(study.comparisons)}; further experiments: {', '.join(parts) or 'none'}",
    ]


def run_study(study: StudyConfig, out: Path, *, bench: Workbench, record: RunRecord, tell: Tell) -> list[str]:
    """Do what is missing of a study in ``out`` and write its long tables; gives remarks on what could not be done.

    Models are checked before a subject is made, and all subjects' headers before the first is read.
    """
    check_study(study)
    results = Results(out)
    groups = {
        name: gather(name, group, results=results, seed=study.seed, tell=tell) for name, group in study.groups.items()
    }
    write_text(out / SETTINGS, dump_config(study))
    remarks: list[str] = []
    for name, subjects in groups.items():
        works = [
            SubjectWork(
                subject, results.work(name, subject.name), bench, partial(_tell_of, tell, subject, i, len(subjects))
            )
            for i, subject in enumerate(subjects, start=1)
        ]
        remarks += _measure_group(study, works, results)
        remarks += _look_inside(study, works, results)
    if study.runtime is not None:
        first = next(iter(groups.values()))[0]
        remarks += _time_methods(study, study.runtime, first, results=results, tell=tell)
    write_json(out / RECORD, {**record.to_json(), "Remarks": remarks})
    return remarks


def _measure_group(study: StudyConfig, works: Sequence[SubjectWork], results: Results) -> list[str]:
    everything: list[Planned] = []
    remarks: list[str] = []
    for position, work in enumerate(works):
        planned = plan_subject(study, work.subject, position=position)
        everything += planned
        measure_subject(work, planned, results=results, keep=position < study.keep_tensors)
        remarks += work.remarks
        _unload(work)
    for experiment in dict.fromkeys(each.part.experiment for each in everything):
        parts = [each.part for each in everything if each.part.experiment == experiment]
        results.join(experiment, works[0].subject.group, parts=parts)
    return remarks


def _look_inside(study: StudyConfig, works: Sequence[SubjectWork], results: Results) -> list[str]:
    """Routing and probe; where a group cannot be looked into, the rest of the study goes on."""
    remarks = []
    for experiment, config, run in (
        (model_studies.ROUTING, study.routing, model_studies.run_routing),
        (model_studies.PROBE, study.probe, model_studies.run_probe),
    ):
        chosen = [work for work in works if not work.failed][: config.subjects if config is not None else 0]
        if config is None or not chosen:
            continue
        subjects, group = [work.subject for work in chosen], chosen[0].subject.group
        parts = model_studies.planned_parts(experiment, study, subjects, config=config)
        try:
            remark = run(chosen, parts, study=study, results=results)
        except DataError as error:
            remark = str(error)
        remarks += [f"{group}, {experiment}: {remark}"] if remark else []
        results.join(experiment, group, parts=parts)
    for work in works:
        _unload(work)
    return remarks


def _time_methods(
    study: StudyConfig, config: RuntimeConfig, subject: StudySubject, *, results: Results, tell: Tell
) -> list[str]:
    """Seconds on one subject, on every device that is here; what another machine has measured before is kept."""
    remarks, keys = [], []
    for device in config.devices:
        bench = runtime.bench_on(device)
        folder = results.work(subject.group, subject.name)
        work = None if bench is None else SubjectWork(subject, folder, bench, tell)
        if work is None:
            remarks.append(f"Runtime on {device} was not measured here: there is no such device.")
        for name in config.methods:
            for steps in _steps_of(study, name, config):
                key = key_of(method=identity(study.methods[name]), steps=steps, subject=subject.identity)
                keys.append(key)
                if work is not None:
                    tell(f"runtime of {name} on {device}" + (f", {steps} steps" if steps else ""))
                    _time_one(study, work, name, steps=steps, key=key, results=results)
    results.join_keys(RUNTIME, subject.group, subject=subject.name, keys=keys)
    return remarks


def _time_one(study: StudyConfig, work: SubjectWork, name: str, *, steps: int, key: str, results: Results) -> None:
    assert study.runtime is not None
    where, subject = runtime.hardware(work.bench.device), work.subject
    label = tagged(name, steps=steps) if steps else name
    part = Part(RUNTIME, subject.group, subject.name, f"{label} {where}", key)
    if results.missing([part]):
        seconds = runtime.time_method(work, study.methods[name], steps=steps, config=study.runtime)
        rows = [Row(label, subject.name, where, metric, value, subject.anatomy) for metric, value in seconds.items()]
        results.write(part, rows)


def _steps_of(study: StudyConfig, name: str, config: RuntimeConfig) -> tuple[int, ...]:
    """0 for a method that has no steps."""
    bundle = study.methods[name].bundle
    return config.steps if bundle is not None and runtime.draws(bundle) else (0,)


def _unload(work: SubjectWork) -> None:
    """A series is hundreds of megabytes: nobody needs two of them."""
    for name in ("loaded", "prepared"):
        vars(work).pop(name, None)


def _tell_of(tell: Tell, subject: StudySubject, number: int, count: int, what: str) -> None:
    tell(f"{subject.group}: {subject.name} ({number} of {count}): {what}")
