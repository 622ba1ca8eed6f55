"""Named randomness."""

import torch

from tensorldm.rng import derive_seed, generator, numpy_generator


def test_the_same_seed_and_labels_give_the_same_numbers():
    draws = [torch.randn(4, generator=generator(7, "noise", "sub-01", 3)) for _ in range(2)]
    assert torch.equal(*draws)


def test_seeds_are_pinned_so_that_results_outlive_a_python_version():
    assert derive_seed(0) == 3456079177858693020
    assert derive_seed(7, "noise", 3) == 1143751153701848708


def test_labels_do_not_run_together():
    assert derive_seed(0, "a", "bc") != derive_seed(0, "ab", "c")
    assert derive_seed(0, "1") != derive_seed(0, 1)


def test_numpy_and_torch_streams_follow_their_labels():
    assert numpy_generator(0, "x").integers(1 << 30) == numpy_generator(0, "x").integers(1 << 30)
    assert numpy_generator(0, "x").integers(1 << 30) != numpy_generator(0, "y").integers(1 << 30)
