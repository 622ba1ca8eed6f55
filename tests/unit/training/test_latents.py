"""The latents' scale: unit variance over the kinds of scans that a stream has, not over its first neighbours."""

from dataclasses import dataclass, replace

import pytest
import torch

from tensorldm.batch import Batch
from tensorldm.build import build_model, build_scaling
from tensorldm.cohort.config import read_cohort
from tensorldm.config.reading import read_config
from tensorldm.config.run import RunConfig
from tensorldm.training.latents import APART, SUBJECTS, measure_latent_scale
from tensorldm.training.sources import Source
from tensorldm.training.streams import Replayed, Stream

BASE = read_config(RunConfig, "base").data


@dataclass(frozen=True)
class Louder:
    """Heads whose tensors stray the further from the first one's the later their group of 48 comes."""

    heads: Stream
    group: int = 48

    def batch(self, *, seed: int, position: int, size: int) -> Batch:
        head, first = (self.heads.batch(seed=seed, position=p, size=size) for p in (position, 0))
        factor = 1 + position // self.group
        return replace(head, components=first.components + factor * (head.components - first.components))


def source_of(stream: Stream) -> Source:
    return Source("test", 1, 0, *(lambda box: stream,) * 3)


@pytest.mark.parametrize("replayed", [False, True])
def test_subjects_are_taken_from_other_groups_of_the_stream_each(heads, replayed):
    seen = []

    @dataclass(frozen=True)
    class Seen:
        def batch(self, *, seed: int, position: int, size: int) -> Batch:
            seen.append(position)
            return heads.batch(seed=seed, position=position, size=size)

    stream: Stream = Seen()
    if replayed:
        stream = Replayed(stream, BASE.replays, window=BASE.replay_window, group=BASE.replay_group)
    config = read_config(RunConfig, "smoke").model
    measure_latent_scale(
        build_model(config),
        source_of(stream),
        box=(8, 8, 8),
        scaling=build_scaling(config),
        seed=0,
        device=torch.device("cpu"),
    )
    scheme = read_cohort(BASE.cohort, BASE.cohort_set).settings.protocol.scheme
    assert scheme is not None
    assert len({position // scheme.group for position in seen}) == len(seen) == SUBJECTS


def test_latents_of_the_measured_subjects_have_mean_zero_and_variance_one(heads):
    config = read_config(RunConfig, "smoke").model
    model, scaling, stream = build_model(config, 1), build_scaling(config), Louder(heads)
    measure_latent_scale(model, source_of(stream), box=(8, 8, 8), scaling=scaling, seed=0, device=torch.device("cpu"))
    members = []
    with torch.no_grad():
        for position in range(0, SUBJECTS * APART, APART):
            batch = stream.batch(seed=0, position=position, size=1)
            latents = model.encode(scaling.scale(batch.components), model.scan_features(**batch.scan))
            members.append(latents.movedim((1, 2), (-2, -1))[model.latent_mask(batch.mask)])
    for group in torch.cat(members).split(3, dim=1):
        flat = group.reshape(-1, group.shape[-1])
        torch.testing.assert_close(flat.mean(dim=0), torch.zeros(flat.shape[1]), atol=1e-3, rtol=0)
        torch.testing.assert_close(flat.std(dim=0), torch.ones(flat.shape[1]), atol=1e-2, rtol=0)
