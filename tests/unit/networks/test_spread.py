"""The spread around the expectation: what it starts as, that it finds a known one, and its loss by hand."""

import pytest
import torch
from torch.distributions import Normal

from tensorldm.components import NUM_COMPONENTS
from tensorldm.networks.expectation import INPUT_CHANNELS
from tensorldm.networks.spread import FIRST_SPREAD, Spread, surprise

SIZE = (8, 10, 12)


@pytest.fixture
def known(generator) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Inputs, an expectation and a scan's vector."""
    return (
        torch.randn(2, INPUT_CHANNELS, *SIZE, generator=generator),
        torch.randn(2, NUM_COMPONENTS, *SIZE, generator=generator),
        torch.randn(2, 1, 5, generator=generator),
    )


def test_it_starts_alike_everywhere_in_the_brain(known):
    inputs, expected, vector = known
    mask = inputs[:, 0] > 0
    spread = Spread(4, vector_channels=5)(inputs, expected, mask=mask, vector=vector)
    by_hand = torch.where(mask[:, None], FIRST_SPREAD, torch.ones_like(expected))
    torch.testing.assert_close(spread, by_hand)


def test_surprise_is_the_likelihood_of_what_lies_in_the_mask(generator):
    difference = torch.randn(2, 6, *SIZE, generator=generator)
    spread = 0.1 + torch.rand(2, 6, *SIZE, generator=generator)
    mask = torch.rand(2, *SIZE, generator=generator) < 0.4
    by_hand = [
        -(Normal(0, s[:, m]).log_prob(d[:, m]).mean()) - 0.5 * torch.log(torch.tensor(2 * torch.pi))
        for d, s, m in zip(difference, spread, mask, strict=True)
    ]
    torch.testing.assert_close(surprise(difference, spread, mask=mask), torch.stack(by_hand))


def test_it_learns_how_far_tensors_lie_from_the_expectation(known, generator):
    """Half of the head is known ten times as well as the other half, and the inputs tell which."""
    inputs, expected, vector = known
    sure = torch.arange(SIZE[0])[:, None, None] < SIZE[0] // 2
    inputs[:, 0] = sure.float()
    truth = torch.where(sure, 0.03, 0.3)
    mask = torch.ones(2, *SIZE, dtype=torch.bool)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = Spread(8, vector_channels=5)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    for _ in range(150):
        difference = truth * torch.randn(2, 6, *SIZE, generator=generator)
        optimizer.zero_grad()
        surprise(difference, network(inputs, expected, mask=mask, vector=vector), mask=mask).mean().backward()
        optimizer.step()
    found = network(inputs, expected, mask=mask, vector=vector).detach()
    inner = torch.zeros(SIZE, dtype=torch.bool)
    inner[[1, 2, 5, 6]] = True  # neighbours of the border may be unsure which half they are in
    ratio = found.log().mean(dim=(0, 1)) - truth.log()
    assert float(ratio[inner].abs().mean()) < 0.15
