"""Published tables as text: Markdown for people, CSV for programs, LaTeX (booktabs) for papers."""

import csv
import io
import math
from typing import Final

from tensorldm.evaluation.formatting import Block, Cell, Column, Place, PublishedTable

LATEX: Final = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "#": r"\#", "_": r"\_", "$": r"\$", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "–": "--", "∞": r"$\infty$", "°": r"$^\circ$",
    "²": r"$^2$", "Φ": r"$\Phi$", "×": r"$\times$", "≥": r"$\geq$", "†": r"\textdagger{}", "¹": r"$^1$",
    "µ": r"$\mu$", "−": "--", "‡": r"\textdaggerdbl{}", "<": "$<$", ">": "$>$", "λ": r"$\lambda$", "₀": r"$_0$",
    "·": r"$\cdot$", "Δ": r"$\Delta$",
}  # fmt: skip
"""Characters that LaTeX reads otherwise, or not at all without packages."""
CSV_HEADER: Final = ("block", "line", "column", "source", "value", "spread", "text", "place")


def to_markdown(table: PublishedTable) -> str:
    """The title, the caption, then every block; best figures bold, second ones underlined."""
    caption = " ".join(f"{sentence.rstrip('.')}." for sentence in table.caption)
    parts = [f"### Table {table.number}. {table.title}", caption]
    parts += [_markdown_block(block) for block in table.blocks if not block.brief]
    return "\n\n".join(parts) + "\n"


def to_latex(table: PublishedTable) -> str:
    r"""A ``table*`` for every block, with ``booktabs``; spreads are small figures below, as in the paper."""
    sentences = " ".join(f"{sentence.rstrip('.')}." for sentence in table.caption)
    parts = []
    for number, block in enumerate(block for block in table.blocks if not block.brief):
        title = f"{table.title}: {block.title}" if block.title else table.title
        parts += [
            r"\begin{table*}[t]",
            rf"\caption{{\textbf{{{_latex(title)}.}} {_latex(sentences)}}}",
            rf"\label{{tab:{table.slug}-{number}}}",
            r"\centering\scriptsize",
            rf"\begin{{tabular}}{{l{'c' * len(block.columns)}}}",
            r"\toprule",
            _latex_line([block.first, *(column.heading for column in block.columns)]),
            r"\midrule",
            *_latex_body(block),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table*}",
            "",
        ]
    return "\n".join(parts)


def to_csv(table: PublishedTable) -> str:
    """One line for every cell of every block, the long ones too: numbers at full precision."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_HEADER)
    for block in table.blocks:
        for line, places in zip(block.lines, block.places(), strict=True):
            for column, cell, place in zip(block.columns, line.cells, places, strict=True):
                value, spread = _number(cell.value), _number(cell.spread)
                source = "paper" if column.published else "ours"
                words = (cell.text or "") + cell.mark
                name = column.of or column.heading
                writer.writerow((block.title, line.label, name, source, value, spread, words, place or ""))
    return text.getvalue()


def _markdown_block(block: Block) -> str:
    header = [block.first, *(column.heading for column in block.columns)]
    rule = ["---", *("---:" for _ in block.columns)]
    lines = [header, rule]
    for line, places in zip(block.lines, block.places(), strict=True):
        cells = [_markdown_cell(*each) for each in zip(line.cells, block.columns, places, strict=True)]
        lines.append([line.label, *cells])
    text = "\n".join(f"| {' | '.join(_piped(cell) for cell in cells)} |" for cells in lines)
    return f"**{block.title}**\n\n{text}" if block.title else text


def _markdown_cell(cell: Cell, column: Column, place: Place) -> str:
    written = cell.written(column.form)
    if column.published:
        return f"*{written}*" if written != "–" else written
    return {0: written, 1: f"**{written}**", 2: f"<u>{written}</u>"}[place]


def _piped(text: str) -> str:
    return text.replace("|", r"\|")


def _latex_body(block: Block) -> list[str]:
    lines = []
    for line, places in zip(block.lines, block.places(), strict=True):
        cells = [_latex_cell(*each) for each in zip(line.cells, block.columns, places, strict=True)]
        lines.append(" & ".join([_latex(line.label), *cells]) + r" \\")
    return lines


def _latex_cell(cell: Cell, column: Column, place: Place) -> str:
    if cell.text is not None or math.isnan(cell.spread):
        written = _latex(cell.written(column.form))
    else:
        plain = Cell(cell.value).written(column.form)
        small = Cell(cell.spread).written(column.form)
        written = rf"{_latex(plain)}$_{{\text{{\tiny {_latex(small)}}}}}${_latex(cell.mark)}"
    if column.published:
        return rf"\textit{{{written}}}"
    return {0: written, 1: rf"\textbf{{{written}}}", 2: rf"\underline{{{written}}}"}[place]


def _latex_line(cells: list[str]) -> str:
    return " & ".join(rf"\textbf{{{_latex(cell)}}}" for cell in cells) + r" \\"


def _latex(text: str) -> str:
    return "".join(LATEX.get(character, character) for character in text)


def _number(value: float | None) -> str:
    return "" if value is None or math.isnan(value) else f"{value:.9g}"
