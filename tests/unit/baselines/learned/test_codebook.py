import torch
from monai.networks.layers.vector_quantizer import EMAQuantizer

from tensorldm.baselines.learned.codebook import revive_codes, start_codes


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
