"""A study whose models are found: runs of training and the shipped model become folders of bundles."""

from pathlib import Path

from tensorldm.bundle import INDEX
from tensorldm.errors import DataError
from tensorldm.experiments.config import ComparisonConfig, MethodConfig, StudyConfig
from tensorldm.experiments.recipes import SHIPPED, bundle_folder, reference_of, shipped_model

PARTS = ("fits", "sampling", "runtime", "probe", "routing")


def with_bundles(study: StudyConfig, out: Path) -> StudyConfig:
    """The study with a folder wherever a method names a run, in the study's own folder, or the shipped model."""
    methods = {
        name: method.model_copy(
            update={kind: _folder(study, getattr(method, kind), out) for kind in ("bundle", "autoencoder")}
        )
        for name, method in study.methods.items()
    }
    return study.model_copy(update={"methods": methods})


def without_missing(study: StudyConfig, out: Path) -> tuple[StudyConfig, list[str]]:
    """The study without methods whose run has not been finished, and their names; refused where nothing is left."""
    found = with_bundles(study, out)
    missing = [name for name, method in study.methods.items() if _is_missing(method, found.methods[name])]
    if not missing:
        return study, []
    kept = {name: method for name, method in study.methods.items() if name not in missing}
    comparisons = {
        name: without for name, each in study.comparisons.items() if (without := _compared(each, kept)) is not None
    }
    if not comparisons:
        raise DataError(f"{out}: nothing to compare yet, {', '.join(missing)} are not trained. Train them first.")
    changes: dict[str, object] = {"methods": kept, "comparisons": comparisons}
    for part in PARTS:
        config = getattr(study, part)
        if config is not None:
            methods = tuple(name for name in config.methods if name in kept)
            changes[part] = config.model_copy(update={"methods": methods}) if methods or part == "fits" else None
    return study.model_copy(update=changes), missing


def _folder(study: StudyConfig, bundle: Path | None, out: Path) -> Path | None:
    reference = reference_of(bundle)
    if reference is not None:
        assert study.training is not None, "the settings were checked"
        return bundle_folder(out, reference, runs=study.training.runs)
    if bundle == Path(SHIPPED):
        return shipped_model()
    return bundle


def _is_missing(method: MethodConfig, found: MethodConfig) -> bool:
    folder = found.bundle or found.autoencoder
    is_run = reference_of(method.bundle or method.autoencoder) is not None
    return is_run and folder is not None and not (folder / INDEX).is_file()


def _compared(comparison: ComparisonConfig, kept: dict[str, MethodConfig]) -> ComparisonConfig | None:
    """A comparison of what is there; none without ours or without another."""
    others = tuple(name for name in comparison.methods if name in kept)
    return comparison.model_copy(update={"methods": others}) if comparison.ours in kept and others else None
