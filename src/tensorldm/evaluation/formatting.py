"""A table as it is published: blocks of lines and columns, with the best figure of a column and the second marked.

One description serves Markdown, CSV and LaTeX. Figures are ranked as they are shown: two that read the same share a
place. Figures of other studies stand in columns of their own, which are never ranked.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from tensorldm.evaluation.summary import format_value

Better = Literal["higher", "lower", "none"]
Place = Literal[0, 1, 2]
"""1 for the best, 2 for the second, 0 for the others."""
NO_FIGURE: Final = "–"
_PLACES: Final[Mapping[int, Place]] = {0: 1, 1: 2}


@dataclass(frozen=True)
class Column:
    """What stands in one column and how it is written."""

    heading: str
    form: str = ".2f"
    better: Better = "none"
    published: bool = False
    """Of another study, on another dataset."""
    of: str = ""
    """The heading whose figure is published; programs tell these columns apart by it."""


@dataclass(frozen=True)
class Cell:
    """A figure with its spread, or words instead of it."""

    value: float | None = None
    spread: float = math.nan
    text: str | None = None
    mark: str = ""
    """A footnote's sign behind the figure."""

    def written(self, form: str) -> str:
        """As text, without marks of rank."""
        if self.text is not None:
            return self.text
        figure = format_value(self.value, form)
        if figure == NO_FIGURE or math.isnan(self.spread):
            return figure + self.mark
        return f"{figure} ± {format_value(self.spread, form)}{self.mark}"


EMPTY: Final = Cell()


@dataclass(frozen=True)
class Line:
    """A method and its cells."""

    label: str
    cells: tuple[Cell, ...]
    ranked: bool = True
    """A reference, an oracle or what more scanning gives is shown and not ranked."""


@dataclass(frozen=True)
class Block:
    """Lines under one set of headings."""

    title: str
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    first: str = "method"
    """Heading of the lines' labels."""
    brief: bool = False
    """Too long for a document: only the CSV has it."""

    def __post_init__(self) -> None:
        assert all(len(line.cells) == len(self.columns) for line in self.lines), "a cell for every column"

    def places(self) -> list[list[Place]]:
        """The place of every cell among the ranked lines of its column, as shown."""
        columns = [self._places_in(index) for index in range(len(self.columns))]
        return [[column[line] for column in columns] for line in range(len(self.lines))]

    def _places_in(self, index: int) -> list[Place]:
        column = self.columns[index]
        shown = [_shown(line.cells[index], column) if line.ranked else None for line in self.lines]
        if column.better == "none":
            return [0] * len(shown)
        known = sorted({value for value in shown if value is not None}, reverse=column.better == "higher")
        if sum(value is not None for value in shown) < 2:
            return [0] * len(shown)  # nobody to be better than
        # As in the paper: the second is the next figure that reads differently, however many share the first place.
        return [0 if value is None else _PLACES.get(known.index(value), 0) for value in shown]


@dataclass(frozen=True)
class PublishedTable:
    """A numbered table: what it shows, on whom, and the figures."""

    number: int
    name: str
    """Of its files: ``maps-virtual``."""
    title: str
    caption: tuple[str, ...]
    """Sentences without their full stops."""
    blocks: tuple[Block, ...]

    @property
    def slug(self) -> str:
        """How its files' names begin."""
        return f"table{self.number:02d}-{self.name}"


def mean_cell(mean: float | None, spread: float = math.nan, *, mark: str = "") -> Cell:
    """A figure; nothing where it was not measured."""
    return EMPTY if mean is None else Cell(mean, spread, mark=mark)


def _shown(cell: Cell, column: Column) -> float | None:
    """The figure that a reader sees, as a number."""
    if cell.text is not None or cell.value is None or math.isnan(cell.value):
        return None
    return cell.value if math.isinf(cell.value) else float(format(cell.value, column.form))
