"""The picture of a reconstruction: each map in its colours, in the world's orientation, with or without a cone."""

import io

import nibabel as nib
import numpy as np
import pytest
import torch

from tensorldm.dti.packing import rotate
from tensorldm.imaging.volume import Space
from tensorldm.report import figures, overview
from tensorldm.report.overview import draw_reconstruction

SHAPE = (12, 14, 10)
OBLIQUE = np.array([[0.98, -0.17, 0.1], [0.17, 0.98, 0.0], [-0.1, 0.02, 0.99]])
AFFINE = np.eye(4)
AFFINE[:3, :3] = np.linalg.qr(OBLIQUE)[0] * np.sign(np.diag(np.linalg.qr(OBLIQUE)[1])) * [2.0, 2.0, 3.0]


@pytest.fixture
def scan(generator) -> dict[str, np.ndarray]:
    """Smooth random maps on a RAS grid, with a lopsided mask."""
    factors = torch.randn(*SHAPE, 3, 3, generator=generator) * 0.02
    matrices = factors @ factors.mT
    mask = np.zeros(SHAPE, dtype=bool)
    mask[2:10, 2:12, 1:9] = True
    mask[2:5, 2:8, 6:9] = False
    return {
        "b0": (500 + 100 * torch.randn(*SHAPE, generator=generator)).clamp(min=1).numpy(),
        "packed": matrices[..., [0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]].numpy(),
        "mask": mask,
        "prior_share": torch.rand(*SHAPE, generator=generator).numpy(),
        "v1_cone_degrees": 90 * torch.rand(*SHAPE, generator=generator).numpy(),
    }


def picture(path, scan, space, **changes) -> np.ndarray:
    pytest.importorskip("matplotlib")
    from matplotlib.image import imread

    maps = {**scan, **changes}
    draw_reconstruction(path, maps.pop("b0"), maps.pop("packed"), space=space, **maps)
    return imread(io.BytesIO(path.read_bytes()), format="png")[..., :3]


def share_of(colour: tuple[float, ...], pixels: np.ndarray) -> float:
    return float((np.abs(pixels - np.array(colour[:3])).max(axis=-1) < 0.03).mean())


def test_the_same_head_stored_in_another_order_gives_the_same_picture(tmp_path, scan):
    expected = picture(tmp_path / "ras.png", scan, Space(SHAPE, AFFINE))
    assert expected.std() > 0.1
    for codes in ("LAS", "PIR", "SLA"):
        wanted = nib.orientations.axcodes2ornt(codes)
        transform = nib.orientations.ornt_transform(nib.orientations.axcodes2ornt("RAS"), wanted)
        moved = {name: nib.orientations.apply_orientation(data, transform) for name, data in scan.items()}
        turn = torch.zeros(3, 3)  # a vector in the old voxel axes to the new ones
        for new, (old, sign) in enumerate(wanted):
            turn[new, int(old)] = sign
        moved["packed"] = rotate(torch.from_numpy(moved["packed"].copy()), turn).numpy()
        affine = AFFINE @ nib.orientations.inv_ornt_aff(transform, SHAPE)
        found = picture(tmp_path / f"{codes}.png", moved, Space(moved["b0"].shape, affine))
        assert found.shape == expected.shape, codes
        assert np.abs(found - expected).max() < 0.02, codes


def test_cone_and_prior_share_are_drawn_from_0_to_90_degrees_and_from_0_to_1(tmp_path, scan):
    matplotlib = pytest.importorskip("matplotlib")
    cone, share = matplotlib.colormaps["magma"], matplotlib.colormaps["viridis"]
    for value in (0.25, 0.75):
        flat = np.full(SHAPE, value, dtype=np.float32)
        found = picture(
            tmp_path / "flat.png", scan, Space(SHAPE, AFFINE), v1_cone_degrees=90 * flat, prior_share=1 - flat
        )
        assert share_of(cone(value), found) > 0.03
        assert share_of(cone(1 - value), found) < 0.01
        assert share_of(share(1 - value), found) > 0.03
        assert share_of(share(value), found) < 0.01


def test_a_single_sample_has_no_cone_and_the_picture_is_narrower(tmp_path, scan):
    matplotlib = pytest.importorskip("matplotlib")
    space, flat = Space(SHAPE, AFFINE), np.full(SHAPE, 45.0, dtype=np.float32)
    with_cone = picture(tmp_path / "four.png", scan, space, v1_cone_degrees=flat)
    without = picture(tmp_path / "one.png", scan, space, v1_cone_degrees=None)
    assert without.shape[1] < 0.9 * with_cone.shape[1]
    assert share_of(matplotlib.colormaps["magma"](0.5), with_cone) > 0.03
    assert share_of(matplotlib.colormaps["magma"](0.5), without) < 0.005


def test_what_lies_outside_the_mask_is_not_shown_in_the_maps(tmp_path, scan):
    matplotlib = pytest.importorskip("matplotlib")
    outside = {
        "prior_share": np.where(scan["mask"], 0.2, 0.9).astype(np.float32),
        "v1_cone_degrees": np.where(scan["mask"], 20.0, 80.0).astype(np.float32),
    }
    found = picture(tmp_path / "outside.png", scan, Space(SHAPE, AFFINE), **outside)
    assert share_of(matplotlib.colormaps["viridis"](0.2), found) > 0.03
    assert share_of(matplotlib.colormaps["viridis"](0.9), found) < 0.002
    assert share_of(matplotlib.colormaps["magma"](80 / 90), found) < 0.002


def test_values_that_are_not_numbers_outside_the_mask_do_no_harm(tmp_path, scan):
    broken = {name: np.where(scan["mask"], scan[name], np.nan) for name in ("prior_share", "v1_cone_degrees")}
    space = Space(SHAPE, AFFINE)
    one = picture(tmp_path / "plain.png", scan, space)
    assert np.abs(picture(tmp_path / "broken.png", scan, space, **broken) - one).max() == 0


def test_letters_tell_which_side_is_which_in_every_plane(scan):
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    for plane, _axis in figures.PLANES:
        axes = Figure().subplots()
        figures._draw_edges(axes, figures.EDGES[plane])
        (left, right) = sorted(axes.texts, key=lambda text: text.get_position()[0])
        assert (left.get_text(), right.get_text()) == (("P", "A") if plane == "sagittal" else ("L", "R"))


def test_the_caption_tells_what_the_two_maps_of_doubt_mean(tmp_path, scan, monkeypatch):
    captions = []
    monkeypatch.setattr(overview, "draw_panels", lambda *_panels, remark, **_options: captions.append(remark))
    for cone in (scan["v1_cone_degrees"], None):
        maps = {**scan, "v1_cone_degrees": cone}
        overview.draw_reconstruction(
            tmp_path / "x.png", maps.pop("b0"), maps.pop("packed"), space=Space(SHAPE, AFFINE), **maps
        )
    with_cone, without = captions
    assert "the true fibre direction lies within this angle" in with_cone
    assert "there is no v1 cone" in without
    assert all("from the method and not from the scan" in caption for caption in captions)
