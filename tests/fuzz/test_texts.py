"""Gradient tables, settings, sidecars and manifests that anybody may have written."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorldm.cohort.config import CohortConfig
from tensorldm.cohort.manifest import read_manifest as read_template_manifest
from tensorldm.config.prepare import PrepareConfig
from tensorldm.config.reading import PRESETS, read_config
from tensorldm.config.run import RunConfig
from tensorldm.data.splits import read_manifest
from tensorldm.imaging.gradient_files import read_fsl, read_mrtrix
from tensorldm.imaging.heads import read_heads
from tensorldm.imaging.tensor_sidecar import read_convention, read_provenance
from tensorldm.imaging.volume import Space

SPACE = Space((4, 4, 4), np.diag([-2.0, 2.0, 2.0, 1.0]))
WORDS = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True).map(repr),
    st.integers().map(str),
    st.sampled_from(["0", "1", "1000", "nan", "-inf", "1e400", "#", ",", "1_000", "٣", "0x10", "\x00", "é", "-0"]),
    st.text(max_size=5),
)
TABLES = st.lists(st.lists(WORDS, min_size=1, max_size=6), max_size=6).map(
    lambda rows: "\n".join(" ".join(row) for row in rows)
)
TEXTS = st.one_of(TABLES.map(lambda text: text.encode("utf-8", "surrogatepass")), st.binary(max_size=200))
SMOKE = (PRESETS / "smoke.yaml").read_text(encoding="utf-8")
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8))
SIDECAR_KEYS = ("TensorConvention", "ComponentOrder", "TensorFrame", "Units", "Mask", "Volumes", "Method")
JSON = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner)),
    max_leaves=8,
)


@given(bval=TEXTS, bvec=TEXTS)
def test_gradient_files_may_hold_anything(bval, bvec, place, survives):
    (place / "x.bval").write_bytes(bval)
    (place / "x.bvec").write_bytes(bvec)
    table = survives(read_fsl, place / "x.bval", place / "x.bvec", space=SPACE)
    if table is not None:
        assert np.isfinite(table.directions).all()
        assert np.isfinite(table.bvals).all()
    (place / "grad.b").write_bytes(bvec)
    table = survives(read_mrtrix, place / "grad.b", space=SPACE)
    if table is not None:
        assert np.isfinite(table.directions).all()
        assert np.isfinite(table.bvals).all()


@given(rows=st.lists(st.lists(st.floats(), min_size=4, max_size=4), min_size=1, max_size=5))
def test_gradients_may_have_any_numbers(rows, place, survives):
    (place / "grad.b").write_text("\n".join(" ".join(map(repr, row)) for row in rows))
    table = survives(read_mrtrix, place / "grad.b", space=SPACE)
    if table is not None:
        assert np.isfinite(table.bvals).all()
        lengths = np.linalg.norm(table.directions, axis=1)
        assert np.all((np.abs(lengths - 1) < 1e-6) | (lengths == 0))


@pytest.mark.parametrize("schema", [RunConfig, PrepareConfig, CohortConfig], ids=lambda schema: schema.__name__)
@given(content=st.one_of(st.binary(max_size=120), st.text(max_size=120).map(str.encode), TEXTS))
def test_settings_may_be_any_text(schema, content, place, survives):
    (place / "x.yaml").write_bytes(content)
    survives(read_config, schema, place / "x.yaml")


@given(at=st.integers(0, len(SMOKE) - 1), text=st.text(alphabet=":-[]{}&*!|>'\"%@`#,?\n\t 0159exyz~=<.", max_size=12))
def test_settings_may_be_damaged_anywhere(at, text, place, survives):
    (place / "x.yaml").write_text(SMOKE[:at] + text + SMOKE[at + len(text) :], encoding="utf-8")
    survives(read_config, RunConfig, place / "x.yaml")


@given(
    key=st.one_of(st.text(max_size=20), st.sampled_from(["seed", "stages.1", "stages.1.steps", "model.unet.channels"])),
    value=st.one_of(st.text(max_size=30), JSON.map(json.dumps)),
)
def test_an_override_may_be_anything(key, value, survives):
    survives(read_config, RunConfig, "smoke", [f"{key}={value}"])


@pytest.mark.parametrize(
    "text",
    [
        "a: 2001-99-99",
        "a: 0x_",
        "a: " + "9" * 5000,
        "a: !!timestamp x",
        "a: !!bool x",
        "a: !!python/object/apply:os.system [true]",
        "a: " + "[" * 5000,
        "a: &a [x]\nb: [*a, *a]",
        "a: &a [*a]",
        "seed: [" + "x, " * 10_000 + "x]",
        "x" * 900_000 + ": 1",
        "#" + "x" * 2_000_000,
    ],
    ids=lambda text: text[:24],
)
def test_settings_made_to_break_a_reader_are_refused_in_one_short_sentence(text, place, survives):
    (place / "x.yaml").write_text(text)
    assert survives(read_config, RunConfig, place / "x.yaml") is None


@given(content=st.one_of(st.binary(max_size=60), JSON.map(lambda value: json.dumps(value).encode())))
def test_sidecars_may_hold_anything(content, place, survives):
    (place / "x.json").write_bytes(content)
    _read_sidecar(place / "x.nii.gz", survives)


@given(
    values=st.fixed_dictionaries(
        {},
        optional=dict.fromkeys(SIDECAR_KEYS, JSON),
    )
)
def test_what_a_sidecar_says_may_be_of_any_kind(values, place, survives):
    (place / "x.json").write_text(json.dumps(values))
    _read_sidecar(place / "x.nii.gz", survives)


def test_a_sidecar_nested_beyond_reason_is_refused(place, survives):
    (place / "x.json").write_text("[" * 100_000)
    assert survives(read_convention, place / "x.nii.gz") is None


def _read_sidecar(path: Path, survives) -> None:
    survives(read_convention, path)
    survives(read_provenance, path)


@given(content=st.one_of(TEXTS, TABLES.map(lambda text: b"name\tperson\tsplit\n" + text.replace(" ", "\t").encode())))
def test_manifests_and_tables_of_subjects_may_hold_anything(content, place, survives):
    for name in ("manifest.tsv", "participants.tsv"):
        (place / name).write_bytes(content)
    survives(read_manifest, place / "manifest.tsv")
    survives(read_template_manifest, place)
    survives(read_heads, place)
