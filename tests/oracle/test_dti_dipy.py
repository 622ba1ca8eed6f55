"""Fits and maps equal DIPY's on real scans."""

from functools import lru_cache
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest
import torch
from dipy.core.gradients import gradient_table
from dipy.reconst.dti import TensorModel, design_matrix
from dipy.reconst.dti import mode as dipy_mode

from tensorldm.components import CONVENTIONS
from tensorldm.dti import signal
from tensorldm.dti.eigen import eigenvalues
from tensorldm.dti.fit import fit_ols, fit_wls
from tensorldm.dti.maps import (
    angle_degrees,
    axial_diffusivity,
    colour_fa,
    fractional_anisotropy,
    mean_diffusivity,
    mode,
    principal_direction,
    radial_diffusivity,
)
from tensorldm.dti.packing import frobenius, pack

SCANS = ["philips_elition", "philips_nottingham", "siemens_prisma_supine", "uih_PA", "toshiba_oblique"]
CROP = 20
FITS = {"OLS": fit_ols, "WLS": fit_wls}
TOLERANCE = {torch.float64: 1e-5, torch.float32: 1e-4}


@lru_cache
def crop(folder: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The middle of the head: signals of voxels that are positive in every volume, b-values, directions."""
    image = nib.load(folder / "dwi.nii.gz")
    window = tuple(slice((n - CROP) // 2, (n + CROP) // 2) for n in image.shape[:3])
    signals = np.asarray(image.dataobj[window], dtype=np.float64).reshape(-1, image.shape[3])
    bvals = np.loadtxt(folder / "dwi.bval")
    directions = np.nan_to_num(np.loadtxt(folder / "dwi.bvec").T)
    directions[bvals <= signal.B0_MAX_S_PER_MM2] = 0
    return signals[(signals > 0).all(axis=1)], bvals, directions


def dipy_fit(method: str, scan: tuple[np.ndarray, np.ndarray, np.ndarray]) -> Any:
    signals, bvals, directions = scan
    table = gradient_table(bvals, bvecs=directions, b0_threshold=signal.B0_MAX_S_PER_MM2)
    return TensorModel(table, fit_method=method, return_S0_hat=True).fit(signals)


@pytest.mark.real
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("method", FITS)
@pytest.mark.parametrize("scan", SCANS)
def test_a_fit_of_a_real_scan_equals_dipys(scan, method, dtype, real_data):
    signals, bvals, directions = crop(real_data / "real" / scan)
    theirs = dipy_fit(method, (signals, bvals, directions))
    expected = pack(torch.from_numpy(theirs.quadratic_form))
    ours, s0 = FITS[method](torch.from_numpy(signals).to(dtype), torch.from_numpy(bvals), torch.from_numpy(directions))
    unclipped = eigenvalues(ours)[:, 2] > 1e-8
    assert unclipped.sum() > 2000
    relative = (frobenius(ours - expected) / frobenius(expected))[unclipped]
    assert relative.max() <= TOLERANCE[dtype]
    np.testing.assert_allclose(
        s0[unclipped], theirs.S0_hat[unclipped.numpy()], rtol=1e-3 if dtype.itemsize == 4 else 1e-8
    )


@pytest.mark.real
def test_the_maps_of_a_real_scan_equal_dipys(real_data):
    scan = crop(real_data / "real" / "philips_nottingham")
    theirs = dipy_fit("OLS", scan)
    ours, _ = fit_ols(*(torch.from_numpy(x) for x in scan))
    keep = eigenvalues(ours)[:, 2] > 1e-8
    for function, expected in (
        (mean_diffusivity, theirs.md),
        (axial_diffusivity, theirs.ad),
        (radial_diffusivity, theirs.rd),
        (fractional_anisotropy, theirs.fa),
        (colour_fa, np.abs(theirs.color_fa)),
    ):
        np.testing.assert_allclose(function(ours)[keep], expected[keep.numpy()], rtol=1e-6, atol=1e-9)
    shaped = keep & (fractional_anisotropy(ours) > 0.02)
    np.testing.assert_allclose(mode(ours)[shaped], dipy_mode(theirs.quadratic_form)[shaped.numpy()], rtol=0, atol=1e-6)
    linear = shaped & (mode(ours) > -0.9)
    v1 = torch.from_numpy(np.ascontiguousarray(theirs.evecs[..., 0]))
    assert angle_degrees(principal_direction(ours), v1)[linear].max() < 1e-4


def test_the_design_matrix_is_dipys_up_to_order_and_the_sign_of_the_last_column(generator):
    directions = torch.nn.functional.normalize(torch.randn(9, 3, generator=generator, dtype=torch.float64), dim=-1)
    directions[0] = 0
    bvals = torch.tensor([0.0] + [1000.0] * 4 + [2500.0] * 4, dtype=torch.float64)
    theirs = design_matrix(gradient_table(bvals.numpy(), bvecs=directions.numpy()))
    ours = signal.design_matrix(bvals, directions).numpy()
    np.testing.assert_allclose(ours[:, :6], theirs[:, list(CONVENTIONS["dipy"].to_package)], rtol=1e-12, atol=1e-9)
    np.testing.assert_array_equal(ours[:, 6], -theirs[:, 6])
