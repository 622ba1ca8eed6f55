"""Every term of the rivals' losses against values worked out by hand."""

from math import exp, log

import numpy as np
import pytest
import torch
from torch import nn

from tensorldm.baselines.learned.adversarial import AdversarialLoss, Handover
from tensorldm.baselines.learned.cyclegan import CriticsObjective, CycleGAN, CycleObjective
from tensorldm.baselines.learned.denoising import denoising_error, noised
from tensorldm.baselines.learned.objective import mean_inside
from tensorldm.baselines.learned.pix2pix import CriticObjective, GeneratorObjective, Translation
from tensorldm.baselines.learned.regression import RegressionNetwork, RegressionObjective
from tensorldm.baselines.learned.runs import open_run
from tensorldm.baselines.learned.superdti import squared_error
from tensorldm.baselines.learned.told import NUM_CHANNELS, NUM_IMAGES, SOLVED, tell_batch
from tensorldm.data.scaling import TensorScaling
from tensorldm.diffusion import linear_schedule
from tensorldm.dti.logarithm import log_euclidean_distance

SCALING = TensorScaling()
NOWHERE = torch.tensor([0, 1])


class _Constant(nn.Module):
    """Gives one value everywhere."""

    def __init__(self, value: float, channels: int) -> None:
        super().__init__()
        self.value, self.channels = value, channels

    def forward(self, volume):
        return torch.full((len(volume), self.channels, *volume.shape[2:]), self.value)


class _MeanCritic(nn.Module):
    """Its one logit is the mean of the last channel, times two."""

    def forward(self, volume):
        return [volume, 2 * volume[:, -1:].mean(dim=(2, 3, 4), keepdim=True)]


class _Itself(nn.Module):
    """Its logits are what it is shown."""

    def forward(self, volume):
        return [volume]


def _softplus(x: float) -> float:
    return log(1 + exp(x))


def _translation(criterion: str, value: float) -> Translation:
    return Translation(
        _Constant(value, 6),
        _MeanCritic(),
        scaling=SCALING,
        side=1,
        criterion=criterion,
        pixel_weight=100.0,
        adversarial_weight=0.5,
    )


def test_the_mean_inside_counts_each_subject_alike_whatever_the_size_of_its_brain():
    values = torch.zeros(2, 2, 2, 2, 2)
    values[0, :, 0], values[1, 0, 0, 0, 0] = 3.0, 4.0
    mask = torch.zeros(2, 2, 2, 2, dtype=torch.bool)
    mask[0, 0], mask[1, 0, 0, 0] = True, True
    assert mean_inside(values, mask).item() == pytest.approx((3.0 + (4.0 + 0.0) / 2) / 2)


@pytest.mark.parametrize("criterion", ["bce", "least_squares"])
def test_the_generator_pays_for_being_found_out_and_for_its_distance(heads, criterion):
    rival = _translation(criterion, 0.3)
    loss, logs = GeneratorObjective(rival, Handover())(heads, NOWHERE)
    target = (heads.components / torch.tensor(SCALING.per_component).reshape(6, 1, 1, 1)).numpy()
    inside = heads.mask.numpy()
    l1 = np.mean([np.abs(0.3 - target[b][:, inside[b]]).mean() for b in range(2)])
    logits = [2 * 0.3 * inside[b].mean() for b in range(2)]
    fooling = [_softplus(-x) if criterion == "bce" else (x - 1) ** 2 for x in logits]
    assert logs["l1"].item() == pytest.approx(l1, rel=1e-5)
    assert loss.item() == pytest.approx(0.5 * np.mean(fooling) + 100 * l1, rel=1e-5)


@pytest.mark.parametrize("criterion", ["bce", "least_squares"])
def test_the_critic_pays_half_for_each_side_that_it_mistakes(heads, criterion):
    rival = _translation(criterion, 0.3)
    loss, _ = CriticObjective(rival, Handover())(heads, NOWHERE)
    target = heads.components[:, 5] / SCALING.off_diagonal
    real, fake = (2 * target.mean(dim=(1, 2, 3))).tolist(), [2 * 0.3 * m.float().mean().item() for m in heads.mask]
    if criterion == "bce":
        sides = np.mean([_softplus(-x) for x in real]), np.mean([_softplus(x) for x in fake])
    else:
        sides = np.mean([(x - 1) ** 2 for x in real]), np.mean([x**2 for x in fake])
    assert loss.item() == pytest.approx(0.5 * sum(sides) / 2, rel=1e-5)


def test_a_perfect_critic_pays_nothing():
    loss = AdversarialLoss("least_squares")
    real, fake = torch.ones(1, 1, 2, 2, 2), torch.zeros(1, 1, 2, 2, 2)
    assert loss.tell_apart(_Itself(), real, fake=fake).item() == 0
    assert loss.fool(_Itself(), fake).item() == 1


def test_the_critic_judges_the_very_fakes_of_the_generators_turn_each_once():
    handover, fake = Handover(), torch.rand(1, 6, 2, 2, 2, requires_grad=True)
    handover.give(torch.tensor([7]), fake)
    (taken,) = handover.take(torch.tensor([7]), lambda: pytest.fail("made anew"))
    assert torch.equal(taken, fake)
    assert not taken.requires_grad
    made = torch.zeros(1, 6, 2, 2, 2)
    assert handover.take(torch.tensor([7]), lambda: (made,)) == (made,)


