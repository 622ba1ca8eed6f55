"""The one screen at the end tells a brain from what is none."""

from dataclasses import replace

import numpy as np
import pytest

from tensorldm.imaging.volume import Space
from tensorldm.reconstruct.result import Reconstruction
from tensorldm.reconstruct.summary import summarise

SHAPE = (4, 4, 4)


def result(axial: float, radial: float) -> Reconstruction:
    """Fibres along x everywhere, in mm²/s."""
    return Reconstruction(
        tensor=np.tile(np.array([axial, radial, radial, 0, 0, 0], dtype=np.float32), (*SHAPE, 1)),
        space=Space(SHAPE, np.eye(4)),
        mask=np.ones(SHAPE, dtype=bool),
        s0=np.ones(SHAPE, dtype=np.float32),
        extra={},
        volumes=(0, 5, 2, 9),
        bvals=(0.0, 1000.0, 1000.0, 1000.0),
        angles_degrees=(3.0, 4.0, 12.0),
        spd_touched_share=0.0125,
        warnings=(),
        notes={"Method": "test"},
        seconds={"reading": 1.0, "writing": 2.5},
    )


def test_healthy_white_matter_is_as_expected():
    summary = summarise("scan", result(1.2e-3, 0.5e-3))
    text = "\n".join(summary.lines())
    assert summary.median_md == pytest.approx(2.2e-3 / 3, rel=1e-5)
    assert text.count("as expected") == 2
    assert "1.25% of 64 voxels" in text
    assert "0, 5, 2, 9 (angles to the axes: x 3°, y 4°, z 12°)" in text
    assert "3.5 (reading 1.0; writing 2.5)" in text


def test_of_many_volumes_the_angles_are_said_to_be_of_three():
    many = replace(result(1.2e-3, 0.5e-3), volumes=(0, 4, 5, 6, 7, 8))
    text = "\n".join(summarise("scan", many).lines())
    assert "0, 4, 5, 6, 7, 8 (of the three nearest to the axes, angles to them: x 3°, y 4°, z 12°)" in text


def test_values_that_no_brain_has_are_marked():
    text = "\n".join(summarise("scan", result(0.9e-3, 1e-5)).lines())
    assert "above the usual" in text
    assert "below the usual" in text
    assert "No voxel looks like white matter" in next(iter(summarise("water", result(3e-3, 3e-3)).lines()))


def test_directions_are_in_scanner_axes_and_eigenvalues_fall():
    fibres = result(1.2e-3, 0.5e-3)
    assert np.abs(fibres.v1[..., 0]) == pytest.approx(1)
    values, _ = fibres.eigen()
    np.testing.assert_allclose(values[0, 0, 0], [1.2e-3, 0.5e-3, 0.5e-3], rtol=1e-5)


def test_maps_that_are_asked_for_often_are_computed_once_and_given_as_the_callers_own(monkeypatch):
    found, formulas = result(1.2e-3, 0.5e-3), []
    real = Reconstruction.inside
    monkeypatch.setattr(Reconstruction, "inside", lambda self, frame: formulas.append(frame) or real(self, frame))
    first = found.fa
    first[...] = 7
    assert np.allclose(found.fa, 0.7 / 1.94**0.5, atol=1e-5), "what a caller does to its map does not come back"
    assert len(formulas) == 1
    again = replace(found, tensor=found.tensor * 0)
    assert not again.fa.any(), "another tensor has another map"
