"""Evaluation from files alone: conventions, frames, masks, names and refusals."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from tensorldm.components import CONVENTIONS
from tensorldm.errors import DataError
from tensorldm.evaluation.evaluate import evaluate_files
from tensorldm.evaluation.table import Row
from tensorldm.imaging.nifti import write_mask
from tensorldm.imaging.tensor_files import Provenance, sidecar_path, write_tensor
from tensorldm.imaging.volume import Space

from .conftest import SHAPE, brain_like, oblique_space


def figures(rows: list[Row], method: str) -> dict[tuple[str, str], float]:
    return {(row.quantity, row.metric): row.value for row in rows if row.method == method}


def test_the_reference_against_itself_is_perfect(reference, write):
    found = figures(evaluate_files(reference, [write("copy", brain_like(0))]), "copy")
    assert found["tensor", "lem"] == pytest.approx(0, abs=1e-6)
    assert found["tensor", "off_diagonal_lem"] == pytest.approx(0, abs=1e-6)
    assert found["tensor", "v1_mean_degrees"] == pytest.approx(0, abs=1e-3)
    assert found["FA", "nmse"] == pytest.approx(0, abs=1e-9)
    assert found["Dxy", "ssim"] == pytest.approx(1)
    assert math.isinf(found["Dxx", "psnr_db"])


def test_every_component_and_map_is_measured_three_ways_and_the_tensor_seven(reference, write):
    found = figures(evaluate_files(reference, [write("other", brain_like(1))]), "other")
    images = ("Dxx", "Dyy", "Dzz", "Dxy", "Dxz", "Dyz", "MD", "RD", "FA", "colour FA")
    expected = {(name, metric) for name in images for metric in ("nmse", "psnr_db", "ssim")}
    tensor = ("lem", "lem_floor_1e-07", "lem_floor_1e-05", "off_diagonal_lem", "spd_violations_percent")
    expected |= {("tensor", metric) for metric in (*tensor, "v1_median_degrees", "v1_mean_degrees")}
    assert set(found) == expected
    assert all(math.isfinite(value) for value in found.values())


@pytest.mark.parametrize("determinant", [1, -1])
@pytest.mark.parametrize("convention", CONVENTIONS)
def test_a_prediction_is_the_same_in_every_convention(tmp_path, mask, convention, determinant):
    space = oblique_space(determinant=determinant)
    paths = {name: tmp_path / f"{name}.nii.gz" for name in ("reference", "plain", "converted")}
    write_mask(tmp_path / "mask.nii.gz", mask, space=space)
    write_tensor(paths["reference"], brain_like(0), space=space, convention="fsl")
    write_tensor(paths["plain"], brain_like(1), space=space, convention="mrtrix")
    write_tensor(paths["converted"], brain_like(1), space=space, convention=convention)
    rows = evaluate_files(paths["reference"], [paths["plain"], paths["converted"]])
    plain, converted = figures(rows, "plain"), figures(rows, "converted")
    assert converted == pytest.approx(plain, rel=1e-4)


def test_reading_a_file_in_the_wrong_convention_changes_the_figures(reference, write):
    path = write("other", brain_like(1), convention="fsl")
    right = figures(evaluate_files(reference, [path]), "other")
    sidecar_path(path).unlink()
    wrong = figures(evaluate_files(reference, [path], convention="mrtrix"), "other")
    assert wrong["tensor", "lem"] != pytest.approx(right["tensor", "lem"], rel=1e-2)


def test_the_option_is_for_files_without_a_sidecar_only(reference, write):
    path = write("other", brain_like(1), convention="dipy")
    right = figures(evaluate_files(reference, [path]), "other")
    sidecar_path(path).unlink()
    again = figures(evaluate_files(reference, [path], convention="dipy"), "other")
    assert again == pytest.approx(right)


def test_nothing_outside_the_mask_counts(reference, write, mask):
    spoiled = brain_like(1)
    spoiled[~mask] = np.nan
    rows = evaluate_files(reference, [write("clean", brain_like(1)), write("spoiled", spoiled)])
    assert figures(rows, "spoiled") == pytest.approx(figures(rows, "clean"))


def test_the_reference_tells_its_mask_and_its_own_violations(reference, write, mask):
    own = figures(evaluate_files(reference, [write("other", brain_like(1))]), "reference")
    assert own == {("tensor", "mask_voxels"): mask.sum(), ("tensor", "spd_violations_percent"): 0.0}


def test_a_given_mask_overrules_the_sidecars(reference, write, tmp_path):
    small = np.zeros(SHAPE, dtype=bool)
    small[3:6, 3:6, 3:5] = True
    write_mask(tmp_path / "small.nii.gz", small, space=oblique_space())
    rows = evaluate_files(reference, [write("other", brain_like(1))], mask=tmp_path / "small.nii.gz")
    assert figures(rows, "reference")["tensor", "mask_voxels"] == 18


def test_a_mask_beside_the_reference_is_found(reference, write, mask, tmp_path):
    note = json.loads(sidecar_path(reference).read_text())
    del note["Mask"]
    sidecar_path(reference).write_text(json.dumps(note))
    with pytest.raises(DataError, match=r"reference\.nii\.gz.*--mask"):
        evaluate_files(reference, [write("other", brain_like(1))])
    (tmp_path / "brain.nii.gz").rename(tmp_path / "reference_mask.nii.gz")
    rows = evaluate_files(reference, [write("other", brain_like(1))])
    assert figures(rows, "reference")["tensor", "mask_voxels"] == mask.sum()


def test_methods_are_named_by_sidecar_then_by_file_then_by_folder(reference, tmp_path):
    def place(folder: str, name: str, notes: dict[str, str]) -> Path:
        path = tmp_path / folder / f"{name}.nii.gz"
        write_tensor(path, brain_like(1), space=oblique_space(), notes=notes)
        return path

    paths = [
        place("a", "tensor", {}),
        place("b", "tensor", {}),
        place("c", "tensor", {"Method": "our method"}),
        place("c", "other", {}),
    ]
    rows = evaluate_files(reference, paths)
    assert list(dict.fromkeys(row.method for row in rows)) == [
        "reference", "a/tensor", "b/tensor", "our method", "other",
    ]  # fmt: skip
    assert {row.subject for row in rows} == {"volunteer"}
    assert {row.subject for row in evaluate_files(reference, paths, subject="P01")} == {"P01"}


def test_the_same_file_twice_is_refused(reference, write):
    path = write("other", brain_like(1))
    with pytest.raises(DataError, match="both be called"):
        evaluate_files(reference, [path, path])


def other_grid(space: Space) -> Space:
    moved = space.affine.copy()
    moved[0, 3] += 1.0
    return Space(space.shape, moved)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda packed: packed * 1000, r"mean diffusivity of .* not a brain's in mm²/s"),
        (lambda packed: packed * 0, "zero in the whole mask"),
        (lambda packed: np.where(packed < 0, np.nan, packed).astype(np.float32), "NaN or infinite"),
    ],
    ids=["micrometres", "zero", "nan"],
)
def test_an_implausible_tensor_is_refused_by_name(reference, write, spoil, words):
    with pytest.raises(DataError, match=rf"other\.nii\.gz.*{words}"):
        evaluate_files(reference, [write("other", spoil(brain_like(1)))])


def test_another_grid_is_refused(reference, write):
    moved = write("moved", brain_like(1), space=other_grid(oblique_space()))
    with pytest.raises(DataError, match=r"moved\.nii\.gz.*grid.*not that of.*reference\.nii\.gz"):
        evaluate_files(reference, [moved])


def test_a_mask_of_another_grid_is_refused(reference, write, mask, tmp_path):
    write_mask(tmp_path / "moved.nii.gz", mask, space=other_grid(oblique_space()))
    with pytest.raises(DataError, match=r"moved\.nii\.gz.*Give a mask on the reference's grid"):
        evaluate_files(reference, [write("other", brain_like(1))], mask=tmp_path / "moved.nii.gz")


def test_an_empty_mask_is_refused(reference, write, mask, tmp_path):
    write_mask(tmp_path / "none.nii.gz", mask & False, space=oblique_space())
    with pytest.raises(DataError, match=r"none\.nii\.gz.*empty"):
        evaluate_files(reference, [write("other", brain_like(1))], mask=tmp_path / "none.nii.gz")


def test_every_row_says_whose_head_the_references_sidecar_names(tmp_path, mask, write):
    path = tmp_path / "virtual.nii.gz"
    write_mask(tmp_path / "brain.nii.gz", mask, space=oblique_space())
    origin = Provenance("ols", "sub-0001", tmp_path / "brain.nii.gz", anatomy="procedural/test/0003")
    write_tensor(path, brain_like(0), space=oblique_space(), notes=origin.notes_for(path))
    rows = evaluate_files(path, [write("mine", brain_like(1))])
    assert {row.anatomy for row in rows} == {"procedural/test/0003"}
