"""The overview picture: it shows what it says, in the right place, and does without matplotlib politely."""

import builtins
import io

import numpy as np
import pytest

from tensorldm.errors import ToolError
from tensorldm.imaging.volume import Space
from tensorldm.report.figures import draw_overview

SHAPE = (12, 14, 10)
SPACE = Space(SHAPE, np.diag([2.0, 2.0, 3.0, 1.0]))


@pytest.fixture
def mask() -> np.ndarray:
    mask = np.zeros(SHAPE, dtype=bool)
    mask[2:10, 2:12, 1:9] = True
    return mask


def fibres(*components: float) -> np.ndarray:
    return np.broadcast_to(np.float32(components), (*SHAPE, 6)).copy()


def pixels(path) -> np.ndarray:
    pytest.importorskip("matplotlib")
    from matplotlib.image import imread

    return imread(io.BytesIO(path.read_bytes()), format="png")[..., :3]


def test_the_colour_of_the_fibres_is_in_the_picture(tmp_path, mask):
    b0 = np.ones(SHAPE, dtype=np.float32)
    for name, field, channel in (
        ("right", fibres(2e-3, 1e-4, 1e-4, 0, 0, 0), 0),
        ("front", fibres(1e-4, 2e-3, 1e-4, 0, 0, 0), 1),
        ("top", fibres(1e-4, 1e-4, 2e-3, 0, 0, 0), 2),
    ):
        draw_overview(tmp_path / f"{name}.png", b0, tensors={name: field}, space=SPACE, mask=mask)
        picture = pixels(tmp_path / f"{name}.png")
        pure = (picture[..., channel] > 0.8) & (np.delete(picture, channel, axis=-1).max(axis=-1) < 0.1)
        assert pure.mean() > 0.02, name
        others = [other for other in range(3) if other != channel]
        assert not any(((picture[..., o] > 0.8) & (picture[..., channel] < 0.1)).mean() > 0.02 for o in others)


def test_more_tensors_make_a_wider_picture(tmp_path, mask):
    b0, field = np.ones(SHAPE, dtype=np.float32), fibres(1e-3, 1e-3, 1e-3, 0, 0, 0)
    draw_overview(tmp_path / "one.png", b0, tensors={"a": field}, space=SPACE, mask=mask)
    draw_overview(tmp_path / "two.png", b0, tensors={"a": field, "b": field}, space=SPACE, mask=mask)
    assert pixels(tmp_path / "two.png").shape[1] > 1.5 * pixels(tmp_path / "one.png").shape[1]


def test_without_matplotlib_one_is_told_what_to_install(tmp_path, mask, monkeypatch):
    real_import = builtins.__import__

    def no_matplotlib(name, *rest, **more):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real_import(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", no_matplotlib)
    with pytest.raises(ToolError, match=r"pip install 'tensorldm\[report\]'"):
        draw_overview(
            tmp_path / "picture.png",
            np.ones(SHAPE, dtype=np.float32),
            tensors={"a": fibres(1e-3, 1e-3, 1e-3, 0, 0, 0)},
            space=SPACE,
            mask=mask,
        )
    assert not (tmp_path / "picture.png").exists()
