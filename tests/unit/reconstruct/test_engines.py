"""What makes the tensors: closed forms and a model behind one contract."""

from dataclasses import replace

import pytest
import torch

from tensorldm.baselines.analytic import ANALYTIC
from tensorldm.build import build_model
from tensorldm.bundle import Card, IntervalFactors, write_bundle
from tensorldm.config.reading import read_config
from tensorldm.config.run import RunConfig
from tensorldm.dti.maps import fractional_anisotropy
from tensorldm.dti.signal import predict_signal
from tensorldm.errors import ConfigError, DataWarning
from tensorldm.reconstruct.analytic_engine import FORMULAS
from tensorldm.reconstruct.choice import NO_MODEL, choose, pick_device
from tensorldm.reconstruct.engine import WorkingScan
from tensorldm.reconstruct.model_engine import ModelEngine, at_paper_bvalue, worth_recording
from tensorldm.reconstruct.settings import Settings
from tensorldm.reconstruct.uncertainty import Calibration

CPU = torch.device("cpu")
SIZE = (6, 5, 7)
EXPECTING = ["model.expectation={channels: [8, 8], blocks: [1, 1]}", "stages.0={steps: 1, box: [16, 16, 16]}"]


def tensors(generator):
    """Positive definite, of white matter's size."""
    factor = torch.randn(*SIZE, 3, 3, generator=generator, dtype=torch.float64)
    matrix = 0.4e-3 * torch.eye(3, dtype=torch.float64) + 0.2e-3 * factor @ factor.mT
    return torch.stack([matrix[..., i, j] for i, j in ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))], dim=-1)


@pytest.fixture
def scan(generator) -> WorkingScan:
    return scan_at(1000.0, tensors(generator))


def scan_at(bval, packed) -> WorkingScan:
    bvals = torch.tensor([0.0, bval, bval, bval], dtype=torch.float64)
    directions = torch.cat([torch.zeros(1, 3), torch.eye(3)]).double()
    signal = predict_signal(packed, torch.full(SIZE, 300.0, dtype=torch.float64), bvals, directions)
    mask = torch.ones(SIZE, dtype=torch.bool)
    mask[0] = False
    return WorkingScan(signal.permute(3, 0, 1, 2).float(), bvals, directions, mask, (2.0, 2.0, 2.0), 300.0, "key")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    config = read_config(RunConfig, "smoke").model
    path = tmp_path_factory.mktemp("model")
    factors = IntervalFactors(fa=1.5, md=2.0, v1=0.5, source="held-out heads")
    state = build_model(config, 1).state_dict()
    write_bundle(path, state, config=config, joint=("gated", "gated"), card=Card(), intervals=factors)
    return path


def engine(folder, **settings) -> ModelEngine:
    return choose(model=folder).load(Settings(**{"steps": 2, "samples": 2, **settings}), device=CPU)


def test_closed_forms_have_the_names_that_tables_use():
    assert set(FORMULAS) <= set(ANALYTIC)


def test_on_the_axes_the_diagonal_is_exact(scan, generator):
    for name in FORMULAS:
        (packed,) = choose(method=name).load(Settings(), device=CPU).estimate(scan)
        truth = tensors(torch.Generator().manual_seed(0))[scan.mask]
        torch.testing.assert_close(packed[:, :3], truth[:, :3], rtol=1e-4, atol=1e-9)
        assert packed[:, 3:].abs().max() < 1e-12


def test_without_a_model_the_choice_says_so():
    choice = choose()
    if choice.folder is None:  # no weights ship
        assert (choice.method, choice.word) == ("minimum-norm", NO_MODEL)
    assert choose(method="ade").word is None


def test_the_first_samples_do_not_depend_on_how_many_follow(scan, folder):
    two, four = (engine(folder, samples=samples).estimate(scan) for samples in (2, 4))
    torch.testing.assert_close(two, four[:2])
    assert not torch.allclose(four[0], four[1])


def test_samples_around_an_expectation_have_it_as_their_mean_and_keep_their_differences(scan, tmp_path):
    config = read_config(RunConfig, "smoke", EXPECTING).model
    model, random = build_model(config, 1), torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=random))
    for name, stages in (("whole", (0, 1, 4)), ("early", (0,))):
        card = Card(stages=stages)
        write_bundle(tmp_path / name, model.state_dict(), config=config, joint=("off", "off"), card=card)
    samples = engine(tmp_path / "whole", samples=3).estimate(scan)
    expected = engine(tmp_path / "early").estimate(scan)[0]
    torch.testing.assert_close(samples.mean(dim=0), expected, rtol=1e-6, atol=1e-10)
    alone = engine(tmp_path / "whole", samples=1)
    assert (alone.estimate(scan)[0] - expected).abs().max() > 1e-6, "one sample is a sample"
    assert not alone.notes["SamplesCentred"]
    assert engine(tmp_path / "whole", samples=3).notes["SamplesCentred"]
    drawn = replace(engine(tmp_path / "whole", samples=3), centres=False).estimate(scan)
    torch.testing.assert_close(samples - samples[0], drawn - drawn[0], rtol=1e-6, atol=1e-10)
    assert (drawn.mean(dim=0) - expected).abs().max() > 1e-6


def test_pieces_of_any_size_give_the_same_samples(scan, folder):
    whole = engine(folder, samples=3)
    alone, together = (whole._draw_all(scan, at_once) for at_once in (1, 3))
    torch.testing.assert_close(alone, together, rtol=1e-4, atol=1e-8)


def test_the_number_of_threads_changes_fa_by_rounding_only(scan, folder):
    one = engine(folder).estimate(scan)
    torch.set_num_threads(2)
    try:
        two = engine(folder).estimate(scan)
    finally:
        torch.set_num_threads(1)
    assert (fractional_anisotropy(one) - fractional_anisotropy(two)).abs().max() < 1e-3


