"""Splits: by person, seeded, exact for the paper's cohort, and never leaking."""

from collections import Counter

import pytest

from tensorldm.data.splits import (
    PAPER_COUNTS,
    Pin,
    Source,
    check_splits,
    join_copies,
    make_splits,
    pins_by_person,
    read_manifest,
    share,
)
from tensorldm.errors import DataError


def cohort(persons, scans=1):
    return [Source(f"p{p}s{s}", f"p{p}", f"{p}-{s}") for p in range(persons) for s in range(scans)]


def test_the_papers_973_persons_split_into_681_97_195():
    counts = Counter(make_splits(cohort(973), 0).values())
    assert (counts["train"], counts["validation"], counts["test"]) == PAPER_COUNTS


@pytest.mark.parametrize("number", [0, 1, 3, 10, 20, 100, 972])
def test_any_other_number_is_shared_whole_and_nearly_in_proportion(number):
    counts = share(number)
    assert sum(counts) == number
    for count, part in zip(counts, PAPER_COUNTS, strict=True):
        assert abs(count - number * part / sum(PAPER_COUNTS)) < 1


def test_scans_of_one_person_stay_together():
    splits = make_splits(cohort(40, scans=3), 1)
    for person in range(40):
        assert len({splits[f"p{person}s{scan}"] for scan in range(3)}) == 1


def test_the_seed_decides_and_the_order_of_sources_does_not():
    sources = cohort(60)
    assert make_splits(sources, 3) == make_splits(sources[::-1], 3)
    assert make_splits(sources, 3) != make_splits(sources, 4)


def test_nobody_moves_when_a_cohort_grows():
    before = make_splits(cohort(50), 0)
    pinned = pins_by_person(cohort(50), before.items())
    after = make_splits(cohort(200), 0, pinned=pinned)
    assert {name: after[name] for name in before} == before
    assert Counter(after.values())["train"] == share(200)[0]


def test_pins_are_kept_and_the_rest_fills_up():
    splits = make_splits(cohort(10), 0, pinned={"p0": "test", "p1": "test", "p2": "test", "p3": "test"})
    assert [splits[f"p{i}s0"] for i in range(4)] == ["test"] * 4
    assert Counter(splits.values())["train"] >= 5


def test_a_person_in_two_splits_is_refused():
    sources = [Source("supine", "him", "a"), Source("prone", "him", "b")]
    with pytest.raises(DataError, match=r"person 'him' would be in two splits.*supine.*prone"):
        check_splits({"supine": "test", "prone": "train"}, sources)


def test_one_image_under_two_names_in_two_splits_is_refused():
    sources = [Source("a", "ann", "same" * 16), Source("b", "bob", "same" * 16)]
    with pytest.raises(DataError, match="image with sha256"):
        check_splits({"a": "test", "b": "train"}, sources)
    check_splits({"a": "test", "b": "test"}, sources)


def test_copies_of_one_image_are_one_head_whatever_their_persons_are_called():
    copies = [Source(f"copy{i}", f"x{i}", "same") for i in range(12)]
    for seed in range(5):
        splits = make_splits([*cohort(30), *copies], seed)
        assert len({splits[copy.name] for copy in copies}) == 1
        assert Counter(splits[source.name] for source in cohort(30))["test"] in (5, 6)


def test_heads_are_joined_along_a_chain_of_copies():
    sources = [Source("1", "c", "p"), Source("2", "b", "p"), Source("3", "b", "q"), Source("4", "a", "q")]
    assert join_copies(sources) == {"a": "a", "b": "a", "c": "a"}
    assert make_splits(sources, 0, pinned={"c": "test"}) == dict.fromkeys("1234", "test")


def test_copies_pinned_to_two_splits_are_refused():
    sources = [Source("a", "ann", "same" * 16), Source("b", "bob", "same" * 16)]
    with pytest.raises(DataError, match="image with sha256"):
        make_splits(sources, 0, pinned={"ann": "test", "bob": "train"})


def test_two_pins_for_one_person_are_refused():
    sources = [Source("ap", "her", "a"), Source("pa", "her", "b")]
    with pytest.raises(DataError, match="person 'her'"):
        pins_by_person(sources, [("ap", "train"), ("pa", "test")])


def test_a_manifest_pins_person_and_split(tmp_path):
    path = tmp_path / "manifest.tsv"
    path.write_text("name\tperson\tsplit\nsupine\thim\ttest\nprone\thim\tn/a\nother\t\ttrain\n")
    assert read_manifest(path) == {
        "supine": Pin("him", "test"),
        "prone": Pin("him", None),
        "other": Pin("", "train"),
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name\tsplit\na\ttrian\n", "no split 'trian'"),
        ("name\tsplit\na\ttrain\na\ttest\n", "listed twice"),
        ("subject\tsplit\na\ttrain\n", "no name"),
    ],
)
def test_a_wrong_manifest_is_refused_with_its_line(tmp_path, text, words):
    path = tmp_path / "manifest.tsv"
    path.write_text(text)
    with pytest.raises(DataError, match=rf"line \d: .*{words}"):
        read_manifest(path)


def test_a_missing_manifest_is_told(tmp_path):
    with pytest.raises(DataError, match="manifest cannot be read"):
        read_manifest(tmp_path / "none.tsv")
