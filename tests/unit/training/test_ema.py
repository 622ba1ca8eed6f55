import contextlib

import torch
from torch import nn

from tensorldm.config.training import AverageConfig
from tensorldm.training.ema import Average


class _Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2))
        self.register_buffer("codebook", torch.zeros(2))
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64))


def test_the_average_is_the_geometric_sum_computed_by_hand():
    module = _Counter()
    average = Average(module, AverageConfig(decay=0.5, warmup=False))
    for step, value in enumerate([1.0, 3.0]):
        with torch.no_grad():
            module.weight.fill_(value)
        average.update(step)
    assert average.values["weight"].tolist() == [0.5 * (0.5 * 1.0) + 0.5 * 3.0] * 2


def test_with_warmup_a_short_run_forgets_its_first_weights():
    module = _Counter()
    average = Average(module, AverageConfig(decay=0.9999, warmup=True))
    with torch.no_grad():
        module.weight.fill_(1.0)
    for step in range(100):
        average.update(step)
    assert average.values["weight"].min() > 0.99
    assert average.decay(10**7) == 0.9999


def test_buffers_follow_the_weights_and_whole_numbers_are_copied():
    module = _Counter()
    average = Average(module, AverageConfig(decay=0.5, warmup=False))
    module.codebook.fill_(4.0)
    module.updates.fill_(7)
    average.update(0)
    assert average.values["codebook"].tolist() == [2.0, 2.0]
    assert int(average.values["updates"]) == 7


def test_frozen_values_do_not_drift_by_rounding():
    module = _Counter()
    with torch.no_grad():
        module.weight.copy_(torch.tensor([0.1, 1 / 3]))
    average = Average(module, AverageConfig())
    for step in range(50):
        average.update(step)
    assert torch.equal(average.values["weight"], module.weight)


def test_the_module_has_its_own_weights_back_after_the_block_even_if_it_fails():
    module = _Counter()
    average = Average(module, AverageConfig(decay=0.5, warmup=False))
    with torch.no_grad():
        module.weight.fill_(1.0)
    average.update(0)
    seen = []
    with contextlib.suppress(KeyError), average.applied():
        seen = module.weight.tolist()
        raise KeyError
    assert seen == [0.5, 0.5]
    assert module.weight.tolist() == [1.0, 1.0]
