from dataclasses import replace

import pytest
import torch

from tensorldm.build import build_model, build_scaling
from tensorldm.config.reading import read_config
from tensorldm.config.run import RunConfig
from tensorldm.data.scaling import TensorScaling
from tensorldm.training.objectives import (
    DenoisingObjective,
    ExpectationObjective,
    ReconstructionObjective,
    component_error,
    l1,
    log_distance,
)
from tensorldm.training.streams import join, split


@pytest.fixture(scope="module")
def config() -> RunConfig:
    return read_config(RunConfig, "smoke")


def _denoising(config: RunConfig, *, summed: bool = False) -> DenoisingObjective:
    model = build_model(config.model, seed=1)
    with torch.no_grad():  # the head starts at zero, which would hide what it is given
        model.unet.head.weight.normal_(std=0.1, generator=torch.Generator().manual_seed(0))
    return DenoisingObjective(model, scaling=build_scaling(config.model), seed=3, stage=4, summed=summed)


def test_l1_is_the_sum_over_components_and_the_mean_over_each_mask():
    target = torch.zeros(2, 6, 2, 2, 2)
    prediction = torch.ones_like(target)
    prediction[1] = 3.0
    mask = torch.ones(2, 2, 2, 2, dtype=torch.bool)
    mask[1, 0] = False
    prediction[1, :, 0] = 100.0  # outside the mask: must not count
    assert l1(prediction, target, mask=mask).tolist() == [6.0, 18.0]


def test_the_log_term_of_scaled_tensors_is_zero_for_equal_and_ln2_root3_for_doubled_isotropic_tensors(heads):
    batch = heads.batch(seed=0, position=0, size=1)
    iso = torch.zeros_like(batch.components)
    iso[:, :3] = 1e-3
    assert float(log_distance(iso, iso, mask=batch.mask)) == 0.0
    doubled = float(log_distance(2 * iso, iso, mask=batch.mask))
    assert doubled == pytest.approx(3**0.5 * torch.log(torch.tensor(2.0)).item(), rel=1e-5)


def test_one_step_down_the_log_term_raises_a_negative_eigenvalue_and_no_gradient_leaves_the_mask():
    target = torch.zeros(1, 6, 2, 1, 1)
    target[:, :3] = 1e-3
    prediction = target.clone()
    prediction[0, :, 0, 0, 0] = torch.tensor([1e-3, 1e-3, -2e-4, 0, 0, 0])
    prediction[0, :, 1] = 0.0  # outside the mask, where the logarithm would be infinitely steep
    prediction.requires_grad_()
    mask = torch.tensor([True, False]).reshape(1, 2, 1, 1)
    log_distance(prediction, target, mask=mask).sum().backward()
    assert prediction.grad is not None
    assert torch.isfinite(prediction.grad).all()
    assert float(prediction.grad[0, 2, 0, 0, 0]) < 0
    assert not prediction.grad[:, :, 1].any()


def test_the_log_term_is_taken_in_mm2_per_s_of_both_groups(heads, config):
    model = build_model(config.model, seed=1)
    batch = heads.batch(seed=0, position=0, size=1)
    logs = {}
    for scaling in (TensorScaling(), TensorScaling(diagonal=2e-3, off_diagonal=1e-4)):
        target = scaling.scale(batch.components)
        distance = log_distance(scaling.unscale(target * 1.0), batch.components, mask=batch.mask)
        logs[scaling] = float(distance)
    assert all(value < 1e-3 for value in logs.values())
    objective = ReconstructionObjective(model, scaling=TensorScaling(), lem_weight=0.01).eval()
    loss, parts = objective(batch, torch.arange(1))
    expected = parts["reconstruction"] + parts["commitment"] + 0.01 * parts["log_distance"]
    assert float(loss.detach()) == pytest.approx(float(expected), rel=1e-6)


def _expecting() -> ExpectationObjective:
    expectation = "model.expectation={channels: [8, 8], blocks: [1, 1], vector_channels: 8}"
    config = read_config(RunConfig, "smoke", [expectation, "stages.0={steps: 1, box: [16, 16, 16]}"])
    return ExpectationObjective(build_model(config.model, seed=1), scaling=build_scaling(config.model), lem_weight=1.0)


@pytest.mark.parametrize("size", [1, 2, 3, 8, 16])
def test_samples_of_batches_of_any_size_teach_the_logarithm_of_every_voxel(size, heads):
    """With batches of eight, too: the steps' first positions are then all even."""
    objective, touched = _expecting(), torch.zeros(heads.side, heads.side, heads.side)
    round_ones = torch.zeros(size, 6, heads.side, heads.side, heads.side)
    round_ones[:, :3] = 1e-3
    everywhere = torch.ones_like(round_ones[:, 0]).bool()
    batch = replace(heads.batch(seed=0, position=0, size=size), components=round_ones, mask=everywhere)
    for first in range(0, 48, size):
        guess = (1.1 * objective.scaling.scale(round_ones)).requires_grad_()
        positions = torch.arange(first, first + size)
        components, mask, chosen = objective.gather(batch, positions)[2:]
        objective._log_distance(guess, components, mask=mask, chosen=chosen).sum().backward()
        assert guess.grad is not None
        touched += (guess.grad[:, 0] != 0).sum(dim=0)
    assert touched.min() == touched.max() > 0


