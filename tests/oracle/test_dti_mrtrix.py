"""Maps and fits equal MRtrix3's."""

import subprocess
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import torch

from tensorldm.dti.fit import fit_ols
from tensorldm.dti.maps import (
    angle_degrees,
    axial_diffusivity,
    fractional_anisotropy,
    mean_diffusivity,
    mode,
    principal_direction,
    radial_diffusivity,
)
from tensorldm.dti.packing import frobenius, pack
from tensorldm.dti.signal import predict_signal

pytestmark = pytest.mark.mrtrix
GRID = (6, 5, 4)


def positive_tensors(generator: torch.Generator) -> torch.Tensor:
    frames = torch.linalg.qr(torch.randn(*GRID, 3, 3, generator=generator, dtype=torch.float64))[0]
    values = 1e-4 + 2e-3 * torch.rand(*GRID, 3, generator=generator, dtype=torch.float64)
    values[0] = values[0, ..., :1]  # one slice of spheres
    values[1, ..., 2] = values[1, ..., 1]
    return pack((frames * values.unsqueeze(-2)) @ frames.mT)


def write(path: Path, array: torch.Tensor) -> Path:
    """Image axes that are the scanner's, so that no frame is involved."""
    nib.Nifti1Image(array.numpy(), np.diag([2.0, 2.0, 2.0, 1.0])).to_filename(path)
    return path


def run(*command: str | Path) -> None:
    subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True)


def read(path: Path) -> torch.Tensor:
    return torch.from_numpy(np.asarray(nib.load(path).dataobj, dtype=np.float64))


def test_maps_equal_those_of_tensor2metric(tmp_path, generator):
    tensors = positive_tensors(generator)
    image = write(tmp_path / "tensor.nii", tensors)
    names = ("fa", "adc", "ad", "rd", "vector")
    outputs = {name: tmp_path / f"{name}.nii" for name in names}
    options = [part for name in names for part in (f"-{name}", outputs[name])]
    run("tensor2metric", image, *options, "-modulate", "none", "-nthreads", "0", "-quiet")
    for name, function in (
        ("fa", fractional_anisotropy),
        ("adc", mean_diffusivity),
        ("ad", axial_diffusivity),
        ("rd", radial_diffusivity),
    ):
        torch.testing.assert_close(function(tensors), read(outputs[name]), rtol=1e-5, atol=3e-7)
    shaped = fractional_anisotropy(tensors) > 0.05
    linear = shaped & (mode(tensors) > -0.9)
    assert linear.sum() > 50
    assert angle_degrees(principal_direction(tensors), read(outputs["vector"]))[linear].max() < 0.01


def test_ordinary_least_squares_equals_that_of_dwi2tensor(tmp_path, generator):
    tensors = positive_tensors(generator)
    directions = torch.nn.functional.normalize(torch.randn(20, 3, generator=generator, dtype=torch.float64), dim=-1)
    directions[:2] = 0
    bvals = torch.tensor([0.0] * 2 + [1000.0] * 18, dtype=torch.float64)
    signal = predict_signal(tensors, torch.full(GRID, 800.0, dtype=torch.float64), bvals, directions)
    signal = signal + 20 * torch.randn(signal.shape, generator=generator, dtype=torch.float64)
    series = write(tmp_path / "dwi.nii", signal)
    table = tmp_path / "grad.b"
    np.savetxt(table, torch.cat((directions, bvals[:, None]), dim=1).numpy(), fmt="%.12g")
    output = tmp_path / "fit.nii"
    run("dwi2tensor", "-ols", "-iter", "0", "-grad", table, series, output, "-nthreads", "0", "-quiet")
    ours, _ = fit_ols(signal, bvals, directions)
    assert (frobenius(ours - read(output)) / frobenius(ours)).max() < 1e-4
