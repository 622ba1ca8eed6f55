"""Scaling: the only place that knows what a network sees, and it loses nothing."""

import pytest
import torch

from tensorldm.data.scaling import TensorScaling, scale_dwi
from tensorldm.errors import DataError


def test_scaling_and_back_returns_the_tensor(generator):
    components = torch.randn(2, 6, 3, 4, 5, generator=generator, dtype=torch.float64) * 1e-3
    scaling = TensorScaling()
    torch.testing.assert_close(scaling.unscale(scaling.scale(components)), components)


def test_zero_stays_zero_and_signs_stay():
    scaling = TensorScaling()
    assert not scaling.scale(torch.zeros(1, 6, 2, 2, 2)).any()
    components = torch.full((1, 6, 1, 1, 1), -1e-4)
    assert (scaling.scale(components) < 0).all()


def test_each_group_has_its_own_physical_scale():
    scaled = TensorScaling(diagonal=2e-3, off_diagonal=1e-4).scale(torch.full((1, 6, 1, 1, 1), 1e-3))
    torch.testing.assert_close(scaled.flatten(), torch.tensor([0.5, 0.5, 0.5, 10, 10, 10]))


def test_a_white_matter_bundle_lies_within_the_unit_range_of_a_network():
    bundle_at_45_degrees = torch.tensor([1.0e-3, 1.0e-3, 0.3e-3, 0.7e-3, 0, 0]).reshape(1, 6, 1, 1, 1)
    scaled = TensorScaling().scale(bundle_at_45_degrees)
    assert 0.5 < scaled.abs().max() < 2


def test_one_scale_for_all_volumes_keeps_the_signal_ratio(generator):
    dwi = torch.rand(4, 5, 5, 5, generator=generator) * 700 + 10
    mask = torch.ones(5, 5, 5, dtype=torch.bool)
    scaled, scale = scale_dwi(dwi, dwi[0], mask=mask)
    torch.testing.assert_close(scaled[1] / scaled[0], dwi[1] / dwi[0])
    torch.testing.assert_close(scaled * scale, dwi)
    brighter, _ = scale_dwi(dwi * 37, dwi[0] * 37, mask=mask)
    torch.testing.assert_close(brighter, scaled)


def test_a_mask_without_signal_is_refused():
    with pytest.raises(DataError, match="no signal inside the brain mask"):
        scale_dwi(torch.zeros(4, 2, 2, 2), torch.zeros(2, 2, 2), mask=torch.ones(2, 2, 2, dtype=torch.bool))
