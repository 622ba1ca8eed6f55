"""The readable tables: right cells, honest gaps, and sections that leave a document alone."""

import io
import math

import pytest
from rich.console import Console

from tensorldm.errors import DataError
from tensorldm.evaluation.markdown import replace_section
from tensorldm.evaluation.summary import describe_anatomies, describe_subjects, format_value, summarise
from tensorldm.evaluation.table import Row

ROWS = [
    Row("reference", "one", "tensor", "mask_voxels", 1200.0),
    Row("reference", "one", "tensor", "spd_violations_percent", 1.4),
    Row("ade", "one", "tensor", "lem", 0.6512),
    Row("ade", "two", "tensor", "lem", 0.7512),
    Row("ade", "one", "Dxx", "psnr_db", math.inf),
    Row("ade", "one", "Dxx", "ssim", 1.0),
    Row("ols-6", "one", "FA", "nmse", 0.0641),
]


def cells(title: str) -> dict[tuple[str, str], str]:
    """The text in each cell of one table, by method and column."""
    table = next(table for table in summarise(ROWS) if table.title.startswith(title))
    return {
        (line[0], heading): cell
        for line in table.lines
        for heading, cell in zip(table.header[1:], line[1:], strict=True)
    }


def test_figures_are_averaged_over_subjects_and_rounded():
    assert cells("Tensors")["ade", "LEM"] == "0.701"


def test_what_was_not_measured_is_a_dash():
    assert cells("Tensors")["ols-6", "LEM"] == "–"
    assert cells("NMSE")["ols-6", "FA"] == "0.064"
    assert cells("PSNR")["ols-6", "FA"] == "–"


def test_identical_images_show_infinity():
    assert cells("PSNR")["ade", "Dxx"] == "∞"
    assert cells("SSIM")["ade", "Dxx"] == "1.000"
    assert format_value(-math.inf, ".2f") == "-∞"
    assert format_value(math.nan, ".2f") == "–"


def test_the_reference_is_described_and_not_ranked():
    assert all(line[0] != "reference" for table in summarise(ROWS) for line in table.lines)
    assert describe_subjects(ROWS) == ["one: 1200 voxels in the mask, 1.40 % SPD violations in the reference"]


def test_subjects_of_one_head_count_as_one_anatomy():
    subjects = {"a": "anna", "b": "anna", "c": "berta"}
    rows = [Row("ade", subject, "tensor", "lem", 0.5, anatomy=head) for subject, head in subjects.items()]
    assert describe_anatomies(rows) == "3 subjects of 2 independent anatomies"
    assert describe_anatomies(rows[:1]) == "1 subject of 1 independent anatomy"


def test_where_files_do_not_say_whose_head_it_is_independence_is_not_claimed():
    rows = [Row("ade", "a", "tensor", "lem", 0.5, anatomy="anna"), Row("ade", "scan", "tensor", "lem", 0.5)]
    assert describe_anatomies(rows).startswith("2 subjects, at most 2 independent: the files do not say")


def test_markdown_has_one_line_per_method_and_as_many_cells_as_columns():
    table = summarise(ROWS)[0]
    lines = table.to_markdown().splitlines()[2:]
    assert len(lines) == 2 + 2
    assert {line.count("|") for line in lines} == {len(table.header) + 1}


def test_no_table_is_wider_than_a_terminal():
    rows = [Row("minimum-norm", "one", "tensor", "lem", 0.4), Row("minimum-norm", "one", "Dxx", "psnr_db", 100.0)]
    for table in summarise(rows):
        console = Console(width=80, file=io.StringIO(), record=True)
        console.print(table.to_rich())
        text = console.export_text()
        assert "minimum-norm" in text
        assert "…" not in text


def test_the_terminal_table_holds_the_same_cells():
    table = summarise(ROWS)[0]
    columns = [list(column.cells) for column in table.to_rich().columns]
    assert [tuple(row) for row in zip(*columns, strict=True)] == list(table.lines)


def test_a_section_is_replaced_and_the_rest_is_kept(tmp_path):
    path = tmp_path / "results.md"
    path.write_text("# Results\n\n<!-- begin a -->\nold\n<!-- end a -->\n\nLast words.\n")
    replace_section(path, "a", text="new\n")
    assert path.read_text() == "# Results\n\n<!-- begin a -->\nnew\n<!-- end a -->\n\nLast words.\n"
    replace_section(path, "b", text="more")
    assert path.read_text().endswith("Last words.\n\n<!-- begin b -->\nmore\n<!-- end b -->\n")


def test_replacing_a_section_twice_changes_nothing(tmp_path):
    path = tmp_path / "new" / "results.md"
    replace_section(path, "a", text="figures")
    once = path.read_text()
    replace_section(path, "a", text="figures")
    assert path.read_text() == once == "<!-- begin a -->\nfigures\n<!-- end a -->\n"


def test_half_a_section_is_refused_and_nothing_is_lost(tmp_path):
    path = tmp_path / "results.md"
    path.write_text("<!-- begin a -->\nfigures\n")
    with pytest.raises(DataError, match=r"results\.md.*only one of"):
        replace_section(path, "a", text="new")
    assert path.read_text() == "<!-- begin a -->\nfigures\n"
