"""Tables 10 and 11: what seeds, steps and samplers do to a model's figures, and what another reference does."""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from tensorldm.evaluation.formatting import Block, Cell, Column, Line, PublishedTable
from tensorldm.evaluation.indexed import IndexedTable
from tensorldm.evaluation.measures import LEM, OFF_DIAGONAL_LEM, PSNR, SPD_VIOLATIONS, SSIM, TENSOR, V1_MEDIAN
from tensorldm.experiments.tables.accuracy import BETTER, FORMS, TITLES
from tensorldm.experiments.tables.significance import MEASURES
from tensorldm.experiments.tables.stored import StoredStudy, caption, own_cell
from tensorldm.experiments.variants import FITS, PAPER_FIT, SEEDS, STEPS, TRUTH, untagged

MAIN: Final = (
    (TENSOR, LEM), (TENSOR, OFF_DIAGONAL_LEM), (TENSOR, V1_MEDIAN), ("Dxy", PSNR), ("Dxz", PSNR), ("Dyz", PSNR),
    ("MD", PSNR), ("FA", PSNR), ("FA", SSIM), ("colour FA", PSNR), (TENSOR, SPD_VIOLATIONS),
)  # fmt: skip
EVERY: Final = (*MEASURES, (TENSOR, SPD_VIOLATIONS))
Figure = tuple[str, str]


def tables(stored: StoredStudy) -> Iterator[PublishedTable]:
    """Those whose experiments were run."""
    for group in stored.study.groups:
        for experiment, build in ((SEEDS, _seeds), (STEPS, _steps), (FITS, _fits)):
            table = stored.table(experiment, group)
            if table is not None:
                yield build(stored, table, group)


def heading(figure: Figure) -> str:
    """A figure's name above a column."""
    quantity, metric = figure
    return TITLES[metric] if quantity == TENSOR else f"{quantity} {TITLES[metric]}"


def _seeds(stored: StoredStudy, table: IndexedTable, group: str) -> PublishedTable:
    """Two spreads: of what a study would report, and of what one patient would be told."""
    blocks = []
    for method, labels in _by_method(table).items():
        lines = [Line(heading(figure), _seed_cells(table, labels, figure), ranked=False) for figure in EVERY]
        columns = tuple(
            Column(name, ".4f")
            for name in ("mean", "SD of the study's mean", "SD within a subject", "lowest mean", "highest mean")
        )
        blocks.append(Block(f"{method}, {len(labels)} seeds", columns, tuple(lines), first="measure"))
    more = (
        "Only the seed of the sampler differs, one sample each",
        "The study's mean is the mean over anatomies with one seed; within a subject: the standard deviation over "
        "seeds, averaged over subjects",
    )
    words = (f"On {stored.group_title(group)}", table.describe(), *more)
    title = f"Stability over sampling seeds, {stored.group_title(group)}"
    return PublishedTable(10, f"seeds-{group}", title, words, tuple(blocks))


def _seed_cells(table: IndexedTable, labels: Sequence[str], figure: Figure) -> tuple[Cell, ...]:
    quantity, metric = figure
    found = [table.measured(label, quantity, metric=metric) for label in labels]
    means = [each.mean for each in found if each is not None and math.isfinite(each.mean)]
    if len(means) < 2:
        return tuple(Cell() for _ in range(5))
    each_subject: dict[str, list[float]] = defaultdict(list)
    for label in labels:
        for subject, value in table.by_subject(label, quantity, metric=metric).items():
            each_subject[subject].append(value)
    within = [statistics.stdev(values) for values in each_subject.values() if len(values) > 1]
    values = (statistics.fmean(means), statistics.stdev(means), statistics.fmean(within), min(means), max(means))
    return tuple(Cell(value) for value in values)


