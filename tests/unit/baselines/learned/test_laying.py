"""A scan laid into the volume of training: what lies around the head, and how much of it, changes nothing."""

import json
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from tensorldm.baselines.learned.bundles import load_rival, read_rival_info, write_rival
from tensorldm.baselines.learned.catalogue import RIVALS, build_rival
from tensorldm.baselines.learned.laying import behind, laid_into
from tensorldm.baselines.learned.rival import Sampling
from tensorldm.baselines.learned.runs import open_run
from tensorldm.batch import VOLUMES
from tensorldm.bundle_files import Card
from tensorldm.errors import ConfigError, DataError

VOLUME = (16, 32, 32)
SURROUNDED = [name for name in RIVALS if name != "unet"]


def _noise(number: int, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(number))


def _rival(name: str):
    _, settings = open_run(name, "smoke", [])
    rival = build_rival(settings.model, name=name).eval()
    with torch.no_grad():
        for parameter in rival.parameters():  # layers that start at zero would hide what they read
            parameter.add_(0.02 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    return rival, settings


def _tensors(rival, batch):
    scan = {name: value for name, value in batch.scan.items() if name != "centre"}
    return rival.reconstruct(**scan, sampling=Sampling(_noise, num_steps=2))


def _moved(batch, around):
    return replace(batch, **{name: F.pad(getattr(batch, name), around) for name in VOLUMES})


def _cut(values, around):
    return F.pad(values, [-side for side in around])


SMALLER, LARGER = (-2, -1, -1, -2, -1, -1), (5, 12, 9, 8, 17, 4)
"""Voxels around z, y and x; the brain is the ball in the middle of a cube of 16 and keeps all of its voxels."""


@pytest.fixture
def ball(one_head):
    inside = F.pad(F.pad(one_head.mask, (-2,) * 6), (2,) * 6)
    return replace(
        one_head,
        **{name: getattr(one_head, name) * (inside[:, None] if name != "mask" else inside) for name in VOLUMES},
    )


@pytest.mark.parametrize("name", SURROUNDED)
def test_a_scan_and_the_same_scan_in_another_crop_give_the_same_tensor(name, ball):
    rival, _ = _rival(name)
    rival.volume = VOLUME
    with torch.no_grad():
        wanted = _tensors(rival, ball)
        for around in (SMALLER, LARGER):
            found = _tensors(rival, _moved(ball, around))
            torch.testing.assert_close(_cut(found, around), wanted, rtol=1e-4, atol=1e-8)
    assert wanted.abs().max() > 1e-5


def test_what_lies_around_the_head_does_matter_to_a_rival_that_is_not_laid_into_its_volume(ball):
    rival, _ = _rival("resvit")
    apart = (_cut(_tensors(rival, _moved(ball, LARGER)), LARGER) - _tensors(rival, ball)).abs().max()
    assert apart > 1e-5


def test_the_regression_is_not_laid_anywhere(ball):
    rival, _ = _rival("unet")
    before = _tensors(rival, ball)
    rival.volume = VOLUME
    assert torch.equal(_tensors(rival, ball), before)


def test_the_brain_lies_in_the_middle_of_the_volume_wherever_it_was_in_the_scan():
    mask = torch.zeros(1, 30, 20, 11, dtype=torch.bool)
    mask[:, 1:8, 10:20, 2:10] = True
    laid = laid_into(mask, (16, 16, 16), (4, 4, 4)).there(mask)
    assert laid.shape == (1, 16, 16, 16)
    for axis, (first, last) in enumerate([(5, 11), (3, 12), (4, 11)]):
        held = torch.nonzero(laid[0].any(dim=tuple({0, 1, 2} - {axis}))).flatten()
        assert (int(held[0]), int(held[-1])) == (first, last)


def test_a_brain_that_is_longer_than_the_volume_gets_the_next_multiple_and_loses_nothing():
    mask = torch.zeros(1, 30, 8, 8, dtype=torch.bool)
    mask[:, 5:24, 2:6, 2:6] = True
    laying = laid_into(mask, (16, 16, 16), (8, 8, 8))
    assert laying.there(mask).shape == (1, 24, 16, 16)
    assert torch.equal(laying.back(laying.there(mask)), mask)


def test_a_scan_without_brain_is_laid_by_its_own_middle():
    empty = torch.zeros(1, 6, 10, 16, dtype=torch.bool)
    laying = laid_into(empty, (16, 16, 16), (4, 4, 4))
    assert laying.around == ((5, 5), (3, 3), (0, 0))


def test_without_a_volume_a_scan_is_made_whole_multiples_behind():
    mask = torch.ones(1, 5, 8, 3, dtype=torch.bool)
    assert behind(mask, (4, 4, 1)).around == ((0, 3), (0, 0), (0, 0))


def test_a_bundle_of_a_run_has_the_volume_of_its_last_stage(tmp_path):
    method, settings = open_run("ldm", "smoke", ["stages.1.box=[8,8,8]", "stages.2.box=[24,16,16]"])
    work = method.prepare(settings, 1, start=None)
    work.write(tmp_path, work.model.state_dict(), card=Card())
    assert read_rival_info(tmp_path).volume == (24, 16, 16)
    assert load_rival(tmp_path)[0].volume == (24, 16, 16)


def _written(folder, **change):
    rival, settings = _rival("pix2pix")
    rival.volume = change.get("volume")
    write_rival(folder, rival.state_dict(), rival=rival, config=settings.model, card=Card())
    return folder


def test_a_bundle_of_before_volumes_were_kept_is_still_read(tmp_path):
    index = _written(tmp_path) / "bundle.json"
    values = json.loads(index.read_text())
    del values["volume"]
    index.write_text(json.dumps(values))
    assert load_rival(tmp_path)[0].volume is None


def test_a_bundle_with_a_volume_that_its_networks_cannot_halve_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"bundle.json: a volume of \[24, 30, 24\] voxels, where pix2pix needs"):
        load_rival(_written(tmp_path, volume=(24, 30, 24)))


def test_a_volume_that_no_memory_holds_is_refused_before_it_is_asked_for(tmp_path):
    index = _written(tmp_path, volume=VOLUME) / "bundle.json"
    index.write_text(json.dumps({**json.loads(index.read_text()), "volume": [16, 2**20, 32]}))
    with pytest.raises(DataError, match=r"damaged at 'volume.1'"):
        load_rival(tmp_path)
    with pytest.raises(ConfigError, match=r"box"):
        open_run("pix2pix", "smoke", ["stages.1.box=[16,16,1024]"])
