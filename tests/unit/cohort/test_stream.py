"""The stream is a pure function of seed and position, and its batches are what the paper's path gives."""

import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from tensorldm.cohort.scheme import draw_count
from tensorldm.cohort.settings import CohortSettings, ProtocolSettings, VariationSettings
from tensorldm.cohort.stream import VirtualStream
from tensorldm.dti.intensity import robust_b0_scale
from tensorldm.dti.maps import angle_degrees, fractional_anisotropy, principal_direction
from tensorldm.errors import ConfigError
from tensorldm.metrics.tensors import spd_violation_rate
from tensorldm.rng import generator

SMALL = CohortSettings(protocol=ProtocolSettings(b0s=(3, 3), directions=(20, 20)))


@pytest.fixture(scope="module")
def stream(helical_anatomy):
    other = replace(helical_anatomy, name="helix/1", source="helix/1", s0=2 * helical_anatomy.s0)
    return VirtualStream([helical_anatomy, other], SMALL)


def same(one, other):
    tensors = ("dwi", "bvals", "directions", "components", "clean", "mask", "voxel_size")
    return all(torch.equal(getattr(one, name), getattr(other, name)) for name in tensors)


def test_a_position_gives_the_same_subject_in_every_order_and_batch_size(stream, helical_anatomy):
    together = stream.batch(seed=1, position=4, size=3)
    fresh = VirtualStream(stream.anatomies, SMALL)
    alone = fresh.batch(seed=1, position=6, size=1)
    assert together.subjects[2] == alone.subjects[0]
    assert torch.equal(together.dwi[2:], alone.dwi)
    assert torch.equal(together.components[2:], alone.components)


def test_a_research_subject_is_the_one_it_was_before_there_were_other_scanners(helical_anatomy):
    """Sums of a subject as they were before schemes, artefacts and detail came in: off, they change nothing."""
    batch = VirtualStream([helical_anatomy], SMALL).batch(seed=5, position=3, size=1)
    assert int(batch.mask.sum()) == pytest.approx(7779, abs=3)
    assert float(batch.dwi.double().sum()) == pytest.approx(19332.34485, rel=1e-4)
    assert float(batch.clean.double().square().sum()) == pytest.approx(0.0178763521, rel=1e-4)
    assert float(batch.components.double().square().sum()) == pytest.approx(0.0178375510, rel=1e-4)


def test_the_global_generator_is_neither_read_nor_moved(stream):
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    first = stream.batch(seed=0, position=0, size=1)
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(6)
    assert same(first, stream.batch(seed=0, position=0, size=1))


def test_positions_and_seeds_differ_in_head_protocol_and_noise(stream):
    first, second = stream.batch(seed=0, position=0, size=1), stream.batch(seed=0, position=1, size=1)
    third = stream.batch(seed=1, position=0, size=1)
    for other in (second, third):
        assert not torch.equal(first.mask, other.mask)
        assert not torch.allclose(first.directions, other.directions)


def test_every_anatomy_is_used(stream):
    names = {stream.subject(seed=0, position=position).anatomy.name for position in range(12)}
    assert names == {"helix/0", "helix/1"}
    assert stream.num_sources == 2


def test_dwis_are_divided_by_one_robust_scale_and_zero_outside_the_mask(stream):
    batch = stream.batch(seed=2, position=0, size=2)
    for index in range(2):
        assert float(robust_b0_scale(batch.dwi[index, 0], batch.mask[index])) == pytest.approx(1, rel=1e-5)
        for volumes in (batch.dwi, batch.components, batch.clean):
            assert volumes[index][:, ~batch.mask[index]].abs().max() == 0
    assert (batch.bvals[:, 0] == 0).all()
    assert (batch.directions[:, 0] == 0).all()
    assert torch.allclose(batch.directions[:, 1:].norm(dim=-1), torch.ones(()), atol=1e-6)


def test_clean_and_reference_tensors_tell_of_the_same_fibres(stream):
    batch = stream.batch(seed=3, position=0, size=1)
    reference, clean = (volumes[0][:, batch.mask[0]].T for volumes in (batch.components, batch.clean))
    fibres = fractional_anisotropy(clean) > 0.5
    apart = angle_degrees(principal_direction(reference[fibres]), principal_direction(clean[fibres]))
    assert fibres.float().mean() > 0.3
    assert apart.median() < 5
    violations = [spd_violation_rate(volumes.movedim(1, -1), batch.mask) for volumes in (batch.clean, batch.components)]
    assert violations[0] <= violations[1] < 5


def test_the_input_shares_its_noise_with_the_reference(stream):
    """The ADC of the three input volumes correlates with the error of the reference: both hold the same noise."""
    batch = stream.batch(seed=4, position=0, size=1)
    inside = batch.mask[0]
    x = batch.directions[0, 1].abs().argmax()
    noisy = batch.components[0, x][inside] - batch.clean[0, x][inside]
    adc = -(batch.dwi[0, 1] / batch.dwi[0, 0].clamp(min=1e-6)).clamp(min=1e-6).log()[inside] / batch.bvals[0, 1]
    clean_adc = batch.clean[0, x][inside]
    error = adc - clean_adc
    assert torch.corrcoef(torch.stack([error, noisy]))[0, 1] > 0.15