def _steps(stored: StoredStudy, table: IndexedTable, group: str) -> PublishedTable:
    columns = tuple(Column(heading(f), FORMS.get(f[1], ".3f"), BETTER.get(f[1], "lower")) for f in MAIN)
    blocks = []
    for method, labels in _by_method(table).items():
        lines = []
        for label in labels:
            settings = untagged(label)[1]
            cells = tuple(own_cell(table, label, quantity, metric=metric) for quantity, metric in MAIN)
            lines.append(Line(f"{settings['sampler']}, {settings['steps']} steps", cells))
        blocks.append(Block(method, columns, tuple(lines), first="sampler"))
    words = caption(table, stored, group, "One sample each, the same noise", published=False)
    return PublishedTable(
        10, f"steps-{group}", f"Steps and samplers, {stored.group_title(group)}", words, tuple(blocks)
    )


def _fits(stored: StoredStudy, table: IndexedTable, group: str) -> PublishedTable:
    """First the fits among themselves, then every method against each of them."""
    fits = list(stored.study.fits.fits) if stored.study.fits is not None else []
    references = list(dict.fromkeys(untagged(label)[1]["reference"] for label in _labels(table)))
    blocks = [
        block
        for reference in (PAPER_FIT, TRUTH)
        if (block := _fit_block(table, [fit for fit in fits if fit != reference], reference)) is not None
    ]
    methods = [name for name in dict.fromkeys(untagged(label)[0] for label in _labels(table)) if name not in fits]
    blocks += [_moved_block(table, method, references, figures=MAIN, brief=False) for method in methods]
    blocks += [_moved_block(table, method, references, figures=EVERY, brief=True) for method in methods]
    more = (
        "All fits use every b=0 and every direction of the shell; NLLS and RESTORE are DIPY's, which clips negative "
        "eigenvalues; the truth is the noise-free tensor of virtual subjects",
        "The largest move is between any two fits, the truth left out",
    )
    words = caption(table, stored, group, *more, published=False)
    title = f"The reference fitted by OLS, WLS, NLLS and RESTORE, {stored.group_title(group)}"
    return PublishedTable(11, f"fits-{group}", title, words, tuple(blocks))


def _fit_block(table: IndexedTable, fits: Sequence[str], reference: str) -> Block | None:
    lines = []
    for fit in fits:
        label = f"{fit}@reference={reference}"
        if label in table.methods:
            cells = tuple(own_cell(table, label, quantity, metric=metric) for quantity, metric in MAIN)
            lines.append(Line(fit.upper(), cells, ranked=reference == TRUTH))
    if not lines:
        return None
    columns = tuple(Column(heading(f), FORMS.get(f[1], ".3f"), BETTER.get(f[1], "lower")) for f in MAIN)
    title = "Each fit against the truth" if reference == TRUTH else f"Each fit against {reference.upper()}"
    return Block(title, columns, tuple(lines), first="fit")


def _moved_block(
    table: IndexedTable, method: str, references: Sequence[str], *, figures: Sequence[Figure], brief: bool
) -> Block:
    """Lines are measures, so that one sees along a line how far the reference moves it."""
    lines = []
    for figure in figures:
        quantity, metric = figure
        cells = [own_cell(table, f"{method}@reference={each}", quantity, metric=metric) for each in references]
        known = [
            cell.value
            for cell, each in zip(cells, references, strict=True)
            if each != TRUTH and cell.value is not None and math.isfinite(cell.value)
        ]
        moved = Cell(max(known) - min(known)) if len(known) > 1 else Cell()
        lines.append(Line(heading(figure), (*cells, moved), ranked=False))
    columns = tuple(Column(f"against {each if each == TRUTH else each.upper()}", ".3f") for each in references)
    title = f"{method}, every measure" if brief else method
    return Block(title, (*columns, Column("largest move", ".3f")), tuple(lines), first="measure", brief=brief)


def _labels(table: IndexedTable) -> list[str]:
    return [label for label in table.methods if untagged(label)[1]]


def _by_method(table: IndexedTable) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for label in _labels(table):
        found[untagged(label)[0]].append(label)
    return found
