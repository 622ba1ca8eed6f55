"""Charts: bars, band and marker stand where the numbers are; the sphere shows the directions and those used."""

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from tensorldm.report.charts import BINS, BOTTOM, HEIGHT, TOP, Axis, histogram
from tensorldm.report.sphere import RADIUS, SIZE, Used, sphere

AXIS = Axis(0.0, 2e-3, "MD", one=1e-3)


def drawn(brain, white):
    svg = histogram(np.array(brain), np.array(white), axis=AXIS, expected=(0.6e-3, 0.9e-3), form=".2f", title="MD")
    return ElementTree.fromstring(svg)


def by_class(root, kind):
    return [each for each in root.iter() if kind in (each.get("class") or "").split()]


def heights(path):
    points = [tuple(map(float, pair.split())) for pair in re.findall(r"[ML]([\d.]+ [\d.]+)", path.get("d"))]
    return [HEIGHT - BOTTOM - y for _, y in points[1:-1:2]]


def test_bars_are_as_high_as_their_shares_of_the_fullest():
    brain = [0.05e-3] * 100 + [1.05e-3] * 50 + [9e-3] * 500  # the last are beyond the axis
    root = drawn(brain, [1.05e-3] * 50)
    (area,), (white,) = by_class(root, "brain"), by_class(root, "white")
    full = HEIGHT - BOTTOM - TOP
    assert max(heights(area)) == pytest.approx(full)
    assert sorted(heights(area))[-2] == pytest.approx(full / 2, abs=0.1)
    assert [round(each) for each in heights(white) if each > 0] == [round(full / 2)]
    assert len(heights(area)) == BINS


def test_the_marker_is_the_median_of_white_matter_and_the_band_its_expected_range():
    root = drawn([0.7e-3] * 9, [0.6e-3, 0.8e-3, 1.9e-3])
    (marker,), (band,) = by_class(root, "marker"), by_class(root, "band")
    assert float(marker.get("x1")) == pytest.approx(AXIS.at(0.8e-3), abs=0.1)
    assert float(band.get("x")) == pytest.approx(AXIS.at(0.6e-3), abs=0.1)
    assert float(band.get("width")) == pytest.approx(AXIS.at(0.9e-3) - AXIS.at(0.6e-3), abs=0.1)
    assert "median 0.80; medians of healthy adults are 0.60 to 0.90" in root.get("aria-label")


def test_a_brain_without_white_matter_has_no_marker_and_says_so():
    root = drawn([3e-3] * 9, [])
    assert not by_class(root, "marker")
    assert "no voxel looks like white matter" in root.get("aria-label")


def unit(*vectors):
    array = np.array(vectors, dtype=float)
    return array / np.linalg.norm(array, axis=1, keepdims=True)


def centres(root, kind):
    return {
        each.find("{*}title").text: (float(circle.get("cx")), float(circle.get("cy")))
        for each in root.iter("g")
        for circle in each.iter("circle")
        if kind in circle.get("class").split()
    }


def test_a_direction_and_its_negative_are_shown_in_one_place_inside_the_globe():
    directions = unit([1, 0.2, 0], [-1, -0.2, 0], [0.3, -0.8, -0.5], [0, 0, -1])
    root = ElementTree.fromstring(sphere(directions, [], volumes=[1, 2, 3, 4]))
    places = centres(root, "dot")
    assert places["volume 1"] == places["volume 2"]
    far = [np.hypot(x - SIZE / 2, y - SIZE / 2) for x, y in places.values()]
    assert max(far) <= RADIUS + 0.1


def test_the_used_volumes_are_marked_in_their_axes_colours_near_their_axes():
    directions = unit([1, 0, 0], [0.5, 0.5, 0.6], [0, 1, 0], [0, 0, 1])
    used = [Used(1, 0), Used(5, 1), Used(9, 2)]
    root = ElementTree.fromstring(sphere(directions, used, volumes=[1, 2, 5, 9]))
    assert set(centres(root, "dot")) == {"volume 2"}
    for kind, volume in (("red", 1), ("green", 5), ("blue", 9)):
        (mark,) = centres(root, kind).values()
        (ray,) = [each for each in root.iter("line") if kind in each.get("class").split()]
        end = np.array([float(ray.get("x2")), float(ray.get("y2"))]) - SIZE / 2
        found = np.array(mark) - SIZE / 2
        np.testing.assert_allclose(found / np.linalg.norm(found), end / np.linalg.norm(end), atol=0.01)
        assert f"volume {volume}, used" in centres(root, kind)
