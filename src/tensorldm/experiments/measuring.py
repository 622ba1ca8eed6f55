"""One subject of a study: write what is missing of its tensors, then measure them from their files.

The series is read only where something is missing, and every tensor that is finished stays finished: a study that is
stopped goes on with the next tensor.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from tensorldm.bundle import load_bundle
from tensorldm.config.prepare import Fit
from tensorldm.data.store import safe_name
from tensorldm.errors import DataError, TensorldmError
from tensorldm.evaluation.evaluate import REFERENCE, evaluate_files
from tensorldm.evaluation.measures import SPD_VIOLATIONS
from tensorldm.evaluation.table import Row
from tensorldm.experiments.batching import Prepared, prepare
from tensorldm.experiments.config import MethodConfig
from tensorldm.experiments.inside import Opened, autoencode
from tensorldm.experiments.loading import MASK, LoadedSubject, load
from tensorldm.experiments.methods import Workbench, method_settings, write_estimate, write_method, write_reference
from tensorldm.experiments.parts import Results, key_of
from tensorldm.experiments.subjects import StudySubject, Tell
from tensorldm.experiments.variants import PAPER_FIT, TRUTH, Planned, Variant, variant_key
from tensorldm.imaging.tensor_files import read_tensor, sidecar_path


@dataclass(eq=False)
class SubjectWork:
    """A subject, its folder, and what has been read of it so far."""

    subject: StudySubject
    folder: Path
    bench: Workbench
    tell: Tell
    remarks: list[str] = field(default_factory=list)
    failed: bool = False
    """The scan cannot be used at all; a remark says why."""
    unmeasured: list[Planned] = field(default_factory=list)
    """What there is a tensor of, but no figures; a remark says why."""

    @cached_property
    def loaded(self) -> LoadedSubject:
        """The series, read on first use."""
        self.tell("reading the series")
        return load(self.subject, self.folder)

    @cached_property
    def prepared(self) -> Prepared:
        """The four volumes and the paper's reference as a network reads them."""
        reference = read_tensor(self.reference(PAPER_FIT)).data.astype(np.float32)
        return prepare(self.loaded, reference)

    def reference(self, name: str) -> Path:
        """The tensor to measure against, fitted where it is missing."""
        if name == TRUTH:
            assert self.subject.truth is not None, "only virtual subjects have a truth"
            return self.subject.truth
        path = self.folder / f"reference-{name}-{key_of(subject=self.subject.identity)}.nii.gz"
        if not path.is_file():
            fit: Fit = _fit_named(name)
            loaded = self.loaded
            self.tell(f"fitting the reference by {name.upper()}")
            try:
                write_reference(loaded, fit, path)
            except ImportError as error:
                raise DataError(f"the fit {name.upper()} is DIPY's, which is not installed here ({error})") from error
        return path

    def tensor(self, variant: Variant) -> Path:
        """A variant's tensor, made where it is missing."""
        if variant.config is None:
            return self.reference(variant.label)
        path = self.path(variant)
        if not path.is_file():
            loaded = self.loaded
            self.tell(variant.label)
            if variant.config.autoencoder is not None:
                self._autoencode(variant.label, variant.config.autoencoder, path)
            else:
                write_method(loaded, variant.config, path, label=variant.label, seed=variant.seed, bench=self.bench)
        return path

    def path(self, variant: Variant) -> Path:
        """Where a variant's tensor stands; another name for other weights or settings."""
        return self.folder / f"{safe_name(variant.label)}-{variant_key(variant, self.subject)}.nii.gz"

    def opened(self, bundle: Path) -> Opened:
        """A model with this subject on its device, to look inside."""
        model, info = load_bundle(bundle, self.bench.device)
        return Opened(model, info, self.prepared.batch.to(self.bench.device))

    def unload(self) -> None:
        """Forget the series: it is hundreds of megabytes, and nobody needs two of them."""
        for name in ("loaded", "prepared"):
            vars(self).pop(name, None)

    def _autoencode(self, label: str, bundle: Path, path: Path) -> None:
        native = self.prepared.to_native(autoencode(self.opened(bundle)), self.loaded)
        write_estimate(self.loaded, native, path, method=label, volumes=self.prepared.volumes)


