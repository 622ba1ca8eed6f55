"""The one scale of a subject's volumes."""

import torch

from tensorldm.dti.intensity import robust_b0_scale


def test_scale_follows_the_receiver_and_not_the_brightness_of_csf(generator):
    b0 = 1 + 0.1 * torch.rand(8, 9, 10, generator=generator)
    mask = torch.ones(8, 9, 10, dtype=torch.bool)
    with_csf = b0.clone()
    with_csf[:2] *= 3
    brighter_csf = b0.clone()
    brighter_csf[:2] *= 9
    assert torch.isclose(robust_b0_scale(7 * b0, mask), 7 * robust_b0_scale(b0, mask))
    assert robust_b0_scale(with_csf, mask) == robust_b0_scale(brighter_csf, mask)


def test_scale_reads_only_the_mask():
    b0 = torch.full((4, 4, 4), 2.0)
    mask = torch.zeros(4, 4, 4, dtype=torch.bool)
    mask[1:3, 1:3, 1:3] = True
    b0[~mask] = 1000.0
    assert robust_b0_scale(b0, mask) == 2.0


def test_scale_of_an_empty_mask_is_zero_so_that_the_caller_can_refuse_it():
    assert robust_b0_scale(torch.ones(3, 3, 3), torch.zeros(3, 3, 3, dtype=torch.bool)) == 0.0
