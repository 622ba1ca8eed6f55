"""Tables 1, 2, 3, 6 and 7: how near every method comes to the reference."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tensorldm.evaluation.evaluate import REFERENCE
from tensorldm.evaluation.formatting import Better, Block, Cell, Column, Line, PublishedTable
from tensorldm.evaluation.indexed import IndexedTable
from tensorldm.evaluation.measures import (
    COMPONENT_NAMES,
    LEM,
    MAP_NAMES,
    NMSE,
    OFF_DIAGONAL_LEM,
    PSNR,
    SPD_VIOLATIONS,
    SSIM,
    TENSOR,
    V1_MEAN,
    V1_MEDIAN,
    sensitivity_name,
)
from tensorldm.experiments.config import ComparisonConfig, Kind
from tensorldm.experiments.tables.stored import StoredStudy, caption, own_cell, paper_column
from tensorldm.experiments.variants import ACCURACY
from tensorldm.metrics.ranges import LEM_FLOOR_MM2_PER_S, LEM_SENSITIVITY_FLOORS_MM2_PER_S

BETTER: dict[str, Better] = {PSNR: "higher", SSIM: "higher", SPD_VIOLATIONS: "none"}
"""Of every other metric less is better. A reference that violates itself is best matched by violating too."""
TITLES = {NMSE: "NMSE", PSNR: "PSNR, dB", SSIM: "SSIM", LEM: "LEM", OFF_DIAGONAL_LEM: "off-diag. LEM"}
TITLES |= {V1_MEDIAN: "v1 median, °", V1_MEAN: "v1 mean, °", SPD_VIOLATIONS: "SPD violations, %"}
FORMS = {NMSE: ".3f", PSNR: ".2f", SSIM: ".3f", V1_MEDIAN: ".1f", V1_MEAN: ".1f", SPD_VIOLATIONS: ".2f"}
MOST_ANATOMIES = 12
"""Of more, a document shows no line each; the CSV has them all."""

Figure = tuple[str, str]
"""Quantity and metric."""


def tables(stored: StoredStudy) -> Iterator[PublishedTable]:
    """All of them, for every group and comparison that has figures."""
    for group in stored.study.groups:
        table = stored.table(ACCURACY, group)
        if table is None:
            continue
        for name, comparison in _measured(stored, table, "rivals"):
            yield _maps(stored, table, group, name, comparison)
            yield _components(stored, table, group, name, comparison)
        yield _violations(stored, table, group)
        for name, comparison in _measured(stored, table, "ablations", "curriculum"):
            yield _ablations(stored, table, group, name, comparison)
        yield _floors(stored, table, group)


def _measured(stored: StoredStudy, table: IndexedTable, *kinds: Kind) -> Iterator[tuple[str, ComparisonConfig]]:
    """Comparisons of these kinds of which some method was measured."""
    for kind in kinds:
        for name, comparison in stored.compared(kind).items():
            if _methods(table, comparison):
                yield name, comparison


def figure_block(
    stored: StoredStudy,
    table: IndexedTable,
    methods: Sequence[str],
    *,
    title: str,
    figures: Sequence[tuple[str, Figure]],
    with_paper: bool = True,
    rank_all: bool = False,
) -> Block:
    """Methods as lines; each figure a column, with the paper's beside it where the paper has it for any of them."""
    columns: list[Column] = []
    cells: list[list[Cell]] = [[] for _ in methods]
    for heading, (quantity, metric) in figures:
        form = FORMS.get(metric, ".3f")
        columns.append(Column(heading, form, BETTER.get(metric, "lower")))
        for line, method in zip(cells, methods, strict=True):
            line.append(own_cell(table, method, quantity, metric=metric))
        published = [stored.paper_cell(method, quantity, metric=metric) for method in methods]
        if with_paper and any(cell.value is not None for cell in published):
            columns.append(paper_column(heading, ".2f" if metric != OFF_DIAGONAL_LEM else ".3f"))
            for line, cell in zip(cells, published, strict=True):
                line.append(cell)
    lines = [
        Line(_label(table, method), tuple(line), ranked=rank_all or stored.is_ranked(method))
        for method, line in zip(methods, cells, strict=True)
    ]
    return Block(title, tuple(columns), tuple(lines))


def _label(table: IndexedTable, method: str) -> str:
    """A method that was measured on fewer subjects than there are says so wherever it stands beside others."""
    covered, everybody = table.covered(method), len(table.subjects)
    return method if covered in (0, everybody) else f"{method} ({covered} of {everybody} subjects)"


def anatomy_block(table: IndexedTable, methods: Sequence[str], *, quantity: str, metric: str, title: str) -> Block:
    """The same figure of every anatomy: lines are anatomies, columns are methods."""
    means = {method: table.by_anatomy(method, quantity, metric=metric) for method in methods}
    heads = list(dict.fromkeys(head for values in means.values() for head in values))
    form = FORMS.get(metric, ".3f")
    lines = tuple(
        Line(head, tuple(Cell(means[method].get(head)) for method in methods), ranked=False) for head in heads
    )
    columns = tuple(Column(method, form) for method in methods)
    return Block(title, columns, lines, first="anatomy", brief=len(heads) > MOST_ANATOMIES)


def _methods(table: IndexedTable, comparison: ComparisonConfig) -> list[str]:
    """Those that were measured; ours last, as in the paper."""
    return [name for name in (*comparison.methods, comparison.ours) if name in table.methods]


def _title(what: str, comparison: ComparisonConfig, stored: StoredStudy, group: str) -> str:
    return ", ".join(part for part in (what, comparison.title, stored.group_title(group)) if part)