def test_thick_slices_and_motion_come_out_on_the_working_grid(helical_anatomy):
    settings = CohortSettings(
        protocol=ProtocolSettings(
            b0s=(1, 1),
            directions=(12, 12),
            voxel_mm=(2.0, 2.0, 4.0),
            blur_mm=(1.0, 2.0),
            motion_degrees=0.3,
            motion_mm=0.2,
        )
    )
    batch = VirtualStream([helical_anatomy], settings).batch(seed=0, position=0, size=1)
    assert batch.dwi.shape == (1, 4, *helical_anatomy.s0.shape)
    inside = batch.clean[0][:, batch.mask[0]].T
    assert fractional_anisotropy(inside).median() > 0.3


def test_precision_set_for_training_is_left_as_it_was(stream):
    torch.set_float32_matmul_precision("medium")
    try:
        stream.batch(seed=0, position=0, size=1)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")


def test_the_stream_needs_neither_pydantic_nor_nibabel():
    code = (
        "import sys; import tensorldm.cohort.stream; "
        "sys.exit(any(name in sys.modules for name in ('pydantic', 'nibabel', 'dipy', 'yaml')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_lesions_can_be_asked_for_in_every_subject(helical_anatomy):
    settings = replace(SMALL, variation=VariationSettings(lesion_probability=1.0))
    plain = VirtualStream([helical_anatomy], replace(SMALL, variation=VariationSettings(lesion_probability=0.0)))
    lesioned = VirtualStream([helical_anatomy], settings)
    ours, theirs = (each.batch(seed=0, position=0, size=1) for each in (lesioned, plain))
    assert torch.equal(ours.mask, theirs.mask), "the other random parts stay as they were"
    assert not torch.equal(ours.clean, theirs.clean)


TINY_CLINICAL = (
    "shape=[20, 22, 20]",
    "voxel_mm=[8, 8, 8]",
    "artefacts.in_plane_mm=[8, 10]",
    "artefacts.slice_mm=[8, 12]",
)


@pytest.fixture(scope="module")
def clinical():
    from tensorldm.cohort.config import read_cohort
    from tensorldm.cohort.sources import open_source

    config = read_cohort("clinical", TINY_CLINICAL)
    source = open_source("procedural", "train", settings=config, subjects=1, bundles=())
    return VirtualStream.from_source(source, source.names, settings=config.settings)


def test_clinical_subjects_are_finite_whole_and_told_by_their_gradients(clinical):
    volumes = set()
    for position in range(0, 48 * 9, 48):
        batch = clinical.batch(seed=0, position=position, size=1)
        volumes.add(batch.dwi.shape[1])
        assert batch.bvals.shape == batch.dwi.shape[:2]
        for values in (batch.dwi, batch.components, batch.clean):
            assert torch.isfinite(values).all()
        assert (batch.bvals[:, 0] == 0).all()
        assert torch.allclose(batch.directions[:, 1:].norm(dim=-1), torch.ones(()), atol=1e-5)
        inside = batch.clean[0][:, batch.mask[0]].T
        assert 0.6e-3 < inside[:, :3].mean(dim=1).median() < 1.4e-3
    assert len(volumes) > 2, "some groups have more directions than three"


def test_scans_of_one_head_differ_in_protocol_and_noise_and_a_resumed_stream_gives_the_same(clinical):
    first, second, third = (clinical.subject(seed=1, position=position) for position in (10, 11, 12))
    assert torch.equal(first.anatomy.tensors, second.anatomy.tensors)
    assert not torch.equal(second.anatomy.mask, third.anatomy.mask)
    assert first.scan.protocol.snr != second.scan.protocol.snr
    fresh = VirtualStream(
        clinical.anatomies,
        replace(clinical.settings, detail=replace(clinical.settings.detail, sharpen=0.0, white_mm2_per_s=0.0)),
    )
    assert same(fresh.batch(seed=1, position=11, size=1), clinical.batch(seed=1, position=11, size=1))


def test_a_batch_over_two_groups_of_unequal_inputs_is_refused_with_the_mend(clinical):
    counts = [draw_count(clinical.settings.protocol.scheme, generator(0, "input", group)) for group in range(12)]
    border = next(group for group in range(1, 12) if counts[group] != counts[group - 1])
    with pytest.raises(ConfigError, match=r"protocol\.scheme\.group"):
        clinical.batch(seed=0, position=48 * border - 1, size=2)


def test_the_mean_of_the_b0s_is_quieter_than_the_first(helical_anatomy):
    from tensorldm.cohort.clinical import SchemeSettings

    noise = []
    for share in (0.0, 1.0):
        scheme = SchemeSettings(near_axes=1.0, any_triad=0.0, mean_b0=share, several=0.0)
        protocol = ProtocolSettings(b0s=(8, 8), directions=(12, 12), snr=(15.0, 15.0), scheme=scheme)
        stream = VirtualStream([helical_anatomy], CohortSettings(protocol=protocol))
        scan = stream.subject(seed=0, position=0).scan
        b0 = stream.batch(seed=0, position=0, size=1).dwi[0, 0][scan.mask]
        clean = scan.noiseless[:, 0]
        noise.append(float((b0 / b0.median() - clean / clean.median()).std()))
    assert noise[1] == pytest.approx(noise[0] / 8**0.5, rel=0.15)
