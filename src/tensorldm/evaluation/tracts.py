"""From tensor images on disk to figures of bundles in the long table: tracked alike, cut alike, measured alike.

The reference is tracked twice, the second time with another seed. How far it is from itself is the noise floor: no
method's figure below it means anything [choice: noise-floor].
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from tensorldm.data.store import safe_name
from tensorldm.evaluation.evaluate import REFERENCE, mask_of, name_methods
from tensorldm.evaluation.table import Row
from tensorldm.evaluation.tract_masks import MaskSource
from tensorldm.evaluation.tract_measures import Bundle, count_streamlines, measure_bundle, prepare_bundle
from tensorldm.imaging.mask import read_brain_mask
from tensorldm.imaging.nifti import read_header, stem
from tensorldm.imaging.tensor_files import read_provenance
from tensorldm.imaging.volume import Space
from tensorldm.shapes import MaskImage
from tensorldm.tracts.bundles import cut_bundles, read_bundles
from tensorldm.tracts.engine import open_engine
from tensorldm.tracts.regions import Region
from tensorldm.tracts.selecting import SelectionRule
from tensorldm.tracts.settings import TrackSettings
from tensorldm.tracts.tracking import Watch, read_field, track_field

NOISE_FLOOR: Final = "reference again"
"""The method name of the reference that was tracked with another seed."""
Tell = Callable[[str], None]
Draw = Callable[[Path, "TractResult"], None]
"""Draws the pictures of one subject into a folder."""


@dataclass(frozen=True)
class TractPlan:
    """How tractograms are made and cut; the same for every method and subject of a table."""

    settings: TrackSettings = field(default_factory=TrackSettings)
    rule: SelectionRule = field(default_factory=SelectionRule)
    engine: str = "auto"
    names: tuple[str, ...] = ()
    """Bundles to look at; empty for the paper's twelve."""
    workers: int = 1


@dataclass(frozen=True, eq=False)
class TractResult:
    """What was measured of one subject, and its bundles for pictures."""

    rows: list[Row]
    bundles: dict[str, dict[str, Bundle]]
    """By method (the reference first), then by bundle."""
    space: Space
    mask: MaskImage


def evaluate_tracts(
    reference: Path,
    predictions: Sequence[Path],
    *,
    bundles: MaskSource,
    out: Path,
    plan: TractPlan,
    mask: Path | None = None,
    convention: str | None = None,
    subject: str | None = None,
    methods: Sequence[str] | None = None,
    tell: Tell,
) -> TractResult:
    """Track every tensor into ``out``, cut the bundles whose masks ``bundles`` gives, and compare them.

    Tractograms that are there already, made alike, are used as they are. ``methods`` defaults to what the sidecars say.
    """
    known = read_provenance(reference)
    engine = open_engine(plan.engine)
    space = read_header(reference).space
    brain = read_brain_mask(mask_of(reference, mask), space)
    folder = bundles.folder(reference, brain, space=space, out=out, convention=convention, tell=tell)
    masks = read_bundles(folder, plan.names, brain=Region(brain, space))
    repeat = replace(plan.settings, seed=plan.settings.seed + 1)
    jobs = [(REFERENCE, reference, plan.settings), (NOISE_FLOOR, reference, repeat)]
    names = name_methods(predictions) if methods is None else methods
    jobs += [(name, path, plan.settings) for name, path in zip(names, predictions, strict=True)]
    found: dict[str, dict[str, Bundle]] = {}
    for method, path, settings in jobs:
        tensor = read_field(path, brain, space=space, convention=convention)
        target = out / safe_name(method)
        tractogram = track_field(
            tensor,
            target,
            settings=settings,
            engine=engine,
            workers=plan.workers,
            notes={"Method": method},
            watch=_told(tell, method),
        )
        tell(f"{method}: bundles")
        cut = cut_bundles(tractogram.tck, masks, rule=plan.rule, folder=out / "bundles" / safe_name(method))
        found[method] = {name: prepare_bundle(name, lines, space=space) for name, lines in cut.items()}
    name = subject or known.subject or stem(reference)
    return TractResult(_rows(found, name, known.anatomy or ""), found, space, brain)


def _told(tell: Tell, method: str) -> Watch:
    return lambda done, total: tell(f"{method}: {done} of {total} chunks of streamlines")


def _rows(found: dict[str, dict[str, Bundle]], subject: str, anatomy: str) -> list[Row]:
    reference = found[REFERENCE]
    figures = [(REFERENCE, count_streamlines(bundle)) for bundle in reference.values()]
    figures += [
        (method, figure)
        for method, bundles in found.items()
        if method != REFERENCE
        for name, bundle in bundles.items()
        for figure in measure_bundle(reference[name], bundle)
    ]
    return [Row(method, subject, *figure, anatomy=anatomy) for method, figure in figures]
