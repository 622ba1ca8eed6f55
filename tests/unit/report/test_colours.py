"""Colours: each value in its own, what is unknown in black, and pictures that lose nothing."""

import base64
import io

import numpy as np
import pytest

from tensorldm.report.colours import DIFFUSIVITY, OFF_DIAGONAL, Scale, bar, paint
from tensorldm.report.pictures import encode

matplotlib = pytest.importorskip("matplotlib")


def test_values_have_matplotlibs_colours_and_ends_are_kept_beyond_them():
    scale = Scale(-1.0, 3.0, "viridis")
    values = np.float32([[-5, -1, 1, 3, 9]])
    expected = [matplotlib.colormaps["viridis"](share)[:3] for share in (0, 0, 0.5, 1.0, 1.0)]
    np.testing.assert_allclose(paint(values, scale)[0] / 255, expected, atol=0.003)


def test_what_is_not_a_number_is_black_even_where_zero_is_not():
    values = np.float32([[np.nan, 0.0]])
    nothing, zero = paint(values, OFF_DIAGONAL)[0]
    assert nothing.tolist() == [0, 0, 0]
    assert zero.max() > 0
    assert paint(np.full((1, 1, 3), np.nan, np.float32), None).max() == 0


def test_colours_are_painted_as_they_are():
    colours = np.float32([[[1.0, 0.5, 0.0], [2.0, -1.0, 0.2]]])
    assert paint(colours, None).tolist() == [[[255, 128, 0], [255, 0, 51]]]


def test_the_bar_runs_from_the_lowest_to_the_highest_colour_and_says_their_values():
    first, *_, last = bar(Scale(0.0, 1.0, "magma")).partition("linear-gradient(")[2].split("rgb(")[1:]
    for text, share in ((first, 0.0), (last, 1.0)):
        found = [int(part) for part in text.partition(")")[0].split()]
        np.testing.assert_allclose(np.array(found) / 255, matplotlib.colormaps["magma"](share)[:3], atol=0.003)
    assert DIFFUSIVITY.ticks() == ("0", "1", "2")
    assert OFF_DIAGONAL.ticks() == ("−0.4", "0", "0.4")
    assert Scale(0.0, 36900.0).ticks() == ("0", "18450", "36900")


def test_a_picture_comes_back_from_its_address_pixel_by_pixel():
    from PIL import Image

    rgb = np.random.default_rng(0).integers(0, 256, size=(9, 13, 3), dtype=np.uint8)
    kind, _, data = encode(rgb).partition(";base64,")
    assert kind == "data:image/webp"
    found = Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB")
    np.testing.assert_array_equal(np.asarray(found), rgb)
