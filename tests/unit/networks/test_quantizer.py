import os

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from tensorldm.networks.quantizer import VectorQuantizer, nearest_codes


def ready(num_codes=4, channels=2, **options):
    """A quantizer whose codes are all alive: counts of ten, sums to match."""
    quantizer = VectorQuantizer(num_codes, channels, **options)
    with torch.no_grad():
        quantizer.codebook.copy_(torch.arange(num_codes * channels).reshape(num_codes, channels).float())
        quantizer.counts.fill_(10.0)
        quantizer.sums.copy_(10.0 * quantizer.codebook)
    return quantizer


def buffers(module):
    return {name: value.clone() for name, value in module.named_buffers()}


@pytest.mark.parametrize("num_latents", [1, 777, 5000])
def test_the_nearest_code_is_the_nearest_by_brute_force(num_latents, generator, monkeypatch):
    monkeypatch.setattr("tensorldm.networks.quantizer.DISTANCES_AT_ONCE", 2**16)  # several pieces
    latents = torch.randn(num_latents, 8, generator=generator)
    codebook = torch.randn(512, 8, generator=generator)
    brute = (latents.double()[:, None] - codebook.double()[None]).square().sum(dim=-1).argmin(dim=1)
    assert torch.equal(nearest_codes(latents, codebook), brute)


def test_one_ema_step_is_the_one_computed_by_hand():
    quantizer = ready(num_codes=2, decay=0.9).train()  # codes (0, 1) and (2, 3)
    latents = torch.tensor([[0.0, 0.0], [0.0, 2.0], [3.0, 3.0]])
    result = quantizer(latents)
    assert result.codes.tolist() == [0, 0, 1]
    torch.testing.assert_close(quantizer.counts, torch.tensor([9.2, 9.1]))
    # 0.9 · 10 · (0, 1) + 0.1 · (0, 2) = (0, 9.2), and 0.9 · 10 · (2, 3) + 0.1 · (3, 3) = (18.3, 27.3)
    torch.testing.assert_close(quantizer.codebook, torch.tensor([[0.0, 1.0], [18.3 / 9.1, 3.0]]))
    # (1 + 1 + 1) squared distances over six entries, times the commitment of a quarter
    assert float(result.commitment) == pytest.approx(0.25 * 3 / 6)


def test_a_code_nobody_chooses_stays_where_it_is_until_it_is_dead():
    quantizer = ready().train()
    before = quantizer.codebook.clone()
    quantizer(before[:1].repeat(50, 1))
    torch.testing.assert_close(quantizer.codebook, before)


def test_a_dead_code_is_moved_onto_a_latent_of_the_batch(generator):
    quantizer = ready().train()
    with torch.no_grad():
        quantizer.counts[3] = 1e-3
        quantizer.sums[3] = 1e-3 * quantizer.codebook[3]
    latents = torch.randn(100, 2, generator=generator)
    quantizer(latents)
    distances = (latents - quantizer.codebook[3]).abs().amax(dim=1)
    assert distances.min() == 0
    assert float(quantizer.counts[3]) == pytest.approx(float(quantizer.counts[:3].mean()), rel=0.5)


def test_a_codebook_that_starts_far_away_does_not_collapse(generator):
    quantizer = VectorQuantizer(64, 4).train()
    latents = 50 + 0.1 * torch.randn(2000, 4, generator=generator)
    first = quantizer(latents)
    for _ in range(5):
        last = quantizer(latents)
    assert float(first.perplexity) == pytest.approx(1, abs=2)
    assert float(last.perplexity) > 40
    assert float(last.commitment) < 0.25 * 0.1**2


def test_perplexity_counts_the_codes_in_even_use():
    quantizer = ready(num_codes=4).eval()
    assert float(quantizer(quantizer.codebook[:3].repeat(5, 1)).perplexity) == pytest.approx(3, rel=1e-5)
    assert float(quantizer(quantizer.codebook[:1].repeat(5, 1)).perplexity) == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize("how", ["frozen", "eval"])
def test_a_frozen_quantizer_moves_no_buffer(how, generator):
    quantizer = ready()
    quantizer.train(how == "frozen")
    quantizer.frozen = how == "frozen"
    before = buffers(quantizer)
    quantizer(torch.randn(100, 2, generator=generator))
    for name, value in quantizer.named_buffers():
        assert torch.equal(value, before[name]), name


def test_latents_outside_the_mask_are_quantised_but_teach_nothing(generator):
    latents = torch.randn(60, 2, generator=generator)
    inside = torch.arange(60) < 40
    masked, alone = ready().train(), ready().train()
    wild = torch.where(inside[:, None], latents, 1e3)
    result, expected = masked(wild, inside), alone(latents[:40])
    torch.testing.assert_close(masked.codebook, alone.codebook)
    torch.testing.assert_close(result.commitment, expected.commitment)
    torch.testing.assert_close(result.perplexity, expected.perplexity)
    assert torch.equal(result.codes[:40], expected.codes)


def test_the_gradient_passes_straight_through_to_the_latents(generator):
    quantizer = ready().eval()
    latents = torch.randn(20, 2, generator=generator, requires_grad=True)
    weights = torch.randn(20, 2, generator=generator)
    result = quantizer(latents)
    (result.latents * weights).sum().backward()
    torch.testing.assert_close(latents.grad, weights)
    torch.testing.assert_close(result.latents.detach(), quantizer.codebook[result.codes])


def test_the_commitment_pulls_latents_towards_their_code():
    quantizer = ready(num_codes=2).eval()
    latents = torch.tensor([[0.3, 1.0]], requires_grad=True)
    quantizer(latents).commitment.backward()
    torch.testing.assert_close(latents.grad, torch.tensor([[0.25 * 2 * 0.3 / 2, 0.0]]))


def test_distances_are_float32_under_bfloat16_autocast(generator):
    """Codes 0.016 apart around 100: bfloat16 steps by 0.5 there and could not tell them from each other."""
    quantizer = VectorQuantizer(50, 1).eval()
    quantizer.codebook.copy_(100 + 0.016 * torch.arange(50.0)[:, None])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = quantizer(quantizer.codebook.clone())
    assert torch.equal(result.codes, torch.arange(50))


def _quantize_on_rank(rank, port, latents, path):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    quantizer = VectorQuantizer(32, 4).train()
    quantizer.codebook.zero_()
    for _ in range(3):
        quantizer(latents.chunk(2)[rank])
    torch.save(buffers(quantizer), f"{path}/{rank}.pt")
    dist.destroy_process_group()


def test_two_ranks_keep_the_codebook_of_one_process_with_both_batches(tmp_path, generator):
    latents = torch.randn(200, 4, generator=generator)
    port = 29500 + os.getpid() % 1000
    mp.spawn(_quantize_on_rank, args=(port, latents, str(tmp_path)), nprocs=2)
    alone = VectorQuantizer(32, 4).train()
    alone.codebook.zero_()
    for _ in range(3):
        alone(latents)
    for rank in (0, 1):
        found = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        for name, value in alone.named_buffers():
            torch.testing.assert_close(found[name], value, msg=lambda text, name=name: f"{name}: {text}")
