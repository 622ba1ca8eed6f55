"""The expectation: any directions in any order and of any sign; first the minimum norm itself."""

import pytest
import torch

from tensorldm.batch import mask_centre
from tensorldm.networks.expectation import INPUT_CHANNELS, Expectation, describe_scan, expectation_inputs

SIZE = (8, 16, 8)


def directions_of(number, generator):
    return torch.nn.functional.normalize(torch.randn(1, number, 3, generator=generator), dim=-1)


def with_b0(directions, bval=1000.0):
    number = directions.shape[1]
    return torch.tensor([[0.0, *[bval] * number]]), torch.cat([torch.zeros(1, 1, 3), directions], dim=1)


@pytest.fixture(params=[0, 4])
def network(request):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = Expectation([8, 12], num_blocks=[1, 1], vector_channels=16, patch=2, detail_channels=request.param)
        for parameter in network.parameters():
            torch.nn.init.normal_(parameter, std=0.2)
    return network.eval()


def inputs_of(dwi, bvals, generator):
    solved = torch.randn(1, 6, *SIZE, generator=generator)
    mask = torch.zeros(1, *SIZE, dtype=torch.bool)
    mask[:, 1:-1, 2:-2, 1:-1] = True
    size = torch.full((1, 3), 2.0)
    return expectation_inputs(dwi, bvals, solved=solved, mask=mask, centre=mask_centre(mask), voxel_size=size)


@pytest.mark.parametrize("detail", [0, 4])
@pytest.mark.parametrize("patch", [1, 2])
def test_it_starts_as_the_minimum_norm_tensor(patch, detail, generator):
    network = Expectation([8, 12], num_blocks=[1, 1], vector_channels=16, patch=patch, detail_channels=detail)
    assert network.side_multiple == 2 * patch
    bvals, directions = with_b0(torch.eye(3)[None])
    inputs = inputs_of(torch.rand(1, 4, *SIZE, generator=generator), bvals, generator)
    assert inputs.shape[1] == INPUT_CHANNELS
    assert torch.equal(network(inputs, bvals, directions=directions), inputs[:, :6])


@pytest.mark.parametrize("number", [3, 6, 12])
def test_order_and_sign_of_the_directions_do_not_matter(network, number, generator):
    bvals, directions = with_b0(directions_of(number, generator))
    dwi = torch.rand(1, number + 1, *SIZE, generator=generator)
    inputs = inputs_of(dwi, bvals, generator)
    before = network(inputs, bvals, directions=directions)
    torch.testing.assert_close(network(inputs, bvals, directions=-directions), before, atol=1e-5, rtol=0)
    order = torch.randperm(number + 1, generator=generator)
    shuffled = network(inputs, bvals[:, order], directions=directions[:, order])
    torch.testing.assert_close(shuffled, before, atol=1e-5, rtol=0)


def test_other_directions_give_another_expectation_from_the_same_tensor(network, generator):
    bvals, directions = with_b0(torch.eye(3)[None])
    inputs = inputs_of(torch.rand(1, 4, *SIZE, generator=generator), bvals, generator)
    turned = with_b0(directions_of(3, generator))[1]
    difference = network(inputs, bvals, directions=directions) - network(inputs, bvals, directions=turned)
    assert difference.abs().max() > 1e-2


def test_an_axis_triad_measures_the_diagonal_and_six_good_directions_everything():
    triad = describe_scan(*with_b0(torch.eye(3)[None]))[0, :21]
    half = 2**-0.5
    six = torch.tensor([[1, 1, 0], [1, -1, 0], [1, 0, 1], [1, 0, -1], [0, 1, 1], [0, 1, -1]]) * half
    spread = describe_scan(*with_b0(six[None]))[0, :21]
    on_the_diagonal = torch.tensor([0, 6, 11, 15, 18, 20])  # of the upper triangle, row by row
    torch.testing.assert_close(triad[on_the_diagonal].round(decimals=1), torch.tensor([1.0, 1, 1, 0, 0, 0]))
    torch.testing.assert_close(spread[on_the_diagonal].round(decimals=1), torch.ones(6))


