"""The long table: what is written is read, and what is no table is refused."""

import math

import pytest

from tensorldm.errors import DataError
from tensorldm.evaluation.table import Row, mean_value, methods_of, read_table, subjects_of, write_table

ROWS = [
    Row("ade", "one", "Dxx", "psnr_db", 29.7123457),
    Row("ade", "two", "Dxx", "psnr_db", 31.7123457),
    Row("ols, 6 directions", "one", "FA", "nmse", 0.064),
    Row("same", "one", "Dxx", "psnr_db", math.inf),
    Row("ade", "virtual", "FA", "nmse", 0.1, anatomy="procedural/test/0003"),
]


def test_rows_come_back_as_they_were_written(tmp_path):
    write_table(tmp_path / "table.csv", ROWS)
    assert read_table(tmp_path / "table.csv") == ROWS


def test_a_table_that_does_not_say_whose_heads_it_is_about_is_read(tmp_path):
    (tmp_path / "table.csv").write_text("method,subject,quantity,metric,value\nade,one,FA,nmse,0.25\n")
    assert read_table(tmp_path / "table.csv") == [Row("ade", "one", "FA", "nmse", 0.25)]


def test_a_missing_figure_comes_back_missing(tmp_path):
    write_table(tmp_path / "table.csv", [Row("ade", "one", "tensor", "v1_median_degrees", math.nan)])
    assert math.isnan(read_table(tmp_path / "table.csv")[0].value)


def test_the_mean_is_over_the_subjects_of_one_figure():
    assert mean_value(ROWS, method="ade", quantity="Dxx", metric="psnr_db") == pytest.approx(30.7123457)
    assert mean_value(ROWS, method="ade", quantity="Dyy", metric="psnr_db") is None


def test_an_infinite_figure_is_not_averaged_away():
    rows = [*ROWS, Row("same", "two", "Dxx", "psnr_db", 30.0)]
    assert mean_value(rows, method="same", quantity="Dxx", metric="psnr_db") == math.inf


def test_methods_and_subjects_keep_their_first_order():
    assert methods_of(ROWS) == ["ade", "ols, 6 directions", "same"]
    assert subjects_of(ROWS) == ["one", "two", "virtual"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "columns"),
        ("a,b\n1,2\n", "columns"),
        ("method,subject,quantity,metric,value\nade,one,FA,nmse,much\n", "damaged"),
        ("method,subject,quantity,metric,value\nade,one,FA\n", "damaged"),
        ("method,subject,quantity,metric,value,anatomy\nade,one,FA,nmse,0.1\n", "damaged"),
    ],
)
def test_what_is_no_table_is_refused_with_the_files_name(tmp_path, text, words):
    (tmp_path / "table.csv").write_text(text)
    with pytest.raises(DataError, match=rf"table\.csv.*{words}"):
        read_table(tmp_path / "table.csv")


def test_a_table_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(DataError, match=r"absent\.csv"):
        read_table(tmp_path / "absent.csv")
