"""Virtual subjects of a study for the table of tracts, with the tensors that the study has kept: none is made again.

A study that was measured on another machine is read where it was brought; of its folder ``study.yaml``, ``work`` and
``cohorts/GROUP/truth`` are enough, and nothing is written there.
"""

from collections.abc import Sequence
from pathlib import Path

from tensorldm.data.store import safe_name
from tensorldm.errors import ConfigError, DataError
from tensorldm.evaluation.tracts import NOISE_FLOOR
from tensorldm.experiments.config import StudyConfig
from tensorldm.experiments.kept import KeptSubject, kept_subjects
from tensorldm.experiments.parts import Results
from tensorldm.experiments.subjects import truth_folder
from tensorldm.experiments.tract_subjects import BUNDLES, Chosen, TractSubject
from tensorldm.experiments.tract_tensors import Ready, TractTensors


def find_kept(
    study: StudyConfig, results: Results, out: Path, *, names: Sequence[str], most: int | None = None
) -> Chosen:
    """The first subjects of every virtual group whose tensors and bundles are there, each with a folder in ``out``.

    ``names`` are the methods to measure; without any all of the study's.
    """
    _refuse_common_folder(results.root, out)
    methods = _choose_methods(study, names, results.root)
    virtual = [each for each in kept_subjects(study, results) if study.groups[each.group].virtual is not None]
    kept = [each for each in virtual if each.of(methods)]
    if not kept:
        raise DataError(
            f"{results.root / 'work'}: no virtual subject has kept tensors of {', '.join(methods)}. Bring this folder "
            "from where the study was measured, or run the study in another folder with --set keep_tensors=2 or more."
        )
    with_masks = [each for each in kept if _bundles(results, each).is_dir()]
    if not with_masks:
        raise DataError(
            f"{_bundles(results, kept[0])}: no bundle masks, nor of any other subject with kept tensors. Bring "
            f"'{results.root / 'cohorts'}' from where the study was measured; its folders 'truth' are enough."
        )
    of_groups = ([each for each in with_masks if each.group == group][:most] for group in study.groups)
    measured = [each for group in of_groups for each in group]
    subjects = [_subject(each, methods, results, out) for each in measured]
    without = [each for each in kept if each not in with_masks]
    return Chosen(subjects, (*_describe_without_masks(without), *_describe_absent(methods, measured)))


def _refuse_common_folder(study: Path, out: Path) -> None:
    """Nothing is written into a study, and its folder is not cleared of what an unfinished run left there."""
    inner, outer = study.resolve(), out.resolve()
    if inner.is_relative_to(outer) or outer.is_relative_to(inner):
        raise ConfigError(
            f"--out {out}: not apart from the study {study}, where nothing is written. "
            "Choose a folder that is neither in it nor around it."
        )


def _choose_methods(study: StudyConfig, names: Sequence[str], root: Path) -> tuple[str, ...]:
    unknown = [name for name in names if name not in study.methods]
    if unknown:
        raise ConfigError(f"--method {unknown[0]}: not in the study {root}. Give one of {', '.join(study.methods)}.")
    methods = tuple(dict.fromkeys(names or study.methods))
    if NOISE_FLOOR in methods:
        raise ConfigError(
            f"{root}: a method is called '{NOISE_FLOOR}', which is the noise floor's name here. "
            "Give the other methods with --method."
        )
    return methods


def _subject(each: KeptSubject, methods: tuple[str, ...], results: Results, out: Path) -> TractSubject:
    tensors = TractTensors(each.reference, each.mask, each.of(methods))
    folder = out / f"{safe_name(each.group)}-{each.name}"
    return TractSubject(_name(each), _bundles(results, each), folder, Ready(tensors))


def _name(each: KeptSubject) -> str:
    return f"{each.group}-{each.name}"


def _bundles(results: Results, each: KeptSubject) -> Path:
    return truth_folder(results, each.group, subject=each.name) / BUNDLES


def _describe_without_masks(subjects: Sequence[KeptSubject]) -> list[str]:
    return [f"left out for want of bundle masks: {', '.join(map(_name, subjects))}"] if subjects else []


def _describe_absent(methods: Sequence[str], subjects: Sequence[KeptSubject]) -> list[str]:
    """By method: the subjects that it is not measured on."""
    lines = []
    for method in methods:
        absent = [_name(each) for each in subjects if method not in each.tensors]
        if absent:
            whom = ", ".join(absent) if len(absent) < len(subjects) else "any of these subjects"
            lines.append(f"{method}: no tensor was kept of {whom}")
    return lines
