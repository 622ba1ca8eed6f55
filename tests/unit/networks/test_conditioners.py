import pytest
import torch

from tensorldm.networks.analytic_inputs import analytic_inputs
from tensorldm.networks.conditioner import FixedConditioner
from tensorldm.networks.direction_conditioner import DirectionConditioner
from tensorldm.networks.experts import DirectionExperts, FixedExperts
from tensorldm.shapes import Packed

CHANNELS = (3, 4, 5)
VECTORS = 12
SCALES = (1e-3, 1e-3, 1e-3, 5e-4, 5e-4, 5e-4)


def randomised(module, generator):
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return module


class Scan:
    """Signals of random tensors along random directions: one b=0 and ``number`` weighted volumes."""

    def __init__(self, number, generator, batch=1):
        directions = torch.nn.functional.normalize(torch.randn(batch, number, 3, generator=generator), dim=-1)
        self.directions = torch.cat([torch.zeros(batch, 1, 3), directions], dim=1)
        self.bvals = torch.cat([torch.zeros(batch, 1), 900 + 200 * torch.rand(batch, number, generator=generator)], 1)
        self.dwi = 0.2 + 0.7 * torch.rand(batch, number + 1, 8, 4, 12, generator=generator)
        self.dwi[:, 0] = 1.0
        self.mask = torch.rand(batch, 8, 4, 12, generator=generator) > 0.2

    def run(self, conditioner, order=slice(None), sign=1.0):
        dwi, bvals, directions = self.dwi[:, order], self.bvals[:, order], sign * self.directions[:, order]
        analytic, adc = analytic_inputs(dwi, bvals, directions=directions, mask=self.mask, component_scales=SCALES)
        with torch.no_grad():
            return conditioner(dwi, bvals, directions=directions, analytic=analytic, adc=adc)


@pytest.fixture
def directional(generator):
    conditioner = randomised(DirectionConditioner(CHANNELS, gradient_channels=8), generator)
    experts = randomised(
        DirectionExperts(conditioner.pooled_channels, 6, vector_channels=VECTORS, gradient_channels=8), generator
    )
    return conditioner, experts


@pytest.fixture
def fixed(generator):
    conditioner = randomised(FixedConditioner(CHANNELS), generator)
    experts = randomised(FixedExperts(conditioner.pooled_channels, 6, vector_channels=VECTORS), generator)
    return conditioner, experts


@pytest.fixture
def vectors(generator):
    return torch.randn(6, VECTORS, generator=generator)


@pytest.mark.parametrize("number", [3, 6, 12])
def test_any_number_of_directions_gives_the_same_kind_of_condition(directional, vectors, number, generator):
    conditioner, experts = directional
    features = Scan(number, generator).run(conditioner)
    assert [tuple(level.shape[1:]) for level in features.fused] == [(1, 3, 8, 4, 12), (1, 4, 4, 2, 6), (1, 5, 2, 1, 3)]
    assert features.pooled.shape == (1, number + 1, conditioner.pooled_channels, 2, 1, 3)
    assert experts(features, vectors).shape == (1, 6, 6, 2, 1, 3)


