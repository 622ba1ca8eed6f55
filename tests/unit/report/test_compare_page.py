"""The page that compares methods: each error beside its map, the best figures marked, the same detail magnified."""

import base64
import html
import io
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from tensorldm.errors import DataError
from tensorldm.imaging.nifti import write_mask
from tensorldm.imaging.tensor_files import Provenance, write_tensor
from tensorldm.report.compare_fields import QUANTITIES, read_comparison
from tensorldm.report.compare_page import compare_page

pytest.importorskip("matplotlib")
BY_KEY = {quantity.key: quantity for quantity in QUANTITIES}


@pytest.fixture
def files(result, tmp_path):
    """A reference, the same with small errors, and the same with large ones and a name to beware of."""
    mask = tmp_path / "mask.nii.gz"
    write_mask(mask, result.mask, space=result.space)
    noise = np.random.default_rng(5).normal(scale=5e-5, size=result.tensor.shape) * result.mask[..., None]
    paths = []
    for method, factor in (("full fit", 0), ("near", 1), ("<i>far</i>", 4)):
        path = tmp_path / f"{factor}.nii.gz"
        tilt = np.float32([0, 0, 0, 5e-5, 5e-5, 5e-5]) * result.mask[..., None]  # no component is zero everywhere
        packed = (result.tensor + tilt + factor * noise).astype(np.float32)
        origin = Provenance(method, "sub-07", mask)
        write_tensor(path, packed, space=result.space, convention="fsl", notes=origin.notes_for(path))
        paths.append(path)
    return paths


@pytest.fixture
def comparison(files):
    return read_comparison(files[0], files[1:])


def test_it_holds_every_method_by_its_own_name_and_the_figures_of_evaluate(comparison):
    assert list(comparison.fields) == ["reference", "near", "<i>far</i>"]
    assert comparison.reference_method == "full fit"
    lem = {row.method: row.value for row in comparison.rows if row.metric == "lem"}
    assert lem["near"] < lem["<i>far</i>"]


def test_errors_are_zero_for_the_reference_itself_and_have_the_sign_of_the_difference(comparison):
    reference = comparison.fields["reference"]
    for quantity in QUANTITIES:
        assert torch.nan_to_num(quantity.error(reference, reference)).abs().max() < 1e-3, quantity.key
    assert (BY_KEY["md"].error(reference, 1.1 * reference) > 0).all()
    assert (BY_KEY["Dxx"].error(reference, 0.9 * reference) < 0).all()


def test_the_error_of_a_direction_is_its_angle_where_the_reference_has_one():
    fibre = torch.tensor([[1.5e-3, 3e-4, 3e-4, 0, 0, 0], [8e-4, 8e-4, 8e-4, 0, 0, 0]], dtype=torch.float64)
    turned = torch.tensor([[3e-4, 1.5e-3, 3e-4, 0, 0, 0]] * 2, dtype=torch.float64)
    angles = BY_KEY["colour-fa"].error(fibre, turned)
    assert angles[0] == pytest.approx(90)
    assert torch.isnan(angles[1])


def test_every_quantity_stands_side_by_side_with_errors_and_insets_in_three_planes(comparison, read_page, fetched):
    document = compare_page(comparison)
    page = read_page(document)
    assert fetched(document) == []
    assert {found.get("id") for name, found in page.elements if name == "section"} == {"measures", *BY_KEY}
    # A map for all three, an error for two; the whole tensor has errors only. Slice and inset of each, in 3 planes.
    assert len(page.images) == 3 * 2 * (9 * (3 + 2) + 2)
    assert all(image["alt"] for image in page.images)
    assert "<i>far</i>" in page.text
    assert {found.get("data-shows") for name, found in page.elements if name == "input"} == {
        "axial",
        "coronal",
        "sagittal",
    }
    for word in ("PSNR", "SSIM", "LEM", "full fit", "sub-07", "Gaussian window"):
        assert word in page.text


def best_of(document: str, method: str) -> list[list[bool]]:
    """Which cells of a method's line are marked, by table."""
    lines = re.findall(rf'<th scope="row">{re.escape(html.escape(method))}</th>(.*?)</tr>', document)
    return [['class="best"' in cell for cell in re.findall(r"<td[^>]*>", line)] for line in lines]


def test_the_better_figure_of_each_column_is_marked_lower_for_errors_and_higher_for_likeness(comparison):
    document = compare_page(comparison)
    near, far = best_of(document, "near"), best_of(document, "<i>far</i>")
    assert [len(line) for line in near] == [7, 10, 10, 10]
    tensors, psnr, ssim, nmse = near
    assert tensors[0], "LEM"
    assert all(psnr)
    assert all(ssim)
    assert all(nmse)
    assert not any(any(line) for line in far)


def test_each_table_says_which_way_is_better(comparison):
    captions = re.findall(r"<caption>([^<]*)", compare_page(comparison))
    assert captions == [
        "Tensors (lower is better)",
        "PSNR, dB (higher is better)",
        "SSIM (higher is better)",
        "NMSE (lower is better)",
    ]


def test_where_figures_are_equal_as_written_none_is_called_better(comparison, read_page):
    equal = replace(comparison, rows=[replace(row, value=1.0) for row in comparison.rows])
    assert not read_page(compare_page(equal)).classes("td", "best")


def decoded(image: dict) -> np.ndarray:
    from PIL import Image

    data = base64.b64decode(image["src"].partition("base64,")[2])
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def test_the_inset_is_the_framed_part_of_its_slice(comparison, read_page):
    page = read_page(compare_page(comparison))
    frames = [found["style"] for name, found in page.elements if name == "i"]
    for at in (0, 7, 20):
        whole, part = decoded(page.images[2 * at]), decoded(page.images[2 * at + 1])
        top, left, height, width = (float(item.split(":")[1].strip(" %")) / 100 for item in frames[at].split(";"))
        rows, columns = whole.shape[:2]
        y, x = round(top * rows), round(left * columns)
        found = whole[y : y + round(height * rows), x : x + round(width * columns)]
        np.testing.assert_array_equal(part, found)


def test_another_grid_is_refused_in_evaluates_words(files, result, tmp_path):
    path = tmp_path / "other.nii.gz"
    moved = replace(result.space, affine=result.space.affine + np.diag([0.5, 0, 0, 0]))
    write_tensor(path, result.tensor, space=moved)
    with pytest.raises(DataError, match="is not that of"):
        read_comparison(files[0], [path])
