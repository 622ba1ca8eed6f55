"""Tables 4, 8 and 9: seconds for a volume, what features and latents know of FA, and how the experts are mixed."""

import math
import statistics
from collections.abc import Iterator

from tensorldm.components import DIAGONAL
from tensorldm.evaluation.formatting import EMPTY, NO_FIGURE, Block, Cell, Column, Line, PublishedTable, mean_cell
from tensorldm.evaluation.indexed import IndexedTable
from tensorldm.evaluation.measures import COMPONENT_NAMES
from tensorldm.experiments import runtime
from tensorldm.experiments.inside import CELL, ENTROPY, FEATURES, LATENTS, VOLUME_NAMES, VOXEL
from tensorldm.experiments.model_studies import PROBE
from tensorldm.experiments.model_studies import ROUTING as SHARES
from tensorldm.experiments.published import PROBE_R2, ROUTING, RUNTIME_SECONDS, paper_name
from tensorldm.experiments.study import RUNTIME
from tensorldm.experiments.tables.stored import StoredStudy, caption, own_cell, paper_column
from tensorldm.experiments.variants import untagged

PARTS = {
    "encode, s": runtime.ENCODE,
    "sample, s": runtime.SAMPLE,
    "decode, s": runtime.DECODE,
    "whole way, s": runtime.TOTAL,
}
EXTRAPOLATED = "‡"
ESTIMATED = (runtime.SAMPLE, runtime.TOTAL)
"""What grows with the number of steps."""
LARGEST_ENTROPY = math.log(len(VOLUME_NAMES))


def tables(stored: StoredStudy) -> Iterator[PublishedTable]:
    """Those whose experiments were run."""
    for group in stored.study.groups:
        for experiment, build in ((RUNTIME, _runtime), (PROBE, _probe), (SHARES, _routing)):
            table = stored.table(experiment, group)
            if table is not None:
                yield build(stored, table, group)


def _runtime(stored: StoredStudy, table: IndexedTable, group: str) -> PublishedTable:
    lines = []
    for label in table.methods:
        method, settings = untagged(label)
        steps = int(settings.get("steps", 0))
        for where in dict.fromkeys(row.quantity for row in table.rows if row.method == label):
            estimated = table.measured(label, where, metric=runtime.EXTRAPOLATED) is not None
            cells = [_seconds(table, label, where, metric, estimated) for metric in PARTS.values()]
            name = f"{method}, {steps} steps, {where}" if steps else f"{method}, {where}"
            lines.append(Line(name, (*cells, Cell(text=_published_seconds(method, steps))), ranked=False))
    columns = (*(Column(heading, ".3g") for heading in PARTS), paper_column("whole way, s"))
    words = (
        f"One volume of the {stored.group_title(group)}, one sample; mean ± standard deviation over repeats, the first "
        "run not counted",
        table.describe(),
        "Encode reads the scan once, sample is a draw less its decoding, the whole way goes from the series in memory "
        "to the tensor on its grid",
        f"{EXTRAPOLATED} extrapolated in the number of steps, not measured",
        "¹ The paper's seconds on its own hardware, named beside each",
    )
    return PublishedTable(4, f"runtime-{group}", "Runtime of one volume", words, (Block("", columns, tuple(lines)),))


def _published_seconds(method: str, steps: int) -> str:
    """The paper's, of as many steps where it says how many they were."""
    name = paper_name(method) or ""
    known, of_some = RUNTIME_SECONDS.get((name, steps)), RUNTIME_SECONDS.get((name, 0))
    return known or (f"{of_some}, steps not said" if of_some else NO_FIGURE)


def _seconds(table: IndexedTable, label: str, where: str, metric: str, estimated: bool) -> Cell:
    found = table.measured(label, where, metric=metric)
    spread = table.measured(label, where, metric=f"{metric}{runtime.SPREAD}")
    if found is None:
        return EMPTY
    known = math.nan if spread is None or estimated else spread.mean
    return mean_cell(found.mean, known, mark=EXTRAPOLATED if estimated and metric in ESTIMATED else "")


def _probe(stored: StoredStudy, table: IndexedTable, group: str) -> PublishedTable:
    names = {FEATURES: "Φ_X, features of the scan", LATENTS: "latents of the tensor"}
    lines = [
        Line(
            f"{method}: {words}",
            (
                own_cell(table, method, kind, metric=VOXEL),
                Cell(PROBE_R2[kind]),
                own_cell(table, method, kind, metric=CELL),
            ),
            ranked=False,
        )
        for method in table.methods
        for kind, words in names.items()
    ]
    by_voxel = "R² of FA by voxel"
    columns = (Column(by_voxel), paper_column(by_voxel), Column("R² of mean FA by latent cell"))
    more = (
        "A linear probe with offset, fitted on all anatomies but one and judged on that one, in turn; R² about the "
        "judged subject's own mean",
        "By voxel, latents are known at a quarter of the resolution; by latent cell both have the same resolution",
    )
    words = caption(table, stored, group, *more, ranked=False)
    title = f"Linear probe of FA, {stored.group_title(group)}"
    return PublishedTable(8, f"probe-{group}", title, words, (Block("", columns, tuple(lines)),))


def _routing(stored: StoredStudy, table: IndexedTable, group: str) -> PublishedTable:
    columns = (*(Column(f"share of {name}", ".3f") for name in VOLUME_NAMES), Column("entropy, nats", ".3f"))
    metrics = (*(f"weight_{name}" for name in VOLUME_NAMES), ENTROPY)
    blocks = []
    for method in table.methods:
        lines = [
            Line(name, tuple(own_cell(table, method, name, metric=metric) for metric in metrics), ranked=False)
            for name in COMPONENT_NAMES
        ]
        for kind in ROUTING:
            wanted = [name for d, name in enumerate(COMPONENT_NAMES) if (d in DIAGONAL) == (kind == "diagonal")]
            cells = [_group_mean(table, method, wanted, metric) for metric in metrics]
            lines.append(Line(f"mean of the {kind} components", tuple(cells), ranked=False))
        blocks.append(Block(method, columns, tuple(lines), first="component"))
    paper = "; ".join(
        f"{kind} components {share:.2f} on {volume}, {entropy:.2f} nats"
        for kind, (volume, share, entropy) in ROUTING.items()
    )
    words = caption(
        table, stored, group,
        f"An even share is {1 / len(VOLUME_NAMES):g}; the largest entropy is {LARGEST_ENTROPY:.2f} nats",
        f"The paper, on another dataset: {paper}", published=False, ranked=False,
    )  # fmt: skip
    title = f"Routing of the DWI volumes, {stored.group_title(group)}"
    return PublishedTable(9, f"routing-{group}", title, words, tuple(blocks))


def _group_mean(table: IndexedTable, method: str, components: list[str], metric: str) -> Cell:
    """The mean over components, then over anatomies."""
    found = [table.measured(method, name, metric=metric) for name in components]
    means = [each.mean for each in found if each is not None]
    return mean_cell(statistics.fmean(means)) if means else EMPTY