def _maps(
    stored: StoredStudy, table: IndexedTable, group: str, name: str, comparison: ComparisonConfig
) -> PublishedTable:
    methods = _methods(table, comparison)
    blocks = [
        figure_block(
            stored, table, methods, title=quantity, figures=[(TITLES[m], (quantity, m)) for m in (NMSE, PSNR, SSIM)]
        )
        for quantity in MAP_NAMES
    ]
    blocks.append(anatomy_block(table, methods, quantity="FA", metric=PSNR, title="PSNR of FA by anatomy, dB"))
    words = caption(table, stored, group, comparison.note, *stored.notes(methods))
    return PublishedTable(
        1, f"maps-{name}-{group}", _title("Parameter maps", comparison, stored, group), words, tuple(blocks)
    )


def _components(
    stored: StoredStudy, table: IndexedTable, group: str, name: str, comparison: ComparisonConfig
) -> PublishedTable:
    methods = _methods(table, comparison)
    blocks = [
        figure_block(stored, table, methods, title=TITLES[m], figures=[(each, (each, m)) for each in COMPONENT_NAMES])
        for m in (PSNR, SSIM)
    ]
    tensor = [(TITLES[metric], (TENSOR, metric)) for metric in (LEM, OFF_DIAGONAL_LEM, V1_MEDIAN, V1_MEAN)]
    blocks.append(figure_block(stored, table, methods, title="Whole tensors", figures=tensor))
    blocks.append(anatomy_block(table, methods, quantity=TENSOR, metric=LEM, title="LEM by anatomy"))
    words = caption(table, stored, group, comparison.note, *stored.notes(methods))
    return PublishedTable(
        2, f"components-{name}-{group}", _title("Components", comparison, stored, group), words, tuple(blocks)
    )


def _violations(stored: StoredStudy, table: IndexedTable, group: str) -> PublishedTable:
    """The reference first; no line is called best."""
    methods = [REFERENCE, *(name for name in stored.study.methods if name in table.methods)]
    block = figure_block(stored, table, methods, title="", figures=[(TITLES[SPD_VIOLATIONS], (TENSOR, SPD_VIOLATIONS))])
    more = (
        "Share of brain voxels whose tensor, as the method gives it, has a negative eigenvalue; the reference is a "
        "least-squares fit, which does not exclude them. A dash: the tensor was made positive on its way to the grid"
    )
    words = caption(table, stored, group, more, ranked=False)
    return PublishedTable(3, f"spd-{group}", f"SPD violations, {stored.group_title(group)}", words, (block,))


def _ablations(
    stored: StoredStudy, table: IndexedTable, group: str, name: str, comparison: ComparisonConfig
) -> PublishedTable:
    methods = [each for each in (comparison.ours, *comparison.methods) if each in table.methods]
    whole = [(TITLES[metric], (TENSOR, metric)) for metric in (LEM, OFF_DIAGONAL_LEM, V1_MEDIAN)]
    oracles = comparison.kind == "curriculum"
    blocks = [figure_block(stored, table, methods, title="Whole tensors", figures=whole, rank_all=oracles)]
    if comparison.kind == "ablations":
        named = [("PSNR of components, dB", COMPONENT_NAMES), ("PSNR of maps, dB", MAP_NAMES)]
        blocks += [
            figure_block(stored, table, methods, title=title, figures=[(each, (each, PSNR)) for each in names])
            for title, names in named
        ]
    blocks.append(anatomy_block(table, methods, quantity=TENSOR, metric=LEM, title="LEM by anatomy"))
    oracle = "The autoencoder is shown the reference's own latents" if oracles else ""
    words = caption(table, stored, group, comparison.note, oracle, *stored.notes(methods))
    return PublishedTable(6, f"{name}-{group}", _title("", comparison, stored, group), words, tuple(blocks))


def _floors(stored: StoredStudy, table: IndexedTable, group: str) -> PublishedTable:
    """Nobody is called best: methods of all comparisons stand here, and those are never ranked together."""
    methods = [name for name in stored.study.methods if name in table.methods]
    floors = sorted((LEM_FLOOR_MM2_PER_S, *LEM_SENSITIVITY_FLOORS_MM2_PER_S))
    names = {floor: LEM if floor == LEM_FLOOR_MM2_PER_S else sensitivity_name(floor) for floor in floors}
    figures = [(f"LEM at {floor:g} mm²/s", (TENSOR, names[floor])) for floor in floors]
    block = figure_block(stored, table, methods, title="", figures=figures, with_paper=False)
    block = replace(block, columns=tuple(replace(column, better="none") for column in block.columns))
    orders = {floor: _order(stored, table, methods, metric=names[floor]) for floor in floors}
    same = len({tuple(order) for order in orders.values()}) == 1
    more = (
        "Eigenvalues below the floor count as the floor",
        "The order of the methods is the same at every floor" if same else f"The order changes: {_told(orders)}",
    )
    words = caption(table, stored, group, *more, published=False, ranked=False)
    title = f"Sensitivity of LEM to the eigenvalue floor, {stored.group_title(group)}"
    return PublishedTable(7, f"floors-{group}", title, words, (block,))


def _order(stored: StoredStudy, table: IndexedTable, methods: Sequence[str], *, metric: str) -> list[str]:
    found = ((table.measured(name, TENSOR, metric=metric), name) for name in methods if stored.is_ranked(name))
    return [name for _, name in sorted((value.mean, name) for value, name in found if value is not None)]


def _told(orders: dict[float, list[str]]) -> str:
    return "; ".join(f"at {floor:g} {' < '.join(order)}" for floor, order in orders.items())
