"""The figures of a study, drawn by ``tensorldm tables make``: experiments and pictures meet only here."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tensorldm.experiments.tables.stored import StoredStudy

PLANES = ("axial", "coronal")


def draw_figures(stored: "StoredStudy", out: Path) -> list[Path]:
    """Box plots of LEM for every comparison; maps, components and v1 fields of every subject whose tensors are kept."""
    from tensorldm.data.store import safe_name
    from tensorldm.evaluation.measures import LEM, TENSOR
    from tensorldm.experiments.kept import kept_subjects
    from tensorldm.experiments.variants import ACCURACY
    from tensorldm.report.method_figures import COMPONENTS, MAPS, draw_methods, read_fields
    from tensorldm.report.method_plots import draw_boxes, draw_v1_fields

    drawn = []
    compared = {name: (*each.methods, each.ours) for name, each in stored.study.comparisons.items()}
    for group in stored.study.groups:
        table = stored.table(ACCURACY, group)
        for name, methods in compared.items() if table is not None else ():
            assert table is not None
            found = {each: list(table.by_anatomy(each, TENSOR, metric=LEM).values()) for each in methods}
            values = {each: means for each, means in found.items() if means}
            if values:
                path = out / f"{safe_name(f'lem-{name}-{group}')}.svg"
                draw_boxes(path, values, measure="LEM", title=f"{stored.group_title(group)}: {table.describe()}")
                drawn.append(path)
    for subject in kept_subjects(stored.study, stored.results):
        for name, methods in compared.items():
            chosen = subject.of(methods)
            if not chosen:
                continue
            fields = read_fields(subject.reference, chosen, mask=subject.mask, subject=subject.name)
            stem = safe_name(f"{name}-{subject.group}-{subject.name}")
            for plane in PLANES:
                for kind, quantities in (("maps", MAPS), ("components", COMPONENTS)):
                    path = out / f"{kind}-{stem}-{plane}.png"
                    draw_methods(path, fields, quantities=quantities, plane=plane)
                    drawn.append(path)
                path = out / f"v1-{stem}-{plane}.png"
                draw_v1_fields(path, fields, plane=plane)
                drawn.append(path)
    return drawn
