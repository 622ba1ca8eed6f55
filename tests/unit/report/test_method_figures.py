"""Figures of methods: sticks point where fibres run, details are the same for all, and files are what they say."""

import numpy as np
import pytest
import torch

from tensorldm.dti.eigen import compose
from tensorldm.errors import DataError
from tensorldm.imaging.nifti import write_mask
from tensorldm.imaging.tensor_files import write_tensor
from tensorldm.imaging.volume import Space
from tensorldm.report.method_figures import MAPS, draw_methods, magnified, middle_cuts, read_fields
from tensorldm.report.method_plots import STICK, draw_boxes, draw_v1_fields, sticks

SHAPE = (40, 44, 36)


@pytest.fixture(scope="module")
def fields(tmp_path_factory):
    """An isotropic ball with a strongly anisotropic block at its right and front, on a mirrored grid."""
    folder = tmp_path_factory.mktemp("tensors")
    space = Space(SHAPE, np.diag([-2.0, 2.0, 2.0, 1.0]))
    places = np.stack(np.meshgrid(*(np.arange(n) - (n - 1) / 2 for n in SHAPE), indexing="ij"), axis=-1)
    mask = (places**2).sum(axis=-1) < 16**2
    packed = np.zeros((*SHAPE, 6), dtype=np.float32)
    packed[..., :3] = 1e-3
    values = torch.tensor([1.7e-3, 0.3e-3, 0.3e-3], dtype=torch.float64)
    packed[5:12, 26:33, 14:22] = compose(values, torch.eye(3, dtype=torch.float64)).numpy()
    write_mask(folder / "mask.nii.gz", mask, space=space)
    write_tensor(folder / "reference.nii.gz", packed, space=space)
    write_tensor(folder / "other.nii.gz", packed[..., [1, 0, 2, 3, 4, 5]], space=space)
    found = {"other": folder / "other.nii.gz"}
    return read_fields(folder / "reference.nii.gz", found, mask=folder / "mask.nii.gz", subject="ball")


def test_the_detail_is_where_the_reference_is_anisotropic_on_a_mirrored_grid(fields):
    """Array x from 5 to 12 of a mirrored axis is on the subject's right, which is on the right of an axial picture."""
    cuts = middle_cuts(fields)
    inset = magnified(fields, cuts, "axial")
    height, width = cuts.row(fields.scatter(fields.fields["reference"][:, 0]), "axial").shape
    assert inset.left + inset.width / 2 > width / 2
    assert inset.top + inset.height / 2 < height / 2


def test_a_stick_lies_along_the_fibre_and_is_coloured_by_it():
    fa = np.array([[0.8, 0.05], [0.6, np.nan]], dtype=np.float32)
    v1 = np.zeros((2, 2, 3), dtype=np.float32)
    v1[0, 0] = (1, 0, 0)
    v1[1, 0] = (0, 0.6, 0.8)
    segments, colours = sticks(fa, v1, plane="axial")
    assert len(segments) == 2
    across, up = segments[0, 1] - segments[0, 0], segments[1, 1] - segments[1, 0]
    assert across == pytest.approx([STICK, 0])
    # Front is up, and a picture's rows run down; what leaves the plane is not seen.
    assert up == pytest.approx([0, -0.6 * STICK])
    assert colours[0] == pytest.approx([1, 0, 0])
    assert colours[1] == pytest.approx([0, 0.6, 0.8])


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_maps_are_drawn_for_reference_and_methods_with_errors_below(fields, tmp_path, suffix):
    draw_methods(tmp_path / f"maps{suffix}", fields, quantities=MAPS[2:3], plane="coronal")
    content = (tmp_path / f"maps{suffix}").read_bytes()
    assert content.startswith(b"\x89PNG" if suffix == ".png" else b"<?xml")
    assert len(content) > 5000


def test_the_error_of_the_reference_is_left_out_and_a_perfect_method_has_none(fields, monkeypatch, tmp_path):
    """The error row is drawn from prediction minus reference: equal tensors give the scale's middle everywhere."""
    from tensorldm.report import method_figures

    painted = []
    paint = method_figures.paint
    monkeypatch.setattr(method_figures, "paint", lambda v, s: (painted.append((v, s)), paint(v, s))[1])
    same = method_figures.MethodFields(
        "x", fields.space, fields.mask, {"reference": fields.fields["reference"], "copy": fields.fields["reference"]}
    )
    draw_methods(tmp_path / "m.png", same, quantities=MAPS[2:3], plane="axial")
    assert len(painted) == 3
    errors, scale = painted[-1]
    assert np.nanmax(np.abs(errors)) == 0
    assert scale.low < 0 < scale.high


def test_v1_fields_are_drawn(fields, tmp_path):
    draw_v1_fields(tmp_path / "v1.png", fields, plane="axial")
    assert (tmp_path / "v1.png").read_bytes().startswith(b"\x89PNG")


def test_box_plots_leave_out_what_is_not_finite_and_refuse_nothing_at_all(tmp_path):
    draw_boxes(tmp_path / "b.svg", {"a": [0.1, 0.2, np.inf], "b": [0.3]}, measure="LEM", title="two")
    text = (tmp_path / "b.svg").read_text()
    assert "<svg" in text
    with pytest.raises(DataError, match="no finite LEM"):
        draw_boxes(tmp_path / "c.svg", {"a": [np.inf]}, measure="LEM", title="none")
    assert not (tmp_path / "c.svg").exists()


def test_another_format_is_refused_by_name(fields, tmp_path):
    with pytest.raises(DataError, match=r"m\.jpg.*\.png or \.svg"):
        draw_boxes(tmp_path / "m.jpg", {"a": [1.0]}, measure="LEM", title="x")
