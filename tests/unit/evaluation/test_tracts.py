import io

import numpy as np
import pytest
from rich.console import Console

from tensorldm.errors import DataError
from tensorldm.evaluation.evaluate import REFERENCE
from tensorldm.evaluation.summary import summarise
from tensorldm.evaluation.table import Row, read_table, write_table
from tensorldm.evaluation.tract_masks import MaskSource
from tensorldm.evaluation.tract_measures import (
    CORE,
    DICE,
    RATIO,
    STREAMLINES,
    TRACT_METRICS,
    measure_bundle,
    prepare_bundle,
)
from tensorldm.evaluation.tract_summary import describe_missing, summarise_tracts, turned
from tensorldm.evaluation.tracts import NOISE_FLOOR, TractPlan, evaluate_tracts
from tensorldm.imaging.bundle_names import PAPER_BUNDLES
from tensorldm.imaging.nifti import write_mask
from tensorldm.imaging.tensor_files import Provenance, write_tensor
from tensorldm.imaging.volume import Space
from tensorldm.tracts.settings import TrackSettings
from tensorldm.tracts.streamlines import Streamlines

SPACE = Space((60, 20, 16), np.diag([2.0, 2, 2, 1]))
"""A straight bundle along x lies in its middle: 104 mm long, 12 mm thick."""
TUBE = (slice(4, 56), slice(7, 13), slice(5, 11))
ALONG_X, ALONG_Y, ROUND = np.float32([[1.7e-3, 3e-4, 3e-4], [3e-4, 1.7e-3, 3e-4], [7e-4, 7e-4, 7e-4]])
SMALL = TractPlan(TrackSettings(seeds=200), engine="dipy")


def put(folder, method, diagonal):
    packed = np.zeros((*SPACE.shape, 6), dtype=np.float32)
    packed[TUBE] = [*diagonal, 0, 0, 0]
    path = folder / f"{method}.nii.gz"
    origin = Provenance(method, "sub-1", folder / "mask.nii.gz", anatomy="head-1")
    write_tensor(path, packed, space=SPACE, notes=origin.notes_for(path))
    return path


def make_subject(folder):
    mask = np.zeros(SPACE.shape, dtype=bool)
    mask[TUBE] = True
    write_mask(folder / "mask.nii.gz", mask, space=SPACE)
    write_mask(folder / "bundles" / "CST_right.nii.gz", mask, space=SPACE)
    return folder


def evaluated(subject, *predictions):
    return evaluate_tracts(
        put(subject, "ols", ALONG_X),
        predictions,
        bundles=MaskSource(subject / "bundles"),
        out=subject / "tracts",
        plan=SMALL,
        tell=lambda _: None,
    )


@pytest.fixture(scope="module")
def subject(tmp_path_factory):
    return make_subject(tmp_path_factory.mktemp("tracts"))


@pytest.fixture(scope="module")
def rows(subject):
    """The same tensor, one turned across the bundle, and one without direction."""
    kinds = {"same": ALONG_X, "turned": ALONG_Y, "round": ROUND}
    return evaluated(subject, *(put(subject, method, diagonal) for method, diagonal in kinds.items())).rows


def figures(rows, method):
    return {row.metric: row.value for row in rows if row.method == method}


def test_the_same_tensor_is_no_distance_away_and_another_seed_a_small_one(rows):
    same, floor = figures(rows, "same"), figures(rows, NOISE_FLOOR)
    assert same[CORE] == 0  # the same seeds and the same random numbers
    assert 0 < floor[CORE] < 2
    assert floor[DICE] > 0.7
    assert 0.5 < floor[RATIO] < 2


@pytest.mark.parametrize("method", ["turned", "round"])
def test_a_bundle_that_is_not_found_is_reported_as_such_never_as_a_number(rows, method):
    found = figures(rows, method)
    assert found[STREAMLINES] == found[RATIO] == 0
    assert np.isnan(found[CORE])
    assert f"{method}: fewer than 10 streamlines in CST_right (0)" in describe_missing(rows)


def test_rows_name_method_subject_bundle_and_whose_head_it_was(rows):
    assert {row.quantity for row in rows} == {"CST_right"}
    assert {row.subject for row in rows} == {"sub-1"}
    assert {row.anatomy for row in rows} == {"head-1"}
    assert list(dict.fromkeys(row.method for row in rows)) == [REFERENCE, NOISE_FLOOR, "same", "turned", "round"]
    assert {row.metric for row in rows if row.method == "same"} == set(TRACT_METRICS)


def test_a_missing_figure_survives_the_file_and_is_a_dash_in_the_summary(rows, tmp_path):
    write_table(tmp_path / "table.csv", rows)
    tables = summarise_tracts(read_table(tmp_path / "table.csv"))
    lines = {line[0]: line for line in tables[0].lines}
    assert lines["round"] == ("round", "–", "0/1", "–")
    assert lines[NOISE_FLOOR][2] == "1/1"


def test_means_are_over_the_bundles_found_and_say_how_many():
    rows = [Row("a", "s", name, CORE, value) for name, value in (("x", 1.0), ("y", 3.0), ("z", float("nan")))]
    assert summarise_tracts(rows)[0].lines == (("a", "2.00", "2/3", "1.00", "3.00", "–"),)


def test_a_bundle_that_the_reference_lacks_has_no_figures():
    lines = Streamlines.of([np.array([[0.0, 18, 16], [100, 18, 16]])] * 20)
    some, none = (prepare_bundle("x", each, space=SPACE) for each in (lines, Streamlines.of([])))
    measured = {figure.metric: figure.value for figure in measure_bundle(none, some)}
    assert measured.pop(STREAMLINES) == 20
    assert all(np.isnan(value) for value in measured.values())


def test_a_mask_of_another_grid_is_told(tmp_path):
    make_subject(tmp_path)
    other = Space((30, 20, 16), SPACE.affine)
    write_mask(tmp_path / "mask.nii.gz", np.ones(other.shape, dtype=bool), space=other)
    with pytest.raises(DataError, match=r"mask.nii.gz: the mask has \(30, 20, 16\) voxels"):
        evaluated(tmp_path)


@pytest.mark.usefixtures("rows")
def test_bundles_are_left_as_files_to_look_at(subject):
    found = {path.relative_to(subject / "tracts").as_posix() for path in (subject / "tracts").rglob("*.tck")}
    methods = {"reference", "reference_again", "same", "turned", "round"}
    assert found == {f"{name}.tck" for name in methods} | {f"bundles/{name}/CST_right.tck" for name in methods}


def test_what_was_measured_by_bundles_alone_has_no_line_among_the_voxels():
    voxels = [Row("ade", "s", "tensor", "lem", 0.5)]
    tables = summarise([*voxels, Row(NOISE_FLOOR, "s", "CC_2", CORE, 1.0)])
    assert [line[0] for line in tables[0].lines] == ["ade"]


def test_on_the_terminal_bundles_are_lines_and_nothing_is_cut_off():
    methods = (NOISE_FLOOR, "ade", "minimum-norm", "ols-6", "ols-12", "tensorldm")
    rows = [Row(method, "s", bundle, CORE, 12.5) for method in methods for bundle in PAPER_BUNDLES]
    console = Console(width=80, file=io.StringIO(), record=True)
    console.print(turned(summarise_tracts(rows)[0]).to_rich())
    text = console.export_text()
    assert "…" not in text
    assert text.count("12.5") == (len(PAPER_BUNDLES) + 1) * len(methods)
    assert all(bundle in text for bundle in PAPER_BUNDLES)
