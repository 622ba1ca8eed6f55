"""Virtual subjects of a real anatomy: fibres lead into each other under the gradients as given, and no others."""

import numpy as np
import pytest
import torch

from tensorldm.cohort.protocol import draw_protocol
from tensorldm.cohort.scanner import laid_out, scan
from tensorldm.cohort.settings import CohortSettings, ProtocolSettings
from tensorldm.cohort.templates import TemplateSource
from tensorldm.cohort.virtual import vary_head
from tensorldm.cohort.warp import mirror_anatomy
from tensorldm.dti.packing import MIRROR_SIGNS
from tensorldm.imaging.flips import check_flips
from tensorldm.imaging.gradients import GradientTable
from tensorldm.imaging.volume import Space, Volume

pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.fixture(scope="module")
def anatomy(real_data):
    return TemplateSource(real_data / "templates").load("niimath_tensor")


def flip_check(anatomy):
    protocol = draw_protocol(ProtocolSettings(b0s=(2, 2), directions=(20, 20)), torch.Generator().manual_seed(0))
    generators = (torch.Generator().manual_seed(seed) for seed in (1, 2))
    result = scan(anatomy, protocol, generator=next(generators), noise_generator=next(generators))
    data = laid_out(result.signal, result.mask).movedim(0, -1).contiguous().numpy()
    volume = Volume(data, Space(data.shape[:3], np.diag([*anatomy.voxel_size, 1.0])))
    gradients = GradientTable(protocol.bvals.numpy(), protocol.directions.numpy())
    return check_flips(volume, gradients, mask=anatomy.mask.numpy())


def test_a_warped_and_varied_head_keeps_its_fibres_in_line(anatomy):
    assert flip_check(vary_head(anatomy, CohortSettings(), seed=0, position=0)).status == "verified"


def test_a_mirrored_head_keeps_its_fibres_in_line(anatomy):
    assert flip_check(mirror_anatomy(anatomy)).status == "verified"


def test_a_mirror_that_forgot_the_tensors_signs_would_be_noticed(anatomy):
    mirrored = mirror_anatomy(anatomy)
    mirrored.tensors.mul_(torch.tensor(MIRROR_SIGNS)[:, None, None, None])
    assert flip_check(mirrored).status == "suspect"
