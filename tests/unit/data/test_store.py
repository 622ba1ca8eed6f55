"""The store: what goes in comes out, strangers' names stay inside, and damage is told."""

import json

import numpy as np
import pytest
import torch

from tensorldm.data.store import Store, safe_name
from tensorldm.errors import DataError


def test_a_stored_subject_comes_back_unchanged(make_store, make_subject):
    subject = make_subject("one")
    loaded = make_store([subject]).load("one")
    for name in ("dwi", "components", "mask", "bvals", "directions"):
        torch.testing.assert_close(getattr(loaded, name), getattr(subject, name), rtol=0, atol=0)
    np.testing.assert_array_equal(loaded.affine, subject.affine)
    assert loaded.record == subject.record


def test_a_box_holds_the_same_voxels_at_the_same_place_in_the_world(make_store, make_subject):
    subject = make_subject("one")
    box = make_store([subject]).load_box("one", (2, -3, 5), size=(4, 8, 9))
    torch.testing.assert_close(box.dwi[:, :, 3:, :5], subject.dwi[:, 2:6, :5, 5:])
    assert not box.dwi[:, :, :3].any()
    assert not box.mask[:, :, 5:].any()
    np.testing.assert_allclose(box.affine @ [0, 0, 0, 1], subject.affine @ [2, -3, 5, 1])


def test_the_same_subject_gives_the_same_bytes(tmp_path, make_subject):
    stores = [Store.create(tmp_path / name, settings={}, made_by="tests") for name in "ab"]
    first, second = (store.add(make_subject("one")).sha256 for store in stores)
    assert first == second


def test_opening_gives_names_entries_and_splits(make_store):
    folder = make_store(splits={"a": "train", "b": "train", "c": "validation", "d": "test"}).folder
    store = Store.open(folder)
    assert store.names == ("a", "b", "c", "d")
    assert store.split("train") == ("a", "b")
    assert store.entry("b").shape == (10, 11, 10)


@pytest.mark.parametrize(
    ("stranger", "plain"),
    [
        ("../../etc/passwd", "etc_passwd"),
        ("/absolute", "absolute"),
        ("..\\windows", "windows"),
        (".hidden", "hidden"),
        ("sub-01_ses-A", "sub-01_ses-A"),
        ("Zoë's scan\n\0", "Zoe_s_scan"),
        ("x" * 500, "x" * 100),
    ],
)
def test_a_strangers_name_cannot_leave_the_folder(stranger, plain):
    assert safe_name(stranger) == plain


def test_a_name_of_nothing_is_refused():
    with pytest.raises(DataError, match="at least one letter or digit"):
        safe_name("../..")


def test_an_index_that_points_outside_is_refused(make_store):
    folder = make_store().folder
    index = json.loads((folder / "store.json").read_text())
    index["entries"][0]["name"] = "../../secret"
    (folder / "store.json").write_text(json.dumps(index))
    with pytest.raises(DataError, match=r"damaged at 'entries.0.name'"):
        Store.open(folder)


def test_a_store_of_another_version_is_refused(make_store):
    path = make_store().folder / "store.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 99}))
    with pytest.raises(DataError, match="store of version 99, this program reads version 1"):
        Store.open(path.parent)


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "no store there"), ("{", "not valid JSON"), ("[]", "not the index of a store")],
)
def test_what_is_no_store_is_refused(tmp_path, content, words):
    if content is not None:
        (tmp_path / "store.json").write_text(content)
    with pytest.raises(DataError, match=words):
        Store.open(tmp_path)


def test_a_leaking_split_is_refused_on_opening(make_store, make_subject):
    store = make_store([make_subject("ap", "her"), make_subject("pa", "her")])
    path = store.folder / "store.json"
    index = json.loads(path.read_text())
    index["splits"]["pa"] = "test"
    path.write_text(json.dumps(index))
    with pytest.raises(DataError, match="person 'her' would be in two splits"):
        Store.open(store.folder)


def test_verify_finds_a_changed_byte_and_a_missing_file(make_store):
    store = make_store()
    store.verify()
    path = store.folder / "subjects" / "b.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"b\.safetensors: its contents are not what was written"):
        store.verify()
    (store.folder / "subjects" / "c.safetensors").unlink()
    assert len(list(store.problems())) == 2


def test_a_truncated_subject_is_told_as_a_sentence(make_store):
    store = make_store()
    path = store.folder / "subjects" / "a.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(DataError, match="the prepared subject cannot be read"):
        store.load("a")


def test_another_setting_needs_another_store(make_store):
    folder = make_store().folder
    assert Store.create(folder, settings={"shell": 1000.0}, made_by="tests").names == ("a", "b", "c", "d")
    with pytest.raises(DataError, match=r"other settings \(shell: 1000.0 before, 2000.0 now\)"):
        Store.create(folder, settings={"shell": 2000.0}, made_by="tests")


def test_a_folder_of_other_things_is_not_taken_for_a_store(tmp_path):
    (tmp_path / "thesis.docx").write_text("years of work")
    with pytest.raises(DataError, match="not a store and not empty"):
        Store.create(tmp_path, settings={}, made_by="tests")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.docx"]


def test_a_run_stopped_before_its_index_loses_no_subject(tmp_path, make_subject):
    store = Store.create(tmp_path / "store", settings={}, made_by="tests")
    store.add(make_subject("one"))
    again = Store.create(tmp_path / "store", settings={}, made_by="tests")
    assert set(again.journal()) == {"one"}
    assert again.write_index({"one": "train"}, seed=0).load("one").record.name == "one"


def test_a_damaged_journal_entry_or_a_missing_file_counts_as_not_prepared(make_store):
    store = make_store()
    (store.folder / "journal" / "a.json").write_text("{")
    (store.folder / "subjects" / "b.safetensors").unlink()
    assert set(store.journal()) == {"c", "d"}


def test_an_unknown_subject_and_an_empty_split_are_told(make_store):
    store = make_store()
    with pytest.raises(DataError, match="no subject 'zoe' among its 4"):
        store.load("zoe")
    with pytest.raises(DataError, match="no subject in split 'test'"):
        store.split("test")
