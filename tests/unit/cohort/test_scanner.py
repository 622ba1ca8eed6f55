"""The scanner's signal, noise, voxels and motion against closed forms and DIPY."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from dipy.core.gradients import gradient_table
from dipy.sims.voxel import multi_tensor

from tensorldm.cohort.axes import along_axes, averaging, gaussian, spline
from tensorldm.cohort.directions import spread_directions
from tensorldm.cohort.measurement import measure
from tensorldm.cohort.protocol import Protocol, hcp_style, shell, sparse_volumes
from tensorldm.cohort.scanner import add_noise, brain_signal, expected_magnitude, noise_level, scan
from tensorldm.dti.fit import fit_ols
from tensorldm.dti.maps import angle_degrees, fractional_anisotropy, principal_direction

INF = math.inf


def protocol_of(directions=30, b0s=2, **changes) -> Protocol:
    bvals, table = shell(spread_directions(directions), b0s=b0s, bval=1000.0)
    return Protocol(bvals=bvals, directions=table, sparse=sparse_volumes(bvals, table), **changes)


def scanned(anatomy, protocol, seed=0):
    return scan(
        anatomy,
        protocol,
        generator=torch.Generator().manual_seed(seed),
        noise_generator=torch.Generator().manual_seed(seed),
    )


def test_the_signal_of_two_crossing_compartments_equals_dipys(helical_anatomy):
    bvals, directions = hcp_style()
    first, second = torch.tensor([1.0, 0.0, 0.0]), torch.tensor([0.5, math.sqrt(0.75), 0.0])
    values = (1.7e-3, 0.3e-3, 0.3e-3)
    packed = [
        0.3e-3 * torch.tensor([1.0, 1, 1, 0, 0, 0])
        + 1.4e-3 * torch.stack([v[0] ** 2, v[1] ** 2, v[2] ** 2, v[0] * v[1], v[0] * v[2], v[1] * v[2]])
        for v in (first, second)
    ]
    mask = helical_anatomy.mask
    anatomy = replace(
        helical_anatomy,
        tensors=torch.stack(packed)[:, :, None, None, None] * mask,
        fractions=torch.tensor([0.7, 0.3])[:, None, None, None] * mask,
        s0=2.0 * mask,
    )
    found = brain_signal(anatomy, bvals, directions)
    table = gradient_table(bvals.numpy(), bvecs=directions.numpy(), b0_threshold=0)
    expected, _ = multi_tensor(
        table, np.array([values, values]), S0=2.0, angles=[(90, 0), (90, 60)], fractions=[70, 30], snr=None
    )
    assert np.allclose(found[0].numpy(), expected, rtol=1e-5)
    assert torch.allclose(found, found[:1].expand_as(found))


def test_rician_noise_has_the_moments_of_the_closed_form(generator):
    sigma, signal = 0.5, 1.0
    noisy = add_noise(torch.full((400_000,), signal), sigma, coils=1, generator=generator).double()
    assert float((noisy**2).mean()) == pytest.approx(signal**2 + 2 * sigma**2, rel=0.005)
    # Mean of a Rician: σ√(π/2) L(-s²/2σ²) with the Laguerre function of order 1/2.
    half = signal**2 / (4 * sigma**2)
    laguerre = (1 + 2 * half) * torch.special.i0e(torch.tensor(half)) + 2 * half * torch.special.i1e(torch.tensor(half))
    assert float(noisy.mean()) == pytest.approx(sigma * math.sqrt(math.pi / 2) * float(laguerre), rel=0.005)


@pytest.mark.parametrize("coils", [1, 4])
def test_noise_alone_is_chi_distributed_with_two_degrees_of_freedom_per_coil(generator, coils):
    noise = add_noise(torch.zeros(200_000), 0.3, coils=coils, generator=generator).double()
    mean = 0.3 * math.sqrt(2) * math.gamma(coils + 0.5) / math.gamma(coils)
    assert float(noise.mean()) == pytest.approx(mean, rel=0.005)
    assert float((noise**2).mean()) == pytest.approx(2 * coils * 0.3**2, rel=0.01)


def test_the_snr_is_that_of_white_matter_at_b0(helical_anatomy):
    anatomy = replace(helical_anatomy, s0=7.0 * helical_anatomy.s0)
    result = scanned(anatomy, protocol_of(directions=6, b0s=20, snr=25.0))
    white = (anatomy.tissue[2] > 0.9)[anatomy.mask]
    b0 = result.signal[white][:, result.protocol.bvals == 0]
    assert float(b0.mean() / b0.std(dim=1).mean()) == pytest.approx(25.0, rel=0.05)
    assert noise_level(anatomy, INF) == 0


def test_without_noise_the_fit_returns_the_tensor_where_a_voxel_holds_one_compartment(helical_anatomy):
    result = scanned(helical_anatomy, protocol_of(snr=INF))
    packed, s0 = fit_ols(result.signal, result.protocol.bvals, result.protocol.directions)
    pure = (helical_anatomy.fractions[0] > 0.99999)[helical_anatomy.mask]
    expected = helical_anatomy.tensors[0][:, helical_anatomy.mask].T
    assert pure.sum() > 5000
    assert torch.allclose(packed[pure], expected[pure], atol=1e-7)
    assert torch.allclose(s0[pure], torch.ones(()), rtol=1e-4)


def test_where_compartments_mix_the_fitted_tensor_is_less_anisotropic_than_the_fibre(helical_anatomy):
    result = scanned(helical_anatomy, protocol_of(snr=INF))
    packed, _ = fit_ols(result.signal, result.protocol.bvals, result.protocol.directions)
    mixed = ((helical_anatomy.fractions[0] - 0.5).abs() < 0.3)[helical_anatomy.mask]
    assert (
        fractional_anisotropy(packed[mixed]).max()
        < 0.85 * fractional_anisotropy(helical_anatomy.tensors[0][:, helical_anatomy.mask].T).min()
    )


def test_thick_slices_average_the_signal_and_not_the_tensors(helical_anatomy):
    result = scanned(helical_anatomy, protocol_of(snr=INF, voxel_size=(2.0, 2.0, 4.0)))
    assert result.mask.shape == (30, 34, 16)
    fine = scanned(helical_anatomy, protocol_of(snr=INF))
    volumes = torch.zeros(*fine.mask.shape, fine.signal.shape[1])
    volumes[fine.mask] = fine.signal
    whole = (fine.mask[..., ::2] & fine.mask[..., 1::2])[result.mask]
    expected = ((volumes[:, :, ::2] + volumes[:, :, 1::2]) / 2)[result.mask]
    assert whole.sum() > 3000
    assert torch.allclose(result.signal[whole], expected[whole], rtol=1e-4)


def test_thin_slices_with_gaps_see_only_their_own_slab():
    matrix = averaging((10, 2.0), (5, 4.0), width=2.0)
    inner = torch.zeros(5, 10, dtype=torch.float64)
    for row in range(5):
        inner[row, 2 * row] = inner[row, 2 * row + 1] = 0.5
    assert torch.allclose(matrix, inner)


def test_averaging_onto_the_same_grid_changes_nothing(generator):
    volumes = torch.rand(2, 7, 8, 9, generator=generator)
    same = [averaging((n, 2.0), (n, 2.0), width=2.0) for n in (7, 8, 9)]
    assert torch.allclose(along_axes(volumes, tuple(same)), volumes)


def test_the_point_spread_has_the_width_asked_for():
    kernel = gaussian(61, 1.0, fwhm=8.0)[30]
    positions = torch.arange(61, dtype=torch.float64) - 30
    sigma = float((kernel * positions**2).sum().sqrt())
    assert float(kernel.sum()) == pytest.approx(1)
    assert sigma * 2 * math.sqrt(2 * math.log(2)) == pytest.approx(8.0, rel=1e-3)


def test_splines_reproduce_constants_and_lines():
    basis = spline(40, 2.0, spacing=11.0)
    controls = (torch.arange(basis.shape[1], dtype=torch.float64) - (basis.shape[1] - 1) / 2) * 11.0
    assert torch.allclose(basis.sum(dim=1), torch.ones(40, dtype=torch.float64))
    assert torch.allclose(basis @ controls, (torch.arange(40, dtype=torch.float64) - 19.5) * 2.0)


def test_blur_lowers_anisotropy_where_fibres_curve_and_keeps_the_rim_bright(helical_anatomy):
    sharp = measure(scanned(helical_anatomy, protocol_of(snr=INF)), shape=(30, 34, 32), voxel_size=(2.0, 2.0, 2.0))
    soft = measure(
        scanned(helical_anatomy, protocol_of(snr=INF, blur_fwhm=6.0)), shape=(30, 34, 32), voxel_size=(2.0, 2.0, 2.0)
    )
    both = sharp.mask & soft.mask
    fa = [fractional_anisotropy(each.clean[:, both].T).mean() for each in (sharp, soft)]
    assert fa[1] < fa[0] - 0.01
    assert soft.dwi[0][both].min() > 0.95


def test_a_turned_head_shows_turned_fibres_because_the_gradients_stay(helical_anatomy):
    """Scan a head that turns between volumes: a fit that ignores motion is worse than one of a still head."""
    still = scanned(helical_anatomy, protocol_of(snr=INF))
    moved = scanned(helical_anatomy, protocol_of(snr=INF, motion_degrees=3.0, motion_mm=0.5))
    assert torch.equal(moved.mask, still.mask)
    assert torch.allclose(moved.signal[:, 0], still.signal[:, 0], atol=1e-4), "the first volume defines the pose"
    inner = (helical_anatomy.fractions[0] > 0.99)[helical_anatomy.mask]
    table = (still.protocol.bvals, still.protocol.directions)
    fits = [fit_ols(each.signal[inner], *table)[0] for each in (still, moved)]
    truth = helical_anatomy.tensors[0][:, helical_anatomy.mask].T[inner]
    apart = [angle_degrees(principal_direction(fit), principal_direction(truth)).mean() for fit in fits]
    assert apart[0] < 0.1
    assert 0.2 < apart[1] < 10


def test_a_head_turned_as_a_whole_gives_the_signal_of_the_turned_anatomy(helical_anatomy):
    """One turn for all volumes equals warping the anatomy by that turn: rotation of gradients and image agree."""
    from tensorldm.cohort import displacement, scanner
    from tensorldm.cohort.deformation import pull_back
    from tensorldm.cohort.draws import rotation
    from tensorldm.cohort.warp import velocity_grid, warp_anatomy

    turn = rotation(torch.tensor([0.1, 0.15, -0.2]))
    poses = displacement.Poses(turn.expand(32, 3, 3), torch.zeros(32, 3, dtype=torch.float64))
    protocol = protocol_of(snr=INF)
    seen = displacement.seen_directions(protocol.directions, poses)
    volumes = scanner.laid_out(brain_signal(helical_anatomy, protocol.bvals, seen), helical_anatomy.mask)
    signal, mask = displacement.displaced(
        volumes, helical_anatomy.mask, poses=poses, voxel_size=helical_anatomy.voxel_size
    )
    moved = scanner.laid_out(signal, mask)

    shape, voxel_size = velocity_grid(helical_anatomy)
    deformation = pull_back(
        torch.cat([turn.T, torch.zeros(3, 1)], dim=1),
        torch.zeros(3, *shape),
        velocity_voxel_size=voxel_size,
        shape=(30, 34, 32),
        voxel_size=helical_anatomy.voxel_size,
    )
    warped = warp_anatomy(helical_anatomy, deformation)
    expected = scanner.laid_out(brain_signal(warped, protocol.bvals, protocol.directions), warped.mask)
    inner = warped.mask & helical_anatomy.mask & (warped.fractions[0] > 0.99)
    assert (moved - expected)[:, inner].abs().mean() < 0.01
    against_still = (volumes - expected)[:, inner].abs().mean()
    assert against_still > 5 * (moved - expected)[:, inner].abs().mean()


def test_a_scan_of_other_voxels_is_measured_on_the_working_grid(helical_anatomy):
    thick = scanned(helical_anatomy, protocol_of(snr=INF, voxel_size=(2.5, 2.5, 3.0)))
    measured = measure(thick, shape=(30, 34, 32), voxel_size=(2.0, 2.0, 2.0))
    inner = measured.mask & (helical_anatomy.fractions[0] > 0.99)
    apart = angle_degrees(
        principal_direction(measured.clean[:, inner].T), principal_direction(helical_anatomy.tensors[0][:, inner].T)
    )
    assert inner.sum() > 5000
    assert apart.median() < 2


def test_the_sparse_input_is_four_of_the_volumes_of_the_reference(helical_anatomy):
    result = scanned(helical_anatomy, protocol_of(snr=20.0))
    measured = measure(result, shape=(30, 34, 32), voxel_size=(2.0, 2.0, 2.0))
    assert torch.equal(measured.dwi[:, measured.mask].T, result.signal[:, list(result.protocol.sparse)])
    assert not torch.equal(measured.reference, measured.clean)


def test_deviating_gradients_bend_the_plain_fit_and_the_fit_that_knows_them_is_exact(helical_anatomy):
    result = scanned(helical_anatomy, protocol_of(snr=INF, nonlinearity=0.3))
    measured = measure(result, shape=(30, 34, 32), voxel_size=(2.0, 2.0, 2.0))
    pure = helical_anatomy.fractions[0] > 0.99999
    truth = helical_anatomy.tensors[0][:, pure]
    plain, _ = fit_ols(result.signal, result.protocol.bvals, result.protocol.directions)
    error = (plain.T[:, pure[helical_anatomy.mask]] - truth).abs().max()
    assert error > 5e-5
    assert torch.allclose(measured.clean[:, pure], truth, atol=5e-7)


def test_noise_of_an_interpolating_scanner_is_alike_in_neighbours_and_the_tensor_stays(helical_anatomy):
    plain = scanned(helical_anatomy, protocol_of(snr=20.0))
    soft = scanned(helical_anatomy, protocol_of(snr=20.0, smoothing_fwhm=3.0))
    assert torch.equal(plain.mask, soft.mask)

    def noise(result):
        volumes = torch.zeros(result.mask.shape)
        volumes[result.mask] = result.signal[:, 0] - result.noiseless[:, 0]
        pair = torch.stack(
            [volumes[1:][result.mask[1:] & result.mask[:-1]], volumes[:-1][result.mask[1:] & result.mask[:-1]]]
        )
        return float(pair.std()), float(torch.corrcoef(pair)[0, 1])

    (loud, apart), (quiet, alike) = noise(plain), noise(soft)
    assert abs(apart) < 0.05
    assert alike > 0.3
    assert quiet < 0.75 * loud
    inner = (helical_anatomy.fractions[0] > 0.99)[helical_anatomy.mask]
    assert torch.allclose(soft.noiseless[inner, 0], plain.noiseless[inner, 0], rtol=0.02)


@pytest.mark.parametrize("coils", [1, 2, 4])
def test_the_expected_magnitude_is_the_mean_logarithm_of_noisy_ones(coils, generator):
    signal = torch.tensor([0.0, 0.5, 1.0, 2.0, 4.0, 10.0])
    noisy = add_noise(signal.expand(200_000, -1), 0.7, coils=coils, generator=generator)
    found = expected_magnitude(signal, 0.7, coils=coils)
    torch.testing.assert_close(found.log(), noisy.log().mean(dim=0), atol=0.022, rtol=0)
    assert torch.equal(expected_magnitude(signal, 0.0, coils=coils), signal)


@pytest.mark.parametrize("mean_b0", [False, True])
def test_a_reference_of_shared_noise_is_the_mean_over_the_noise_that_the_input_does_not_hold(helical_anatomy, mean_b0):
    protocol = protocol_of(directions=12, snr=20.0, mean_b0=mean_b0)
    once = scanned(helical_anatomy, protocol)
    x, y, z = once.mask.shape
    grid = {"shape": (x, y, z), "voxel_size": once.voxel_size}
    shared = torch.zeros(14, dtype=torch.bool)
    shared[list(protocol.sparse)] = True
    if mean_b0:
        shared |= protocol.bvals == 0
    assert 4 <= int(shared.sum()) < 14
    found = measure(once, **grid, noise="shared")
    inside = found.mask & (laid(once.noiseless.min(dim=1).values, once.mask) > 4 * once.sigma)
    references = []
    for seed in range(1, 65):
        noisy = torch.where(shared, once.signal, scanned(helical_anatomy, protocol, seed=seed).signal)
        references.append(measure(replace(once, signal=noisy), **grid).reference[:, inside])
    mean, spread = torch.stack(references).mean(dim=0), torch.stack(references).std(dim=0)
    off = (found.reference[:, inside] - mean) / (spread / 8)
    assert float(off.square().mean()) == pytest.approx(1.0, abs=0.2), "as far from it as 64 draws let it be"
    assert float(off.mean(dim=1).abs().max()) < 0.1
    assert torch.equal(found.dwi, measure(once, **grid).dwi)
    assert torch.equal(found.clean, measure(once, **grid).clean)


def laid(values, mask):
    volume = torch.zeros(mask.shape)
    volume[mask] = values
    return volume