def test_noise_follows_the_seed_and_the_scan(scan, folder):
    first = engine(folder).estimate(scan)
    torch.testing.assert_close(first, engine(folder).estimate(scan), rtol=0, atol=0)
    assert not torch.allclose(first, engine(folder, seed=1).estimate(scan))
    assert not torch.allclose(first, engine(folder).estimate(replace(scan, key="another")))


@pytest.mark.parametrize(("sampler", "spacing"), [("ddim", "trailing"), ("dpm++2m", "log-snr")])
def test_each_sampler_takes_its_own_strides_and_the_sidecar_says_so(scan, folder, sampler, spacing):
    made = engine(folder, sampler=sampler, samples=1, steps=3)
    seen = {}
    draw = made.model.draw
    made.model.draw = lambda *given, **named: seen.update(named) or draw(*given, **named)
    made.estimate(scan)
    assert seen["spacing"] == made.notes["Spacing"] == spacing


def test_steps_are_recorded_on_a_gpu_alone_and_only_where_enough_of_them_follow():
    gpu = torch.device("cuda")
    assert worth_recording(gpu, Settings(steps=10), calls=1)
    assert worth_recording(gpu, Settings(steps=4), calls=2)
    assert not worth_recording(gpu, Settings(steps=4), calls=1)
    assert not worth_recording(gpu, Settings(steps=10, compile="never"), calls=1)
    assert not worth_recording(CPU, Settings(steps=100), calls=100)
    with pytest.raises(ConfigError, match="compile is 'maybe'; give one of auto, never"):
        Settings(compile="maybe")


@pytest.fixture
def recording(monkeypatch):
    """Every device taken for one that records, by the function that a test gives."""

    def use(function):
        monkeypatch.setattr("tensorldm.reconstruct.model_engine.RecordedStep", function)
        monkeypatch.setattr(
            "tensorldm.reconstruct.model_engine.worth_recording", lambda _, settings, calls: settings.compile == "auto"
        )

    return use


def test_a_step_that_cannot_be_recorded_is_told_once_and_gives_the_same_samples(scan, folder, recording):
    expected, made = engine(folder).estimate(scan), engine(folder)

    def fail(step, like):
        raise RuntimeError("operation not permitted when stream is capturing\nand more")

    recording(fail)
    with pytest.warns(DataWarning, match=r"cannot record a step \(operation not permitted when stream is capturing\)"):
        assert torch.equal(made.estimate(scan), expected)
    assert torch.equal(made.estimate(scan), expected)  # a second warning would be an error


def test_no_memory_for_a_recording_means_smaller_pieces_not_slower_steps(scan, folder, recording):
    def fail(step, like):
        raise torch.OutOfMemoryError("out of memory")

    recording(fail)
    with pytest.raises(torch.OutOfMemoryError):
        engine(folder)._draw_all(scan, 2)


def test_a_recording_serves_groups_of_its_own_size_and_not_the_rest(scan, folder, recording):
    expected, made, sizes = engine(folder, samples=3)._draw_all(scan, 2), engine(folder, samples=3), []

    def record(step, like):
        def replay(latents, number):
            sizes.append(len(latents))
            return step(latents, torch.tensor([number]))

        assert len(like) == 2
        return replay

    recording(record)
    torch.testing.assert_close(made._draw_all(scan, 2), expected)
    assert sizes == [2, 2]  # two steps of the pair; the third sample goes alone


def test_a_models_intervals_are_widened_as_its_bundle_says(folder):
    assert engine(folder).calibration == Calibration(fa=1.5, md=2.0, v1=0.5, source="held-out heads")


@pytest.fixture(scope="module")
def expecting(tmp_path_factory):
    """A model whose diffusion is not trained: it gives its expectation, as the shipped one does."""
    config = read_config(RunConfig, "smoke", EXPECTING).model
    path = tmp_path_factory.mktemp("expecting")
    state = build_model(config, 1).state_dict()
    write_bundle(path, state, config=config, joint=("gated", "gated"), card=Card(stages=(0,)))
    return path


def test_a_model_that_draws_nothing_says_nothing_of_samples(scan, expecting):
    made = engine(expecting, samples=None)
    assert made.estimate(scan).shape == (1, int(scan.mask.sum()), 6)
    assert made.num_samples == 1
    assert {"Method", "Model", "Device"} == set(made.notes)


def test_an_expectation_that_does_not_fit_the_gpu_is_made_on_the_cpu_and_that_is_told(scan, expecting, monkeypatch):
    made = engine(expecting, samples=None)
    expected = made.estimate(scan)
    expect = made.model.expect
    made.device = torch.device("meta")  # stands for a GPU

    def small(*given, **named):
        if made.device.type != "cpu":
            raise torch.OutOfMemoryError
        return expect(*given, **named)

    monkeypatch.setattr(made.model, "expect", small)
    with pytest.warns(DataWarning, match="going on with the CPU"):
        torch.testing.assert_close(made.estimate(scan), expected)
    assert made.notes["Device"] == "cpu"


@pytest.mark.parametrize("bval", [700.0, 1500.0])
def test_mono_exponential_signals_are_taken_to_b_1000_exactly(bval, generator):
    packed = tensors(generator)
    moved, expected = at_paper_bvalue(scan_at(bval, packed)), scan_at(1000.0, packed)
    torch.testing.assert_close(moved.dwi, expected.dwi, rtol=1e-5, atol=1e-3)
    assert torch.equal(moved.bvals, expected.bvals)


def test_devices_that_are_not_there_are_told():
    assert pick_device("cpu") == CPU
    with pytest.raises(ConfigError, match="--device is 'abacus'"):
        pick_device("abacus")
