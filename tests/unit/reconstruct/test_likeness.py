"""What a voxel looks like, and factors that follow it."""

import pytest
import torch

from tensorldm.reconstruct.likeness import TISSUES, factor_map, tissue_likeness
from tensorldm.reconstruct.uncertainty import Calibration, measure_spread

GRADIENTS = {"bvals": torch.tensor([0.0, 1000.0]), "directions": torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]])}


@pytest.mark.parametrize(
    ("tissue", "fa", "md"), [("csf", 0.05, 3.0e-3), ("csf", 0.4, 2.5e-3), ("grey", 0.1, 0.8e-3), ("white", 0.5, 0.7e-3)]
)
def test_typical_voxels_look_like_their_tissue_alone(tissue, fa, md):
    shares = tissue_likeness(torch.tensor(fa), torch.tensor(md))
    assert shares.tolist() == [float(each == tissue) for each in TISSUES]


def test_shares_are_a_partition_without_jumps():
    fa, md = torch.meshgrid(torch.linspace(0, 1, 201), torch.linspace(0, 4e-3, 201), indexing="ij")
    shares = tissue_likeness(fa, md)
    assert shares.min() >= 0
    torch.testing.assert_close(shares.sum(dim=-1), torch.ones_like(fa))
    for axis in (0, 1):
        assert shares.diff(dim=axis).abs().max() < 0.03


def test_between_two_tissues_the_factor_is_their_geometric_mean():
    half_white = torch.tensor([0.25])  # of an FA ramp from 0.15 to 0.35
    assert factor_map((9.0, 2.0, 8.0), half_white, torch.tensor([0.8e-3])).item() == pytest.approx(4.0, rel=1e-5)


def test_intervals_are_widened_by_the_factor_of_what_the_voxel_looks_like(generator):
    fluid = torch.tensor([3e-3, 3e-3, 3e-3, 0, 0, 0], dtype=torch.float64)
    fibre = torch.tensor([1.7e-3, 3e-4, 3e-4, 0, 0, 0], dtype=torch.float64)
    noise = 2e-5 * torch.randn(8, 2, 6, generator=generator, dtype=torch.float64)
    samples = torch.stack([fluid, fibre]) + noise
    plain = measure_spread(samples, **GRADIENTS)
    wide = measure_spread(samples, **GRADIENTS, calibration=Calibration(md=5.0, md_by_tissue=(3.0, 1.0, 1.5)))
    assert plain is not None
    assert wide is not None
    ratio = (wide.md.high - wide.md.low) / (plain.md.high - plain.md.low)
    assert ratio.tolist() == pytest.approx([3.0, 1.5])
    torch.testing.assert_close(wide.fa.low, plain.fa.low)


def test_a_factor_of_a_tissue_is_a_positive_number():
    with pytest.raises(ValueError, match="positive numbers"):
        Calibration(fa_by_tissue=(1.0, 0.0, 1.0))