def test_cyclegan_pays_for_both_cycles_and_never_for_the_distance_to_its_own_reference(heads):
    _, settings = open_run("cyclegan", "smoke", [])
    rival = CycleGAN(settings.model, SCALING)
    rival.tensor_generator, rival.scan_generator = _Constant(0.2, 6), _Constant(0.5, NUM_IMAGES)
    rival.tensor_critic = rival.scan_critic = _MeanCritic()
    loss, logs = CycleObjective(rival, Handover())(heads, NOWHERE)
    told = tell_batch(heads, SCALING.per_component)
    target = SCALING.scale(heads.components)
    inside = heads.mask.numpy()

    def away(volume, value):
        return np.mean([np.abs(value - volume[b].numpy()[:, inside[b]]).mean() for b in range(2)])

    share = inside[0].mean()
    cycle = away(told.images, 0.5) + away(target, 0.2)
    assert logs["cycle"].item() == pytest.approx(cycle, rel=1e-5)
    adversarial = (2 * 0.2 * share - 1) ** 2 + (2 * 0.5 * share - 1) ** 2
    assert loss.item() == pytest.approx(adversarial + 10 * cycle, rel=1e-5)


def test_cyclegans_critics_pay_for_tensors_and_for_scans(heads):
    _, settings = open_run("cyclegan", "smoke", [])
    rival = CycleGAN(settings.model, SCALING)
    rival.tensor_generator, rival.scan_generator = _Constant(0.0, 6), _Constant(0.0, NUM_IMAGES)
    rival.tensor_critic = rival.scan_critic = _MeanCritic()
    loss, _ = CriticsObjective(rival, Handover())(heads, NOWHERE)
    told = tell_batch(heads, SCALING.per_component)
    reals = SCALING.scale(heads.components)[:, 5], told.images[:, -1]
    by_hand = sum((2 * real.mean(dim=(1, 2, 3)) - 1).square().mean().item() / 2 for real in reals)
    assert loss.item() == pytest.approx(by_hand, rel=1e-5)


def test_regression_starts_as_the_minimum_norm_tensor_and_pays_its_error(heads):
    network = RegressionNetwork([8, 8], [1, 1])
    told = tell_batch(heads, SCALING.per_component)
    assert torch.equal(network(told.channels), told.channels[:, SOLVED])
    assert told.channels.shape[1] == NUM_CHANNELS
    loss, logs = RegressionObjective(network, SCALING, lem_weight=0.5)(heads, NOWHERE)
    squared, _ = RegressionObjective(network, SCALING, lem_weight=0.0, kind="squared")(heads, NOWHERE)
    target = SCALING.scale(heads.components)
    l1, squares, lem = [], [], []
    for b in range(2):
        inside = heads.mask[b]
        found, wanted = told.channels[b, SOLVED][:, inside].T, target[b][:, inside].T
        l1.append((found - wanted).abs().sum(dim=1).mean().item())
        squares.append((found - wanted).square().sum(dim=1).mean().item())
        scales = torch.tensor(SCALING.per_component)
        lem.append(log_euclidean_distance(found * scales, wanted * scales, floor=5e-5).mean().item())
    assert logs["regression"].item() == pytest.approx(np.mean(l1), rel=1e-4)
    assert loss.item() == pytest.approx(np.mean(l1) + 0.5 * np.mean(lem), rel=1e-2)
    assert squared.item() == pytest.approx(np.mean(squares), rel=1e-4)


def test_the_squared_error_of_maps_is_their_mean_over_maps_and_brain():
    found, target = torch.zeros(1, 2, 2, 2), torch.zeros(1, 2, 2, 2)
    found[0, 0, 0, 0], found[0, 1, 1, 1] = 3.0, 100.0
    inside = torch.zeros(1, 1, 2, 2)
    inside[0, 0, 0] = 1.0
    assert squared_error(found, target, inside).item() == pytest.approx(9 / 4)


@pytest.mark.parametrize("prediction", ["noise", "clean", "velocity"])
def test_a_denoiser_that_says_zero_pays_the_power_of_its_target(prediction):
    clean = torch.randn(2, 6, 1, 3, 3, 1, generator=torch.Generator().manual_seed(5))
    schedule = linear_schedule()

    def randoms():
        return [torch.Generator().manual_seed(seed) for seed in (1, 2)]

    _, _, wanted = noised(clean, generators=randoms(), schedule=schedule, prediction=prediction)
    loss = denoising_error(torch.zeros_like(clean), wanted)
    power = []
    for member, random in zip(clean, randoms(), strict=True):
        step = int(torch.randint(1000, (1,), generator=random))
        noise = torch.randn(member.shape, generator=random)
        a = float(schedule.alpha_bar[step])
        target = {"noise": noise, "clean": member, "velocity": a**0.5 * noise - (1 - a) ** 0.5 * member}[prediction]
        power.append(target.square().mean().item())
    assert loss.item() == pytest.approx(np.mean(power), rel=1e-5)
