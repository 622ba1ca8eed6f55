"""What the tables are made from: the stored settings and long tables of a study, and how a method is spoken of."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tensorldm.config.reading import read_config
from tensorldm.errors import DataError
from tensorldm.evaluation.formatting import EMPTY, Cell, Column, mean_cell
from tensorldm.evaluation.indexed import IndexedTable
from tensorldm.experiments.config import ComparisonConfig, MethodConfig, StudyConfig
from tensorldm.experiments.parts import Results
from tensorldm.experiments.published import FIGURES, FOOTNOTE, HEADING, paper_name
from tensorldm.experiments.recipes import reference_of
from tensorldm.experiments.training_log import TrainingLog

RECORD, SETTINGS = "run.json", "study.yaml"


@dataclass(frozen=True)
class StoredStudy:
    """A study that was run."""

    study: StudyConfig
    results: Results

    @classmethod
    def open(cls, folder: Path) -> "StoredStudy":
        """The study in a folder that ``tensorldm tables run`` wrote."""
        if not (folder / SETTINGS).is_file():
            raise DataError(f"{folder / SETTINGS}: there is no study. Give a folder that 'tensorldm tables run' wrote.")
        return cls(read_config(StudyConfig, folder / SETTINGS), Results(folder))

    @cached_property
    def record(self) -> dict[str, Any]:
        """Command, versions, hardware, seed, commit and remarks of the run; empty where it was not finished."""
        path = self.results.root / RECORD
        if not path.is_file():
            return {}
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise DataError(f"{path}: not readable as JSON ({error}). Run the study's command again.") from error
        return dict(found)

    def table(self, experiment: str, group: str) -> IndexedTable | None:
        """A long table; None where the experiment was not run on this group."""
        rows = self.results.read(experiment, group)
        return IndexedTable.of(rows) if rows else None

    def compared(self, kind: str) -> dict[str, ComparisonConfig]:
        """The comparisons of a kind."""
        return {name: each for name, each in self.study.comparisons.items() if each.kind == kind}

    def group_title(self, group: str) -> str:
        """What captions call the subjects of a group."""
        config = self.study.groups[group]
        if config.title:
            return config.title
        return "virtual test subjects" if config.virtual is not None else "real scans"

    def is_ranked(self, method: str) -> bool:
        """Whether a line takes part in best and second: not if it sees more than the others."""
        config = self.study.methods.get(method)
        return config is None or (config.ranked and config.autoencoder is None)

    def paper_cell(self, method: str, quantity: str, *, metric: str) -> Cell:
        """The paper's figure of the same method, on its own dataset."""
        config = self.study.methods.get(method)
        name = (config.paper if config is not None else None) or paper_name(method)
        found = None if name is None else FIGURES.get((name, quantity, metric))
        return EMPTY if found is None else mean_cell(found.mean, found.spread)

    def notes(self, methods: Sequence[str]) -> list[str]:
        """What the settings say of the methods, as sentences."""
        known = ((name, self._known(self.study.methods[name])) for name in methods if name in self.study.methods)
        return [f"{name}: {note}" for name, note in known if note]

    def _known(self, method: MethodConfig) -> str:
        """The note of a method, and what was spent on its training where the study did that itself."""
        reference = reference_of(method.bundle or method.autoencoder)
        spent = ""
        if reference is not None and self.study.training is not None:
            spent = TrainingLog.of(self.results.root).describe(reference, self.study.training)
        return "; ".join(part for part in (method.note, spent) if part)


def paper_column(of: str, form: str = ".2f") -> Column:
    """The paper's figures of what the column before it shows."""
    return Column(HEADING, form, published=True, of=of)


def own_cell(table: IndexedTable, method: str, quantity: str, *, metric: str) -> Cell:
    """Our figure: mean and standard deviation over anatomies."""
    found = table.measured(method, quantity, metric=metric)
    return EMPTY if found is None else mean_cell(found.mean, found.spread)


def caption(
    table: IndexedTable,
    stored: StoredStudy,
    group: str,
    *more: str,
    published: bool = True,
    ranked: bool = True,
) -> tuple[str, ...]:
    """Who was measured and how the figures are to be read; then ``more``."""
    spread = "Mean ± standard deviation over independent anatomies, the subjects of an anatomy averaged first"
    sentences = [
        f"On {stored.group_title(group)}",
        table.describe(),
        f"{spread}; best bold, second underlined" if ranked else spread,
        *(sentence for sentence in more if sentence),
    ]
    return (*sentences, FOOTNOTE) if published else tuple(sentences)