def test_the_loss_of_stage_0_depends_on_each_samples_position_and_not_on_its_batch(heads):
    objective = _expecting()
    batch, positions = heads.batch(seed=0, position=0, size=3), torch.tensor([5, 6, 7])
    with torch.no_grad():
        together, _ = objective(batch, positions)
        alone = [objective(one, positions[i : i + 1])[0] for i, one in enumerate(split(batch))]
    assert float(together) == pytest.approx(float(sum(alone)) / 3, rel=1e-5)


@pytest.mark.parametrize("kind", ["absolute", "squared"])
def test_the_error_of_components_is_summed_over_them_and_averaged_over_each_mask(kind, heads):
    batch = heads.batch(seed=0, position=0, size=2)
    guess = torch.zeros_like(batch.components)
    found = component_error(guess, 1e3 * batch.components, mask=batch.mask, kind=kind)
    for error, components, mask in zip(found, batch.components, batch.mask, strict=True):
        inside = 1e3 * components[:, mask].double()
        by_hand = (inside.abs() if kind == "absolute" else inside**2).sum() / mask.sum()
        assert float(error) == pytest.approx(float(by_hand), rel=1e-4)


def test_noise_and_step_of_a_sample_depend_on_its_position_alone(config):
    objective = _denoising(config)
    like = torch.zeros(3, 6, 4, 2, 2, 2)
    steps, noise = objective.draw(torch.tensor([4, 5, 6]), like)
    step, alone = objective.draw(torch.tensor([5]), like[:1])
    assert steps[1] == step[0]
    assert torch.equal(noise[1], alone[0])
    assert not torch.equal(noise[0], noise[1])
    later = DenoisingObjective(objective.model, scaling=TensorScaling(), seed=3, stage=5, summed=True)
    assert not torch.equal(later.draw(torch.tensor([5]), like[:1])[1], alone)


def test_the_noise_of_components_is_independent_and_standard(config):
    like = torch.zeros(1, 6, 4, 16, 16, 16)
    _, noise = _denoising(config).draw(torch.tensor([0]), like)
    flat = noise[0].flatten(1)
    correlation = torch.corrcoef(flat) - torch.eye(6)
    assert float(correlation.abs().max()) < 0.03
    assert float(flat.std()) == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("kind", ["reconstruction", "denoising"])
def test_the_loss_of_a_batch_is_the_mean_of_its_samples(kind, heads, config):
    if kind == "denoising":
        objective = _denoising(config)
    else:
        objective = ReconstructionObjective(
            build_model(config.model, seed=1), scaling=build_scaling(config.model), lem_weight=0.01
        )
    objective.eval()
    subjects = split(heads.batch(seed=0, position=0, size=2))
    small = subjects[1].mask.clone()
    small[:, :4] = False  # masks of different size: the mean is over subjects, not over voxels
    subjects[1] = replace(subjects[1], mask=small, components=subjects[1].components * small[:, None])
    with torch.no_grad():
        together, _ = objective(join(subjects), torch.tensor([0, 1]))
        alone = [objective(subject, torch.tensor([i]))[0] for i, subject in enumerate(subjects)]
    assert float(together) == pytest.approx(float(sum(alone)) / 2, rel=1e-5)


def test_stage_5_sums_over_the_components_what_stage_4_averages(heads, config):
    batch = heads.batch(seed=0, position=0, size=2)
    with torch.no_grad():
        mean, _ = _denoising(config)(batch, torch.arange(2))
        total, _ = _denoising(config, summed=True)(batch, torch.arange(2))
    assert float(total) == pytest.approx(6 * float(mean), rel=1e-5)


def test_what_is_remembered_of_a_subject_is_what_would_be_computed_again(heads, config):
    batch = heads.batch(seed=0, position=0, size=2)
    fresh, remembering = _denoising(config), _denoising(config)
    remembering.encoded.remember = 2
    with torch.no_grad():
        for _ in range(2):
            assert torch.allclose(remembering(batch, torch.arange(2))[0], fresh(batch, torch.arange(2))[0], rtol=1e-5)


def test_only_the_last_subjects_are_remembered(heads, config):
    objective = _denoising(config)
    objective.encoded.remember = 2
    encode, encoded = objective.encoded._encode, []
    objective.encoded._encode = lambda batch: encoded.append(batch.subjects[0]) or encode(batch)
    for position in (0, 0, 2, 0):
        objective(heads.batch(seed=0, position=position, size=2), torch.arange(2))
    assert encoded == ["tiny0", "tiny1", "tiny2", "tiny3", "tiny0", "tiny1"]
