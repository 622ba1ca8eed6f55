"""Φ^d for the decoders: every level's grid and width, each component its own."""

import torch

from tensorldm.networks.expert_levels import ExpertLevels
from tensorldm.networks.layers import enlarge

WIDTHS = (3, 4, 5)


def _mixed(generator):
    return torch.randn(2, 6, 7, 2, 1, 3, generator=generator)


def test_every_level_has_its_own_grid_and_width_and_the_coarsest_that_of_the_latents(generator):
    levels = ExpertLevels(7, WIDTHS)(_mixed(generator))
    assert [tuple(level.shape) for level in levels] == [(2, 6, 3, 8, 4, 12), (2, 6, 4, 4, 2, 6), (2, 6, 5, 2, 1, 3)]


def test_a_voxel_reads_the_latent_that_it_lies_in_through_the_map_of_its_level(generator):
    levels, mixed = ExpertLevels(7, WIDTHS), _mixed(generator)
    with torch.no_grad():
        for parameter in levels.parameters():
            parameter.normal_(generator=generator)
        found = levels(mixed)
    for index, (level, narrow) in enumerate(zip(found, levels.narrow, strict=True)):
        size = 2 ** (2 - index)
        x, y, z = 2 * size - 1, 0, 2 * size
        by_hand = mixed[:, :, :, 1, 0, 2] @ narrow.weight[0] + narrow.bias[0]
        torch.testing.assert_close(level[..., x, y, z], by_hand)


def test_a_component_is_told_its_own_mixture_alone(generator):
    levels, mixed = ExpertLevels(7, WIDTHS), _mixed(generator)
    torch.nn.init.normal_(levels.narrow[0].weight, generator=generator)
    other = mixed.clone()
    other[:, 4] += 1
    with torch.no_grad():
        differs = (levels(mixed)[0] - levels(other)[0]).abs().amax(dim=(0, 2, 3, 4, 5)) > 0
    assert differs.tolist() == [False] * 4 + [True, False]


def test_enlarging_repeats_voxels(generator):
    stack = torch.randn(1, 2, 3, 2, 1, 2, generator=generator)
    found = enlarge(stack, 4)
    for axis in (3, 4, 5):
        stack = stack.repeat_interleave(4, dim=axis)
    assert torch.equal(found, stack)
