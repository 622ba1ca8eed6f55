"""Model folders, stores and packed anatomies from elsewhere: hashes can be made to fit, so contents are not trusted."""

import copy
import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save

from tensorldm.build import build_model
from tensorldm.bundle import INDEX, WEIGHTS, Card, load_bundle, write_bundle
from tensorldm.cohort.templates.packing import FORMAT, NOTES, load_anatomy
from tensorldm.config.reading import read_config
from tensorldm.config.run import RunConfig
from tensorldm.data.store import Store
from tensorldm.data.subject_file import METADATA, read_box, read_subject

EXAMPLES = settings().max_examples
"""Of the profile; what builds a model takes a third of a second an example, and gets fewer."""
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([0, -1, 1, 2**16, 2**31, 10**9, 10**30]),
    st.floats(),
    st.text(max_size=8),
)
VALUES = st.one_of(SCALARS, st.lists(SCALARS, max_size=20), st.dictionaries(st.text(max_size=4), SCALARS, max_size=2))
KINDS = [torch.float32, torch.float16, torch.float64, torch.int64, torch.uint8, torch.int8, torch.bool]
ANATOMY = ("mask", "fractions", "tissue", "s0", "tensors0", "bundle.CST.mask", "bundle.CST.directions")
SHAPES = st.lists(st.integers(0, 4), max_size=4)


def _paths(value: Any, path: tuple = ()) -> list[tuple]:
    """Every place in a nested value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, inner in items for place in _paths(inner, (*path, key)))][bool(not path) :]


def _changed(value: Any, path: tuple, new: Any) -> Any:
    value = copy.deepcopy(value)
    node = value
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = new
    return value


def _arrays(draw: Any, names: tuple[str, ...]) -> dict[str, torch.Tensor]:
    chosen = draw.draw(st.sets(st.sampled_from(names)))
    return {
        name: torch.ones(draw.draw(SHAPES), dtype=draw.draw(st.sampled_from(KINDS)))
        for name in names
        if name not in chosen or draw.draw(st.booleans())
    }


@pytest.fixture(scope="module")
def bundle(tmp_path_factory) -> Path:
    """A folder with a whole bundle, each file a second time under another name."""
    folder = tmp_path_factory.mktemp("bundle")
    config = read_config(RunConfig, "smoke").model
    write_bundle(folder, build_model(config).state_dict(), config=config, joint=("gated", "off"), card=Card())
    for name in (INDEX, WEIGHTS):
        (folder / f"whole-{name}").write_bytes((folder / name).read_bytes())
    return folder


def _whole(folder: Path) -> tuple[dict[str, Any], bytes]:
    return json.loads((folder / f"whole-{INDEX}").read_bytes()), (folder / f"whole-{WEIGHTS}").read_bytes()


@settings(max_examples=EXAMPLES // 3)
@given(number=st.integers(0, 10**6), new=VALUES)
def test_the_index_of_a_bundle_may_say_anything(number, new, bundle, survives):
    index, weights = _whole(bundle)
    (bundle / WEIGHTS).write_bytes(weights)
    places = _paths(index)
    (bundle / INDEX).write_text(json.dumps(_changed(index, places[number % len(places)], new)))
    survives(load_bundle, bundle)


@settings(max_examples=EXAMPLES // 3)
@given(at=st.integers(0, 3000), other=st.binary(min_size=1, max_size=16))
def test_the_weights_of_a_bundle_may_be_any_bytes_with_a_hash_that_fits(at, other, bundle, survives):
    index, weights = _whole(bundle)
    content = weights[:at] + other + weights[at + 16 :]
    (bundle / WEIGHTS).write_bytes(content)
    (bundle / INDEX).write_text(json.dumps({**index, "weights_sha256": hashlib.sha256(content).hexdigest()}))
    survives(load_bundle, bundle)


@given(content=st.one_of(st.binary(max_size=80), VALUES.map(lambda value: json.dumps(value).encode())))
def test_the_index_of_a_store_or_bundle_may_be_any_file(content, place, survives):
    for name in ("store.json", INDEX):
        (place / name).write_bytes(content)
    assert survives(Store.open, place) is None
    assert survives(load_bundle, place) is None


@given(data=st.data())
def test_a_prepared_subject_may_hold_any_arrays(data, place, survives):
    arrays = _arrays(data, ("dwi", "components", "mask", "bvals", "directions", "affine"))
    about = data.draw(st.one_of(st.just({"format": 1, "record": {}}), VALUES))
    (place / "x.safetensors").write_bytes(save(arrays, {METADATA: json.dumps(about)}))
    survives(read_subject, place / "x.safetensors")
    survives(read_box, place / "x.safetensors", (0, 0, 0), size=(2, 2, 2))


@given(content=st.binary(max_size=100))
def test_a_prepared_subject_may_be_any_bytes(content, place, survives):
    (place / "x.safetensors").write_bytes(content)
    assert survives(read_subject, place / "x.safetensors") is None


@given(data=st.data())
def test_a_packed_anatomy_may_hold_anything(data, place, survives):
    arrays = _arrays(data, ANATOMY)
    notes = {
        "format": FORMAT,
        "name": data.draw(VALUES),
        "source": data.draw(VALUES),
        "shape": data.draw(st.one_of(st.lists(st.integers(-1, 10**12), min_size=3, max_size=3), VALUES)),
        "voxel_size": data.draw(VALUES),
    }
    (place / "x.anatomy").write_bytes(gzip.compress(save(arrays, {NOTES: json.dumps(notes)})))
    survives(load_anatomy, place / "x.anatomy")
