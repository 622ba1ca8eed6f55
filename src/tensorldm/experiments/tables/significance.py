"""Table 5: is ours better than each rival and each ablation by more than chance, and by how much.

A unit is an independent anatomy: its subjects are averaged first. Where subjects share heads, the tests over subjects
stand apart and are marked, because warps of one head are not independent and make every p too small.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from tensorldm.evaluation.formatting import Block, Cell, Column, Line, PublishedTable
from tensorldm.evaluation.indexed import IndexedTable
from tensorldm.evaluation.measures import (
    COMPONENT_NAMES,
    LEM,
    MAP_NAMES,
    NMSE,
    OFF_DIAGONAL_LEM,
    PSNR,
    SSIM,
    TENSOR,
    V1_MEAN,
    V1_MEDIAN,
)
from tensorldm.evaluation.statistics import ALPHA, LEAST_PAIRS, PairedTest, compare_paired, holm, stars
from tensorldm.experiments.config import ComparisonConfig
from tensorldm.experiments.published import NOT_SIGNIFICANT, paper_name
from tensorldm.experiments.tables.accuracy import BETTER, TITLES
from tensorldm.experiments.tables.stored import StoredStudy
from tensorldm.experiments.variants import ACCURACY

MEASURES: Final = (
    *((TENSOR, metric) for metric in (LEM, OFF_DIAGONAL_LEM, V1_MEDIAN, V1_MEAN)),
    *((name, metric) for name in COMPONENT_NAMES for metric in (PSNR, SSIM)),
    *((name, metric) for name in MAP_NAMES for metric in (NMSE, PSNR, SSIM)),
)
PRINCIPAL: Final = (
    (TENSOR, LEM), (TENSOR, OFF_DIAGONAL_LEM), (TENSOR, V1_MEDIAN),
    ("Dxy", PSNR), ("Dxz", PSNR), ("Dyz", PSNR), ("FA", NMSE), ("FA", PSNR), ("colour FA", PSNR),
)  # fmt: skip
"""Whose effects a document shows; the CSV has all."""
WORSE: Final = " worse"
DEPENDENT: Final = "†"
LEGEND: Final = (
    "Two-sided paired tests of ours against each method: *** p < 0.001, ** p < 0.01, * p < 0.05, else p and (n.s.); "
    "'worse' where ours is the worse of the two; a dash where there are fewer than "
    f"{LEAST_PAIRS} independent pairs"
)
EFFECTS: Final = (
    "Advantage in the measure's own unit, positive where ours is better; Holm over all tests of this table; d_z the "
    "mean difference over its standard deviation; r the matched-pairs rank-biserial correlation"
)


class Tested(NamedTuple):
    """One test with its correction."""

    test: PairedTest
    p_holm: float


def tables(stored: StoredStudy) -> Iterator[PublishedTable]:
    """One for every group and comparison."""
    for group in stored.study.groups:
        table = stored.table(ACCURACY, group)
        for name, comparison in stored.study.comparisons.items() if table is not None else ():
            assert table is not None
            others = [each for each in comparison.methods if each in table.methods]
            if others and comparison.ours in table.methods:
                yield _tests(stored, table, group, name, comparison, others)


def paired_tests(
    table: IndexedTable, ours: str, *, others: Sequence[str], by_anatomy: bool
) -> dict[tuple[str, tuple[str, str]], Tested]:
    """Every measure against every other method, Holm-corrected together."""
    found = {}
    for measure in MEASURES:
        for other in others:
            quantity, metric = measure
            first, second = table.paired((ours, other), quantity, metric=metric, by_anatomy=by_anatomy)
            if first:
                higher = BETTER.get(metric) == "higher"
                found[other, measure] = compare_paired(first, second, higher_is_better=higher)
    corrected = holm([test.p_t for test in found.values()])
    return {key: Tested(test, p) for (key, test), p in zip(found.items(), corrected, strict=True)}


def _tests(
    stored: StoredStudy,
    table: IndexedTable,
    group: str,
    name: str,
    comparison: ComparisonConfig,
    others: Sequence[str],
) -> PublishedTable:
    independent = paired_tests(table, comparison.ours, others=others, by_anatomy=True)
    blocks, more = [], []
    if any(not math.isnan(tested.test.p_t) for tested in independent.values()):
        blocks += [
            _star_block(independent, others, title="Paired t-test", mark=""),
            _star_block(independent, others, title="Paired t-test, Holm-corrected", mark="", holm_corrected=True),
        ]
    else:
        more.append(f"With fewer than {LEAST_PAIRS} independent anatomies there is no independent test")
    if table.has_repeated_anatomies:
        subjects = paired_tests(table, comparison.ours, others=others, by_anatomy=False)
        title = f"Paired t-test over subjects {DEPENDENT} not independent"
        blocks.append(_star_block(subjects, others, title=title, mark=DEPENDENT))
        blocks.append(_effect_block(subjects, MEASURES, title=f"All tests over subjects {DEPENDENT}", brief=True))
        more.append(f"{DEPENDENT} Subjects that share a head count as if they were independent: these p are too small")
    blocks.append(_effect_block(independent, PRINCIPAL, title="Effects", brief=False))
    blocks.append(_effect_block(independent, MEASURES, title="All tests", brief=True))
    paper = _paper_words(others)
    words = (
        f"On {stored.group_title(group)}",
        table.describe(),
        f"Ours is {comparison.ours}; a pair is an independent anatomy, its subjects averaged first",
        LEGEND,
        EFFECTS,
        *more,
        *([comparison.note] if comparison.note else []),
        *([paper] if paper else []),
    )
    title = f"Paired tests, {comparison.title}, {stored.group_title(group)}"
    return PublishedTable(5, f"tests-{name}-{group}", title, words, tuple(blocks))


def _star_block(
    tests: Mapping[tuple[str, tuple[str, str]], Tested],
    others: Sequence[str],
    *,
    title: str,
    mark: str,
    holm_corrected: bool = False,
) -> Block:
    lines = []
    for measure in MEASURES:
        cells = []
        for other in others:
            tested = tests.get((other, measure))
            cells.append(Cell(text="–") if tested is None else _star_cell(tested, holm_corrected, mark))
        lines.append(Line(_named(measure), tuple(cells), ranked=False))
    return Block(title, tuple(Column(other) for other in others), tuple(lines), first="measure")


def _star_cell(tested: Tested, holm_corrected: bool, mark: str) -> Cell:
    p = tested.p_holm if holm_corrected else tested.test.p_t
    text = stars(p)
    worse = WORSE if not math.isnan(p) and tested.test.advantage < 0 else ""
    return Cell(text=text if math.isnan(p) else f"{text}{worse}{mark}")


def _effect_block(
    tests: Mapping[tuple[str, tuple[str, str]], Tested],
    measures: Sequence[tuple[str, str]],
    *,
    title: str,
    brief: bool,
) -> Block:
    columns = (
        Column("pairs", ".0f"), Column("left out", ".0f"), Column("advantage", ".4f"), Column("p (t)", ".2g"),
        Column("p (Holm)", ".2g"), Column("p (Wilcoxon)", ".2g"), Column("d_z", ".2f"), Column("r", ".2f"),
    )  # fmt: skip
    lines = []
    for (other, measure), (test, corrected) in tests.items():
        if measure in measures:
            values = [float(test.pairs), float(test.left_out), test.advantage, test.p_t, corrected]
            values += [test.p_wilcoxon, test.cohens_dz, test.rank_biserial]
            lines.append(Line(f"{_named(measure)} vs {other}", tuple(Cell(value) for value in values), ranked=False))
    return Block(title, columns, tuple(lines), first="test", brief=brief)


def _named(measure: tuple[str, str]) -> str:
    quantity, metric = measure
    title = TITLES[metric].partition(",")[0]
    return title if quantity == TENSOR else f"{quantity} {title}"


def _paper_words(others: Sequence[str]) -> str:
    """What the paper says of the same pairs."""
    names = {paper_name(other) or other for other in others}
    found = [
        f"{_named((quantity, metric))} vs {name} p = {p:g}"
        for (name, quantity, metric), p in NOT_SIGNIFICANT.items()
        if name in names
    ]
    if not found:
        return ""
    return f"On the paper's own data (195 HCP subjects) these were not significant (p ≥ {ALPHA:g}): {', '.join(found)}"
