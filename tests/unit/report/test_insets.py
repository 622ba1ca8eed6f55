"""Insets: the window with the most to show, found as trying every window finds it."""

import numpy as np
import pytest

from tensorldm.report.insets import INSET_MM, choose_inset


@pytest.mark.parametrize(("shape", "voxel"), [((60, 50), (2.0, 2.0)), ((41, 64), (5.0, 1.7)), ((33, 30), (3.0, 3.0))])
def test_it_is_the_window_of_highest_mean(shape, voxel):
    weight = np.random.default_rng(3).uniform(size=shape).astype(np.float32) ** 4
    weight[:4] = np.nan  # air
    inset = choose_inset(weight, size_mm=(shape[1] * voxel[1], shape[0] * voxel[0]))
    assert inset.height == round(INSET_MM / voxel[0])
    assert inset.width == round(INSET_MM / voxel[1])
    windows = np.lib.stride_tricks.sliding_window_view(np.nan_to_num(weight), (inset.height, inset.width))
    means = windows.mean(axis=(2, 3))
    assert means[inset.top, inset.left] == pytest.approx(means.max(), rel=1e-5)
    np.testing.assert_array_equal(inset.of(weight), np.nan_to_num(inset.of(weight), nan=np.nan))


def test_a_slice_smaller_than_the_inset_is_shown_whole():
    inset = choose_inset(np.ones((5, 7), np.float32), size_mm=(14.0, 10.0))
    assert (inset.top, inset.left, inset.height, inset.width) == (0, 0, 5, 7)
    assert inset.frame((5, 7)) == "top: 0.00%; left: 0.00%; height: 100.00%; width: 100.00%"
