"""Published tables: the right figure is bold, the second underlined, and all three forms say the same."""

import csv
import io
import math
import re

import pytest

from tensorldm.evaluation.formatting import Block, Cell, Column, Line, PublishedTable
from tensorldm.evaluation.rendering import to_csv, to_latex, to_markdown


def block(*lines: Line, **changes) -> Block:
    columns = (Column("PSNR, dB", ".2f", "higher"), Column("paper¹", ".2f", published=True, of="PSNR, dB"))
    return Block("FA", columns, lines, **changes)


def line(label: str, value: float | None, paper: float | None = None, **more) -> Line:
    return Line(label, (Cell(value, 0.5), Cell(paper)), **more)


def table(*blocks: Block) -> PublishedTable:
    return PublishedTable(1, "maps", "Parameter maps", ("3 subjects of 2 independent anatomies", "Another."), blocks)


def test_best_and_second_are_those_that_a_reader_would_name():
    places = block(line("a", 20.0), line("b", 23.0), line("c", 22.0), line("d", None)).places()
    assert [each[0] for each in places] == [0, 1, 2, 0]


def test_figures_that_read_the_same_share_a_place():
    places = block(line("a", 20.001), line("b", 20.004), line("c", 19.0)).places()
    assert [each[0] for each in places] == [1, 1, 2]


def test_less_is_better_where_the_column_says_so():
    lower = Block("", (Column("LEM", ".3f", "lower"),), (Line("a", (Cell(0.4),)), Line("b", (Cell(0.3),))))
    assert [each[0] for each in lower.places()] == [2, 1]


def test_lines_that_see_more_are_not_ranked_and_never_push_others_down():
    places = block(line("ours", 20.0), line("ols-12", 40.0, ranked=False), line("b", 19.0)).places()
    assert [each[0] for each in places] == [1, 0, 2]


def test_published_figures_are_never_ranked():
    places = block(line("a", 20.0, 99.0), line("b", 19.0, 1.0)).places()
    assert [each[1] for each in places] == [0, 0]


def test_a_method_alone_is_not_called_best():
    assert block(line("a", 20.0)).places() == [[0, 0]]


def test_markdown_marks_best_second_and_what_is_of_another_dataset():
    text = to_markdown(table(block(line("a", 20.0, 30.0), line("b", 23.456), line("c", 22.0))))
    assert "### Table 1. Parameter maps\n\n3 subjects of 2 independent anatomies. Another.\n" in text
    assert "| a | 20.00 ± 0.50 | *30.00* |" in text
    assert "| b | **23.46 ± 0.50** | – |" in text
    assert "| c | <u>22.00 ± 0.50</u> | – |" in text


def test_latex_has_as_many_cells_as_columns_and_balanced_braces():
    text = to_latex(table(block(line("w/o 50% & x_1", 20.0), line("b", 23.0))))
    assert r"w/o 50\% \& x\_1 & \underline{20.00$_{\text{\tiny 0.50}}$}" in text
    assert r"b & \textbf{23.00$_{\text{\tiny 0.50}}$} & \textit{--} \\" in text
    assert text.count("{") - text.count(r"\{") == text.count("}") - text.count(r"\}")
    body = text.split(r"\midrule")[1].split(r"\bottomrule")[0]
    for row in filter(None, map(str.strip, body.splitlines())):
        assert len(re.findall(r"(?<!\\)&", row)) == 2
    assert not re.search(r"[^\x00-\x7f]", text)


def test_csv_keeps_full_precision_and_says_whose_figure_it_is():
    rows = list(csv.DictReader(io.StringIO(to_csv(table(block(line("a", 20.123456, 30.0), line("b", 21.0)))))))
    first, paper = rows[0], rows[1]
    assert (first["line"], first["column"], first["source"]) == ("a", "PSNR, dB", "ours")
    assert float(first["value"]) == 20.123456
    assert first["place"] == "2"
    assert (paper["column"], paper["source"], paper["value"]) == ("PSNR, dB", "paper", "30")


def test_long_blocks_are_in_the_csv_alone():
    long = block(line("hidden", 1.0), line("too", 2.0), brief=True)
    assert "hidden" not in to_markdown(table(block(line("a", 1.0)), long))
    assert "hidden" not in to_latex(table(block(line("a", 1.0)), long))
    assert "hidden" in to_csv(table(block(line("a", 1.0)), long))


def test_words_and_gaps_are_written_as_they_are():
    assert Cell(text="*** worse").written(".2f") == "*** worse"
    assert Cell().written(".2f") == "–"
    assert Cell(math.inf, math.nan).written(".2f") == "∞"
    assert Cell(1.234, mark="‡").written(".2f") == "1.23‡"


def test_a_line_needs_a_cell_for_every_column():
    with pytest.raises(AssertionError):
        block(Line("short", (Cell(1.0),)))