def test_signal_and_place_are_told_inside_the_mask_alone(generator):
    bvals, _ = with_b0(torch.eye(3)[None])
    dwi = torch.zeros(1, 4, *SIZE)
    dwi[:, 0], dwi[:, 1:] = 1.0, torch.tensor([0.2, 0.4, 0.6]).reshape(3, 1, 1, 1)
    inputs = inputs_of(dwi, bvals, generator)
    inside = inputs[0, 8] > 0
    assert inputs[0][:, ~inside].abs().max() == 0
    torch.testing.assert_close(inputs[0, 6][inside], torch.ones(int(inside.sum())))
    torch.testing.assert_close(inputs[0, 7][inside], torch.full((int(inside.sum()),), 0.4))
    # Two voxels apart is 4 mm, 0.04 half heads; the mask's centre is 0.
    torch.testing.assert_close(inputs[0, 9, 5, 8, 4] - inputs[0, 9, 3, 8, 4], torch.tensor(0.04))
    torch.testing.assert_close(inputs[0, 9:][:, inside].mean(dim=1), torch.zeros(3), atol=1e-6, rtol=0)


def test_the_last_look_sees_single_voxels_that_cubes_hide():
    """Two inputs that differ by a pattern within cubes, which a coarse network would have to carry in its channels."""
    network = Expectation([2, 2], num_blocks=[1, 1], vector_channels=8, patch=2, detail_channels=4)
    with torch.no_grad():
        network.stem.weight.zero_()  # the coarse way is blind
        network.detail.head.weight.normal_(generator=torch.Generator().manual_seed(0))
    bvals, directions = with_b0(torch.eye(3)[None])
    flat = torch.ones(1, INPUT_CHANNELS, *SIZE)
    checkered = flat.clone()
    checkered[..., ::2] = 2
    change = network._update(checkered, network.embedding(bvals, directions)) - network._update(
        flat, network.embedding(bvals, directions)
    )
    assert (change[..., 2:-2:2] - change[..., 3:-2:2]).abs().max() > 1e-2


def test_a_part_of_a_head_is_told_the_same_place_as_in_the_whole(generator):
    bvals, size = torch.tensor([[0.0, 1000, 1000, 1000]]), torch.tensor([[2.0, 2.0, 3.0]])
    dwi, solved = torch.rand(1, 4, *SIZE, generator=generator), torch.randn(1, 6, *SIZE, generator=generator)
    mask = torch.zeros(1, *SIZE, dtype=torch.bool)
    mask[:, 1:-1, 2:-2, 1:-1] = True
    centre, corner = mask_centre(mask), torch.tensor([[2, 5, 1]])
    part = (..., slice(2, 6), slice(5, 13), slice(1, 5))
    whole = expectation_inputs(dwi, bvals, solved=solved, mask=mask, centre=centre, voxel_size=size)
    cut = expectation_inputs(
        dwi[part], bvals, solved=solved[part], mask=mask[part], centre=centre - corner, voxel_size=size
    )
    torch.testing.assert_close(cut, whole[part])


def test_a_mirrored_head_gets_the_mirrored_tensor_when_it_looks_both_ways(network, generator):
    bvals, directions = with_b0(directions_of(3, generator))
    dwi, solved = torch.rand(1, 4, *SIZE, generator=generator), torch.randn(1, 6, *SIZE, generator=generator)
    mask = torch.ones(1, *SIZE, dtype=torch.bool)
    mask[:, :2] = False
    size = torch.full((1, 3), 2.0)
    signs = torch.tensor([1.0, 1.0, 1.0, -1.0, -1.0, 1.0])[:, None, None, None]  # xx yy zz xy xz yz

    def seen(dwi, solved, mask):
        return expectation_inputs(dwi, bvals, solved=solved, mask=mask, centre=mask_centre(mask), voxel_size=size)

    here, there = seen(dwi, solved, mask), seen(dwi.flip(2), solved.flip(2) * signs, mask.flip(1))
    turned = directions * torch.tensor([-1.0, 1.0, 1.0])
    alone = network(here, bvals, directions=directions)
    image = network(there, bvals, directions=turned).flip(2) * signs
    assert (image - alone).abs().max() > 0.01
    network.both_ways = True
    both = network(here, bvals, directions=directions)
    torch.testing.assert_close(both, (alone + image) / 2, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(network(there, bvals, directions=turned).flip(2) * signs, both, atol=1e-5, rtol=1e-5)