def test_the_order_of_the_volumes_does_not_matter(directional, vectors, generator):
    conditioner, experts = directional
    scan = Scan(6, generator)
    order = torch.randperm(7, generator=generator)
    features, shuffled = scan.run(conditioner), scan.run(conditioner, order=order)
    for level, other in zip(features.fused, shuffled.fused, strict=True):
        torch.testing.assert_close(level, other, atol=1e-5, rtol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(experts(features, vectors), experts(shuffled, vectors), atol=1e-5, rtol=1e-5)
        gates = experts.gates(features, vectors)
        torch.testing.assert_close(gates[:, :, order], experts.gates(shuffled, vectors), atol=1e-6, rtol=0)


def test_a_direction_and_its_opposite_are_the_same_measurement(directional, vectors, generator):
    conditioner, experts = directional
    scan = Scan(4, generator)
    features, opposite = scan.run(conditioner), scan.run(conditioner, sign=-1.0)
    for level, other in zip(features.fused, opposite.fused, strict=True):
        torch.testing.assert_close(level, other, atol=1e-6, rtol=0)
    assert torch.equal(features.gradients, opposite.gradients)
    with torch.no_grad():
        assert torch.equal(experts.gates(features, vectors), experts.gates(opposite, vectors))


@pytest.mark.parametrize("change", ["bvals", "directions", "dwi"])
def test_b_value_direction_and_signal_all_matter(directional, vectors, change, generator):
    conditioner, experts = directional
    scan = Scan(3, generator)
    before = scan.run(conditioner)
    if change == "directions":
        scan.directions[:, 1] = torch.nn.functional.normalize(scan.directions[:, 1].roll(1, dims=-1), dim=-1)
    else:
        getattr(scan, change)[:, 1] *= 0.8
    after = scan.run(conditioner)
    assert (before.fused[-1] - after.fused[-1]).abs().max() > 1e-3
    with torch.no_grad():
        assert (experts(before, vectors) - experts(after, vectors)).abs().max() > 1e-3


def test_the_papers_pathways_each_see_their_own_volume_only(fixed, generator):
    conditioner, _ = fixed
    scan = Scan(3, generator)
    before = scan.run(conditioner)
    scan.dwi[:, 2] *= 0.5
    after = scan.run(conditioner)
    assert torch.equal(before.pooled[:, [0, 1, 3]], after.pooled[:, [0, 1, 3]])
    assert (before.pooled[:, 2] - after.pooled[:, 2]).abs().max() > 1e-3
    assert (before.fused[0] - after.fused[0]).abs().max() > 1e-3


def test_the_papers_form_refuses_another_number_of_volumes(fixed, generator):
    with pytest.raises(AssertionError, match="5 volumes for 4 pathways"):
        Scan(4, generator).run(fixed[0])


@pytest.mark.parametrize("form", ["fixed", "directional"])
def test_the_condition_is_the_gate_weighted_sum_of_the_experts(form, vectors, generator, request):
    conditioner, experts = request.getfixturevalue(form)
    features = Scan(3, generator, batch=2).run(conditioner)
    with torch.no_grad():
        gates = experts.gates(features, vectors)
        mixed = experts(features, vectors)
        opinions = experts._opinions(features)
    assert gates.shape == (2, 6, 4)
    torch.testing.assert_close(gates.sum(dim=-1), torch.ones(2, 6))
    for d in range(6):
        expected = sum(gates[:, d, c].reshape(2, 1, 1, 1, 1) * opinions[:, c] for c in range(4))
        torch.testing.assert_close(mixed[:, d], expected, atol=1e-5, rtol=0)
    assert gates.std(dim=1).max() > 1e-3, "components must be able to choose differently"


@pytest.mark.parametrize("form", ["fixed", "directional"])
def test_uniform_routing_is_the_plain_mean_of_the_experts(form, vectors, generator, request):
    conditioner, experts = request.getfixturevalue(form)
    experts.routing = "uniform"
    features = Scan(3, generator).run(conditioner)
    with torch.no_grad():
        mixed, opinions = experts(features, vectors), experts._opinions(features)
    for d in range(6):
        torch.testing.assert_close(mixed[:, d], opinions.mean(dim=1), atol=1e-5, rtol=0)


@pytest.mark.parametrize("form", ["fixed", "directional"])
def test_gradients_reach_every_parameter_of_conditioner_and_experts(form, vectors, generator, request):
    conditioner, experts = request.getfixturevalue(form)
    scan = Scan(3, generator)
    analytic, adc = analytic_inputs(
        scan.dwi, scan.bvals, directions=scan.directions, mask=scan.mask, component_scales=SCALES
    )
    features = conditioner(scan.dwi, scan.bvals, directions=scan.directions, analytic=analytic, adc=adc)
    loss = sum(level.square().mean() for level in features.fused) + experts(features, vectors).square().mean()
    loss.backward()
    for name, parameter in [*conditioner.named_parameters(), *experts.named_parameters()]:
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


def test_analytic_inputs_recover_the_tensor_of_six_good_directions(generator):
    """Against the forward model: with six directions the minimum-norm tensor is the tensor itself."""
    from tensorldm.dti.signal import predict_signal

    golden = (1 + 5**0.5) / 2
    axes = [(0, 1, golden), (0, 1, -golden), (1, golden, 0), (1, -golden, 0), (golden, 0, 1), (golden, 0, -1)]
    directions = torch.nn.functional.normalize(torch.tensor(axes), dim=-1)
    directions = torch.cat([torch.zeros(1, 3), directions])
    bvals = torch.tensor([0.0, *[1000.0] * 6])
    packed: Packed = torch.tensor([1.4e-3, 0.5e-3, 0.4e-3, 0.2e-3, -0.1e-3, 0.05e-3]).expand(4, 4, 4, 6)
    signal = predict_signal(packed, torch.ones(4, 4, 4), bvals, directions)
    mask = torch.ones(1, 4, 4, 4, dtype=torch.bool)
    mask[:, 0] = False
    tensor, adc = analytic_inputs(
        signal.movedim(-1, 0)[None], bvals[None], directions=directions[None], mask=mask, component_scales=SCALES
    )
    expected = torch.tensor([1.4, 0.5, 0.4, 0.4, -0.2, 0.1]).reshape(6, 1, 1, 1)
    torch.testing.assert_close(tensor[0, :, 1:], expected.expand(6, 3, 4, 4), atol=1e-4, rtol=0)
    assert tensor[0, :, 0].abs().max() == 0
    along = directions[1:]
    full = torch.tensor([[1.4, 0.2, -0.1], [0.2, 0.5, 0.05], [-0.1, 0.05, 0.4]])
    torch.testing.assert_close(adc[0, 1:, 2, 2, 2], torch.einsum("ni,ij,nj->n", along, full, along), atol=1e-4, rtol=0)
    assert adc[0, 0].abs().max() == 0
