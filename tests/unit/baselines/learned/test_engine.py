"""A rival on a device whose memory is too small: smaller pieces, said aloud, and the same tensors."""

import pytest
import torch

from tensorldm.baselines.learned.bundles import write_rival
from tensorldm.baselines.learned.catalogue import build_rival
from tensorldm.baselines.learned.engine import Pieces, load_rival_engine
from tensorldm.baselines.learned.runs import open_run
from tensorldm.bundle_files import Card
from tensorldm.errors import ConfigError, DataWarning
from tensorldm.reconstruct.engine import WorkingScan
from tensorldm.reconstruct.settings import Settings


@pytest.fixture
def engine_of(tmp_path):
    def make(name, **settings):
        _, run = open_run(name, "smoke", [])
        rival = build_rival(run.model, name=name)
        write_rival(tmp_path, rival.state_dict(), rival=rival, config=run.model, card=Card())
        return load_rival_engine(tmp_path, device=torch.device("cpu"), settings=Settings(steps=2, **settings))

    return make


@pytest.fixture
def scan(one_head) -> WorkingScan:
    return WorkingScan(
        dwi=one_head.dwi[0],
        bvals=one_head.bvals[0],
        directions=one_head.directions[0],
        mask=one_head.mask[0],
        voxel_size=(2.0, 2.0, 2.0),
        b0_scale=1.0,
        key="scan",
    )


def _small(engine, *, most_samples: int, most_slices: int):
    """The engine's memory holds no more than this; what was tried is noted."""
    tried, reconstruct = [], engine.rival.reconstruct

    def limited(*scan, sampling, **more):
        tried.append((sampling.num_samples, sampling.slices_at_once))
        if sampling.num_samples > most_samples or sampling.slices_at_once > most_slices:
            raise torch.OutOfMemoryError
        return reconstruct(*scan, sampling=sampling, **more)

    engine.rival.reconstruct = limited
    return tried


@pytest.mark.parametrize("name", ["ldm", "diffdti"])
def test_samples_that_do_not_fit_at_once_are_drawn_in_parts_and_are_the_same(name, engine_of, scan):
    whole = engine_of(name, samples=5).estimate(scan)
    small = engine_of(name, samples=5)
    tried = _small(small, most_samples=2, most_slices=32)
    with pytest.warns(DataWarning, match="Out of GPU memory with .*: going on with .* The result is the same"):
        parts = small.estimate(scan)
    assert [samples for samples, _ in tried] == [5, 3, 2, 2, 1]
    torch.testing.assert_close(parts, whole, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("name", ["superdti", "diffdti"])
def test_slices_that_do_not_fit_at_once_go_through_in_parts_and_give_the_same(name, engine_of, scan):
    drawing = {"samples": 1} if name == "diffdti" else {}
    whole = engine_of(name, **drawing).estimate(scan)
    small = engine_of(name, **drawing)
    tried = _small(small, most_samples=1, most_slices=5)
    with pytest.warns(DataWarning, match=r"1 sample and \d+ slices at once: going on with 1 sample and \d+ slices"):
        parts = small.estimate(scan)
    assert [slices for _, slices in tried] == [32, 16, 8, 4]
    torch.testing.assert_close(parts, whole, rtol=1e-5, atol=1e-8)


def test_the_smallest_piece_that_does_not_fit_on_a_gpu_goes_to_the_cpu(engine_of, scan):
    engine = engine_of("unet")
    engine.device = torch.device("meta")  # stands for a GPU
    reconstruct, places = engine.rival.reconstruct, []

    def limited(dwi, *more, **named):
        places.append(dwi.device.type)
        if dwi.device.type != "cpu":
            raise torch.OutOfMemoryError
        return reconstruct(dwi, *more, **named)

    engine.rival.reconstruct = limited
    with pytest.warns(DataWarning, match="going on with the CPU, which is slower"):
        found = engine.estimate(scan)
    assert places == ["meta", "cpu"]
    assert engine.device.type == "cpu"
    assert torch.isfinite(found).all()


def test_a_computer_without_memory_for_one_piece_is_told_so(engine_of, scan):
    engine = engine_of("unet")
    _small(engine, most_samples=0, most_slices=0)
    with pytest.raises(ConfigError, match="Out of memory with the smallest pieces"):
        engine.estimate(scan)


def test_pieces_halve_until_there_is_one_of_each():
    sizes, pieces = [], Pieces(3, 4)
    while pieces is not None:
        sizes.append((pieces.samples, pieces.slices))
        pieces = pieces.smaller
    assert sizes == [(3, 4), (2, 4), (1, 4), (1, 2), (1, 1)]
