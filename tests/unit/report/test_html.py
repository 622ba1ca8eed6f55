"""Markup: what comes from files is shown and never obeyed."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tensorldm.report.html import Markup, joined, table, tag

HOSTILE = '<script>alert("x")</script> & \'"'


def test_text_and_attributes_are_escaped_and_markup_is_not_escaped_twice():
    inner = tag("b", HOSTILE)
    assert "<script" not in inner
    assert tag("p", inner) == f"<p>{inner}</p>"
    assert '"' not in tag("p", title=HOSTILE).removeprefix('<p title="').removesuffix('"></p>')


@settings(max_examples=40)
@given(st.text())
def test_any_text_comes_back_as_it_was(read_page, text):
    assert read_page(tag("p", text)).text == text


def test_names_of_attributes_are_those_of_html_and_absent_ones_are_left_out():
    found = tag("a", "x", class_="c", aria_label="l", data_of="d", hidden=True, title=None, checked=False)
    assert found == '<a class="c" aria-label="l" data-of="d" hidden>x</a>'


def test_children_may_be_many_or_none():
    assert joined(["a<", None, [Markup("<i/>"), "b"]]) == "a&lt;<i/>b"


def test_a_tables_first_cells_are_headings_of_their_lines(read_page):
    page = read_page(table(["name", "value"], [["a", "1"], ["b", "2"]], caption="c"))
    assert [found.get("scope") for name, found in page.elements if name == "th"] == ["col", "col", "row", "row"]