def measure_subject(work: SubjectWork, planned: Sequence[Planned], *, results: Results, keep: bool) -> None:
    """Measure what is missing; a method that cannot be used on the scan is left out with a remark.

    A tensor without figures is not kept: the same command makes it anew.
    """
    absent = {part.place for part in results.missing([each.part for each in planned])}
    missing = [each for each in planned if each.part.place in absent]
    if missing and not _is_usable(work):
        return
    for reference in dict.fromkeys(each.reference for each in missing):
        made = [(each, path) for each in missing if each.reference == reference and (path := _try(work, each))]
        if not made or not _has_reference(work, reference):
            continue
        work.tell(f"measuring against {reference.upper() if reference != TRUTH else 'the truth'}")
        for each, rows in _measured(work, reference, made):
            results.write(each.part, rows)
    _forget(work, work.unmeasured if keep else planned)


def _is_usable(work: SubjectWork) -> bool:
    """Read the scan; one that cannot be used is left out of everything, and the others go on."""
    try:
        _ = work.loaded
    except DataError as error:
        work.remarks.append(f"{work.subject.name} is left out: {error}")
        work.failed = True
    return not work.failed


def _try(work: SubjectWork, planned: Planned) -> Path | None:
    try:
        return work.tensor(planned.variant)
    except TensorldmError as error:  # a scan it cannot use, settings it does not have, a package that is not here
        work.remarks.append(f"{work.subject.name}: {planned.row_label} is missing: {error}")
        return None


def _has_reference(work: SubjectWork, name: str) -> bool:
    """Whether there is something to measure against; the same command elsewhere may do what is missing."""
    try:
        _measure(work, name, [])
    except DataError as error:
        work.remarks.append(f"{work.subject.name}: nothing is measured against {name.upper()}: {error}")
        work.failed = work.failed or name == PAPER_FIT  # models are looked into beside it
        return False
    return True


def _measured(
    work: SubjectWork, reference: str, made: Sequence[tuple[Planned, Path]]
) -> list[tuple[Planned, list[Row]]]:
    """Each with its rows; a tensor that cannot be measured leaves a remark, and the others are measured without it."""
    try:
        return list(zip([each for each, _ in made], _measure(work, reference, made), strict=True))
    except DataError as error:
        paths = dict.fromkeys(path for _, path in made)
        if len(paths) > 1:
            apart = [[each for each in made if each[1] == path] for path in paths]
            return [found for each in apart for found in _measured(work, reference, each)]
        planned = [each for each, _ in made]
        work.remarks.append(f"{work.subject.name}: {planned[0].row_label} was not measured: {error}")
        work.unmeasured += planned
        return []


def _measure(work: SubjectWork, reference: str, made: Sequence[tuple[Planned, Path]]) -> list[list[Row]]:
    """The rows of each; the reference's own come first in every part, so that a part says all of its subject."""
    paths = list(dict.fromkeys(path for _, path in made))
    mask = work.folder / MASK
    if not mask.is_file():
        _ = work.loaded  # writes it
    rows = evaluate_files(work.reference(reference), paths, mask=mask, subject=work.subject.name)
    rows = [replace(row, anatomy=work.subject.anatomy) for row in rows]
    own = [row for row in rows if row.method == REFERENCE]
    parts = []
    for planned, _ in made:
        found = [row for row in rows if row.method == planned.variant.label]
        assert found, f"{planned.variant.label} was measured under another name"
        kept = [row for row in found if row.metric != SPD_VIOLATIONS or _is_raw(work, planned.variant.config)]
        parts.append([*own, *(replace(row, method=planned.row_label) for row in kept)])
    return parts


def _is_raw(work: SubjectWork, config: MethodConfig | None) -> bool:
    """Whether the file holds the method's own tensor, so that its violations can be counted."""
    if config is None or config.bundle is None:
        return True
    return method_settings(config, work.loaded, seed=0).spd == "raw"


def _forget(work: SubjectWork, planned: Sequence[Planned]) -> None:
    """Remove tensors whose figures are kept: a whole study would fill a disk."""
    for path in {work.path(each.variant) for each in planned if each.variant.config is not None}:
        path.unlink(missing_ok=True)
        sidecar_path(path).unlink(missing_ok=True)


def _fit_named(name: str) -> Fit:
    for known in ("ols", "wls", "nlls", "restore"):
        if name == known:
            return known
    raise AssertionError(f"{name} is no fit")
