import torch
from monai.networks.layers.vector_quantizer import EMAQuantizer

from tensorldm.baselines.learned.codebook import revive_codes, start_codes
from tensorldm.baselines.learned.runs import open_run
from tensorldm.baselines.learned.training import starting_rival
from tensorldm.training.ema import Average


def _used(quantizer: EMAQuantizer, latents: torch.Tensor) -> int:
    return len(quantizer.quantize(latents.T.reshape(1, -1, len(latents), 1, 1))[2].unique())


def _small_latents() -> torch.Tensor:
    return 0.01 * torch.randn(200, 6, generator=torch.Generator().manual_seed(0))


def test_codes_that_start_from_latents_are_all_in_reach_where_unit_normal_ones_are_not():
    quantizer, latents = EMAQuantizer(3, 32, 6), _small_latents()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        quantizer.embedding.weight.data.normal_()
    before = _used(quantizer, latents)
    start_codes(quantizer, latents, torch.Generator().manual_seed(1))
    assert before <= 4
    assert _used(quantizer, latents) > 20


def test_dead_codes_move_to_latents_and_living_ones_stay():
    quantizer, latents = EMAQuantizer(3, 8, 6), _small_latents()
    start_codes(quantizer, latents, torch.Generator().manual_seed(1))
    quantizer.embedding.weight.data[3] = 9.0
    quantizer.ema_cluster_size[3] = 1e-4
    kept = quantizer.embedding.weight.clone()
    revive_codes(quantizer, latents, torch.Generator().manual_seed(2))
    moved = (quantizer.embedding.weight != kept).any(dim=1)
    assert moved.tolist() == [index == 3 for index in range(8)]
    assert (latents == quantizer.embedding.weight[3]).all(dim=1).any()
    assert quantizer.ema_cluster_size[3] > 0.5


def test_the_weights_average_follows_codes_that_training_writes():
    method, settings = open_run("ldm", "smoke", ["average.decay=0.5", "average.warmup=false"])
    rival = method.prepare(settings, 1, start=None).model
    average = Average(rival, settings.average)
    rival.train()
    before = rival.tensors.quantizer.quantizer.embedding.weight.clone()
    latents = torch.randn(2, 12, 4, 4, 4, generator=torch.Generator().manual_seed(3))
    rival.tensors.quantize(latents)
    average.update(0)
    after = rival.tensors.quantizer.quantizer.embedding.weight
    assert not torch.equal(before, after)
    kept = average.values["tensors.quantizer.quantizer.embedding.weight"]
    torch.testing.assert_close(kept, (before + after) / 2)


def test_a_latent_model_has_no_parameter_that_no_gradient_moves():
    _, settings = open_run("ldm", "smoke", [])
    rival = starting_rival(settings, None)[0]
    assert all(parameter.requires_grad for parameter in rival.parameters())
    assert "tensors.quantizer.quantizer.embedding.weight" in rival.state_dict()
