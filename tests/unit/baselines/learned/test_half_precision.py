"""Rivals as a GPU trains them: under bfloat16 autocast, volumes channels-last in memory."""

import pytest
import torch

from tensorldm.baselines.learned.catalogue import BY_SLICES, RIVALS
from tensorldm.baselines.learned.runs import open_run

STAGES = [(name, number) for name, kind in RIVALS.items() for number in kind.stages]


@pytest.mark.parametrize(("name", "number"), STAGES)
def test_every_loss_of_a_rival_is_the_same_in_bfloat16_to_its_three_digits(name, number, one_head):
    """Forward alone: bfloat16 weight gradients of small volumes are not reliable on every processor."""
    method, settings = open_run(name, "smoke", ())
    with torch.no_grad():
        losses = []
        for half in (False, True):
            work = method.prepare(settings, number, start=None)
            work.model.eval()  # codebooks stay where they are
            if half and name not in BY_SLICES:
                work.model.to(memory_format=torch.channels_last_3d)
            for part in work.parts:
                with torch.autocast("cpu", torch.bfloat16, enabled=half):
                    loss, logs = part.objective.eval()(one_head, torch.tensor([0]))
                assert all(torch.isfinite(value).all() for value in (loss, *logs.values()))
                losses.append(loss.float())
    whole, halved = torch.stack(losses).chunk(2)
    torch.testing.assert_close(halved, whole, rtol=0.03, atol=0.003)
