"""The reference tensor of a full series: ordinary least squares as in the paper, and better fits by option.

OLS and WLS are the package's own. NLLS and RESTORE are DIPY's, which clips negative eigenvalues; ours are kept.
Where HCP's gradient-nonlinearity field is given, the fit is corrected voxel by voxel [choice: grad-dev].
Axes: n volume, v voxel of the mask.
"""

from math import sqrt
from typing import Final

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from tensorldm.config.prepare import Fit
from tensorldm.dti.fit import fit_ols, fit_wls, undo_deviation
from tensorldm.dti.packing import pack
from tensorldm.dti.signal import B0_MAX_S_PER_MM2, predict_signal
from tensorldm.shapes import BVals, Directions

SIGNAL_FLOOR: Final = 1e-3
"""[choice: signal-floor] A signal counts as at least this share of the b=0 scale. Scanners and interpolation leave
zeros, and the logarithm of an absolute floor such as DIPY's 1e-4 would make a diffusivity of 15e-3 mm²/s of them."""
MAD_TO_SIGMA: Final = 1.4826

Signals = Float[Tensor, "v n"]
PackedVoxels = Float[Tensor, "v 6"]


def reference_tensor(
    signal: Signals,
    bvals: BVals,
    *,
    directions: Directions,
    fit: Fit,
    b0_scale: float,
    grad_dev: Float[Tensor, "v 9"] | None = None,
) -> PackedVoxels:
    """The tensor of every voxel, mm²/s, in the axes of ``directions`` (which are those of ``grad_dev`` too)."""
    floor = SIGNAL_FLOOR * b0_scale
    if fit == "ols":
        packed, _ = fit_ols(signal, bvals, directions, min_signal=floor)
    elif fit == "wls":
        packed, _ = fit_wls(signal, bvals, directions, min_signal=floor)
    else:
        packed = _fit_dipy(signal.clamp_min(floor), bvals, directions, fit)
    return packed if grad_dev is None else undo_deviation(packed, grad_dev)


def noise_level(signal: Signals, bvals: BVals, *, directions: Directions) -> float:
    """Robust standard deviation of the noise from the residuals of a weighted fit, in the signal's units."""
    packed, s0 = fit_wls(signal, bvals, directions)
    residuals = signal - predict_signal(packed, s0, bvals, directions)
    freedom = max(len(bvals) - 7, 1) / len(bvals)
    return MAD_TO_SIGMA * float(residuals.abs().median()) / sqrt(freedom)


def _fit_dipy(signal: Signals, bvals: BVals, directions: Directions, fit: Fit) -> PackedVoxels:
    from dipy.core.gradients import gradient_table  # slow to import, and only these two fits need it
    from dipy.reconst.dti import TensorModel

    table = gradient_table(bvals.numpy(), bvecs=directions.numpy(), b0_threshold=B0_MAX_S_PER_MM2)
    options = {"sigma": noise_level(signal, bvals, directions=directions)} if fit == "restore" else {}
    model = TensorModel(table, fit_method=fit.upper(), **options)  # type: ignore[no-untyped-call]  # DIPY has no types
    tensors = model.fit(signal.double().numpy()).quadratic_form
    return pack(torch.from_numpy(np.ascontiguousarray(tensors))).to(signal.dtype)
