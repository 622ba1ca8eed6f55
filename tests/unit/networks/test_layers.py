import pytest
import torch
import torch.nn.functional as F

from tensorldm.networks.film import FilmMaps, FilmVector, ResidualBlock
from tensorldm.networks.layers import Conv, Pointwise, Upsample, VoxelNorm, average_pool, fold_patches, unfold_patches


@pytest.fixture
def stack(generator):
    return torch.randn(2, 6, 4, 5, 6, 7, generator=generator)


@pytest.mark.parametrize("stride", [1, 2])
def test_a_convolution_with_own_weights_is_six_convolutions(stack, stride):
    conv = Conv(4, 3, stride=stride, sets=6)
    found = conv(stack)
    for member, weight, bias in zip(range(6), conv.weight.chunk(6), conv.bias.chunk(6), strict=True):
        expected = F.conv3d(stack[:, member], weight, bias, stride=stride, padding=1)
        torch.testing.assert_close(found[:, member], expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("memory", [torch.contiguous_format, torch.channels_last_3d])
def test_the_way_of_a_gpu_gives_what_the_way_of_a_cpu_gives(stack, stride, memory):
    conv = Conv(4, 3, stride=stride, sets=6).to(memory_format=memory)
    torch.testing.assert_close(conv._convolve_one_by_one(stack), conv._convolve_grouped(stack), atol=1e-5, rtol=1e-5)


def test_a_convolution_with_shared_weights_treats_every_member_alike(stack):
    conv = Conv(4, 3)
    found = conv(stack)
    for member in range(6):
        torch.testing.assert_close(found[:, member], conv(stack[:, member, None])[:, 0])


@pytest.mark.parametrize("sets", [1, 6])
def test_a_pointwise_layer_is_a_convolution_of_one_voxel(stack, sets):
    layer = Pointwise(4, 3, sets=sets)
    torch.nn.init.normal_(layer.bias)
    found = layer(stack)
    for member in range(6):
        of_set = member if sets == 6 else 0
        kernel = layer.weight[of_set].T[:, :, None, None, None]
        torch.testing.assert_close(found[:, member], F.conv3d(stack[:, member], kernel, layer.bias[of_set]))


def test_one_condition_read_in_six_ways_equals_six_copies_of_it(stack):
    layer = Pointwise(4, 3, sets=6)
    torch.nn.init.normal_(layer.bias)
    shared = stack[:, :1]
    torch.testing.assert_close(layer(shared), layer(shared.expand(-1, 6, -1, -1, -1, -1).contiguous()))


def test_layers_with_own_weights_refuse_a_stack_of_another_number(stack):
    for layer in (Conv(4, 3, sets=4), Pointwise(4, 3, sets=4)):
        with pytest.raises(AssertionError, match="4 sets of weights for 6 members"):
            layer(stack)


def test_the_voxel_norm_gives_each_voxel_a_mean_square_of_one(stack):
    normed = VoxelNorm(4)(1e3 * stack)
    torch.testing.assert_close(normed.square().mean(dim=2), torch.ones(2, 6, 5, 6, 7), atol=1e-4, rtol=0)


def test_the_voxel_norm_of_a_voxel_does_not_see_its_neighbours(stack):
    norm = VoxelNorm(4)
    changed = stack.clone()
    changed[..., 0, :, :] = 100.0
    assert torch.equal(norm(changed)[..., 1:, :, :], norm(stack)[..., 1:, :, :])


def test_the_voxel_norm_of_empty_background_is_zero_with_a_finite_gradient():
    background = torch.zeros(1, 1, 4, 2, 2, 2, requires_grad=True)
    normed = VoxelNorm(4)(background)
    normed.sum().backward()
    assert normed.abs().max() == 0
    assert torch.isfinite(background.grad).all()


def test_average_pooling_keeps_the_mean_and_upsampling_repeats_voxels(stack):
    even = stack[..., :4, :6, :6]
    torch.testing.assert_close(average_pool(even, 2).mean(dim=(3, 4, 5)), even.mean(dim=(3, 4, 5)))
    up = Upsample(4, 4)
    with torch.no_grad():
        up.narrow.weight.copy_(torch.eye(4)[None])
    torch.testing.assert_close(average_pool(up(even), 2), even)


def test_film_starts_as_the_identity_and_then_scales_and_shifts(stack):
    film = FilmMaps(4, 2, sets=6)
    condition = torch.ones(2, 1, 2, 5, 6, 7)
    assert torch.equal(film(condition).apply(stack), stack)
    with torch.no_grad():
        film.to_modulation.bias[3, :4] = 1.0  # gain of the fourth component
        film.to_modulation.bias[5, 4:] = 0.5  # shift of the sixth
    found = film(condition).apply(stack)
    torch.testing.assert_close(found[:, 3], 2 * stack[:, 3])
    torch.testing.assert_close(found[:, 5], stack[:, 5] + 0.5)
    assert torch.equal(found[:, [0, 1, 2, 4]], stack[:, [0, 1, 2, 4]])


def test_a_vector_modulates_all_voxels_of_a_member_alike(stack):
    film = FilmVector(4, 3)
    torch.nn.init.normal_(film.to_modulation.weight)
    modulation = film(torch.randn(2, 6, 3))
    assert modulation.gain.shape == (2, 6, 4, 1, 1, 1)
    torch.testing.assert_close(modulation.apply(stack), stack * modulation.gain + modulation.shift)


def test_a_residual_block_starts_as_its_skip(stack):
    block = ResidualBlock(4, 4, sets=6, condition_channels=2, vector_channels=3)
    maps = block.modulation(torch.randn(2, 1, 2, 5, 6, 7))
    torch.testing.assert_close(block(stack, maps, vector=torch.randn(2, 1, 3)), stack)


def test_folded_cubes_unfold_to_where_they_were(generator):
    stack = torch.randn(2, 3, 4, 4, 6, 8, generator=generator)
    folded = fold_patches(stack, 2)
    assert folded.shape == (2, 3, 32, 2, 3, 4)
    assert torch.equal(unfold_patches(folded, 2), stack)
    assert set(folded[0, 1, :8, 1, 2, 3].tolist()) == set(stack[0, 1, 0, 2:4, 4:6, 6:8].flatten().tolist())
