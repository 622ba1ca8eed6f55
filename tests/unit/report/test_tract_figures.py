import numpy as np
from matplotlib.image import imread

from tensorldm.evaluation.table import Row
from tensorldm.evaluation.tract_measures import CORE, prepare_bundle
from tensorldm.evaluation.tracts import NOISE_FLOOR
from tensorldm.imaging.volume import Space
from tensorldm.report.tract_figures import draw_bundle, draw_core_distances
from tensorldm.tracts.streamlines import Streamlines

SPACE = Space((40, 40, 40), np.array([[-2.0, 0, 0, 39], [0, 2, 0, -39], [0, 0, 2, -39], [0, 0, 0, 1]]))


def rows(**values):
    return [Row(method, "s", bundle, CORE, value) for method, each in values.items() for bundle, value in each.items()]


def test_core_distances_are_drawn_for_every_method_and_a_missing_one_changes_the_picture(tmp_path):
    found, missing = {"CST_left": 1.0, "CC_2": 4.0}, {"CST_left": 1.0, "CC_2": float("nan")}
    draw_core_distances(tmp_path / "a.png", rows(**{NOISE_FLOOR: found, "ade": found}))
    draw_core_distances(tmp_path / "b.png", rows(**{NOISE_FLOOR: found, "ade": missing}))
    a, b = (imread(tmp_path / f"{name}.png") for name in "ab")
    assert a.shape[1] > a.shape[0] > 300
    assert a.shape != b.shape or not np.array_equal(a, b)


def test_a_bundle_on_the_subjects_right_is_on_the_left_seen_from_the_front_and_blue_where_it_runs_up(tmp_path):
    z = np.linspace(-25.0, 25, 60)
    line = np.stack([np.full_like(z, 20.0), np.full_like(z, -10.0), z], axis=1)
    bundle = prepare_bundle(
        "CST_right", Streamlines.of([line + shift for shift in np.linspace(-3, 3, 30)[:, None]]), space=SPACE
    )
    nothing = prepare_bundle("CST_right", Streamlines.of([]), space=SPACE)
    voxels = np.argwhere(np.ones((40, 40, 40)))
    ball = (np.linalg.norm(voxels - 19.5, axis=1) < 19).reshape(40, 40, 40)
    draw_bundle(tmp_path / "a.png", {"reference": bundle, "none": nothing}, space=SPACE, mask=ball)
    picture = imread(tmp_path / "a.png")
    blue = (picture[..., 2] > 0.5) & (picture[..., 0] < 0.3)
    height, width = blue.shape
    front, side = blue[: height // 2, : width // 2], blue[height // 2 :, : width // 2]
    assert front.sum() > 50
    assert np.argwhere(front)[:, 1].mean() < width / 4 - 10  # the right is on the left
    assert np.argwhere(side)[:, 1].mean() > width / 4 + 5  # behind the middle: the front is on the left
    assert not blue[:, width // 2 :].any()
