"""Every converter on a head whose fibres are helices: a field that no mirror image of itself resembles.

The files are written here by the definition of each frame, on grids with either handedness and permuted axes.
"""

import gzip
import io
from pathlib import Path

import nibabel
import numpy as np
import pytest
import scipy.io
import torch

from tensorldm.cohort.anatomy import Anatomy
from tensorldm.cohort.procedural.coordinates import grid_points
from tensorldm.cohort.templates import GridChoice, TemplateSource
from tensorldm.dti.maps import angle_degrees, fractional_anisotropy, mean_diffusivity, principal_direction
from tensorldm.dti.signal import predict_signal
from tensorldm.errors import DataError

AXIAL, RADIAL = 1.6e-3, 0.4e-3
RADIUS_MM, PITCH_MM = 26.0, 14.0
GRID = GridChoice(shape=(36, 36, 36), voxel_mm=2.0)
AFFINES = {
    "LAS": np.diag([-2.5, 2.5, 2.5]),
    "RAS": np.diag([2.5, 2.5, 2.5]),
    "permuted": np.array([[0.0, 0.0, 2.5], [-2.5, 0.0, 0.0], [0.0, 2.5, 0.0]]),
    "working size": np.diag([-2.0, -2.0, 2.0]),
}


class Head:
    """A ball of helices on a grid with the given axes, in world terms and in each file frame."""

    def __init__(self, linear: np.ndarray) -> None:
        side = np.abs(linear).sum(axis=0)
        self.shape = tuple(int(n) for n in np.ceil(2 * (RADIUS_MM + 8) / side))
        self.affine = np.eye(4)
        self.affine[:3, :3] = linear
        self.affine[:3, 3] = -linear @ (np.array(self.shape) - 1) / 2
        indices = np.stack(np.meshgrid(*map(np.arange, self.shape), indexing="ij"), axis=-1)
        world = indices @ linear.T + self.affine[:3, 3]
        self.mask = np.linalg.norm(world, axis=-1) < RADIUS_MM
        self.directions = helix(torch.from_numpy(world)).numpy()
        self.axes = linear / side

    def in_image_axes(self, vectors: np.ndarray) -> np.ndarray:
        return vectors @ self.axes

    def in_fsl_frame(self, vectors: np.ndarray) -> np.ndarray:
        mirror = np.array([-1.0 if np.linalg.det(self.axes) > 0 else 1.0, 1.0, 1.0])
        return self.in_image_axes(vectors) * mirror

    def write(self, path: Path, data: np.ndarray) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        masked = data * self.mask.reshape(*self.shape, *(1,) * (data.ndim - 3))
        nibabel.save(nibabel.Nifti1Image(masked.astype(np.float32), self.affine), path)


def helix(positions: torch.Tensor) -> torch.Tensor:
    x, y, _ = positions.unbind(dim=-1)
    return torch.nn.functional.normalize(torch.stack([-y, x, torch.full_like(x, PITCH_MM)], dim=-1), dim=-1)


def outer(vectors: np.ndarray) -> np.ndarray:
    return RADIAL * np.eye(3) + (AXIAL - RADIAL) * vectors[..., :, None] * vectors[..., None, :]


def true_fa() -> float:
    values = np.array([AXIAL, RADIAL, RADIAL])
    return float(np.sqrt(1.5 * ((values - values.mean()) ** 2).sum() / (values**2).sum()))


def median_angle(anatomy: Anatomy) -> float:
    """Between v1 and the helices at the same place; the brain's middle is the helices' axis."""
    expected = helix(grid_points(GRID.shape, GRID.voxel_size))
    inner = torch.linalg.vector_norm(grid_points(GRID.shape, GRID.voxel_size), dim=-1) < RADIUS_MM - 9
    assert anatomy.mask[inner].float().mean() > 0.99
    found = principal_direction(anatomy.components[0].movedim(0, -1)[inner])
    return angle_degrees(found, expected[inner]).median().item()


def check_whole(anatomy: Anatomy) -> None:
    assert anatomy.mask.shape == GRID.shape
    for shares in (anatomy.fractions, anatomy.tissue):
        assert (shares.sum(dim=0)[anatomy.mask] - 1).abs().max() < 1e-4
        assert shares[:, ~anatomy.mask].abs().max() == 0
    middle = anatomy.mask.nonzero().float().mean(dim=0)
    torch.testing.assert_close(middle, (torch.tensor(GRID.shape) - 1) / 2, atol=0.75, rtol=0)


def load(folder: Path, **options: object) -> Anatomy:
    return TemplateSource(folder, grid=GRID, **options).load("case")


@pytest.fixture(params=AFFINES)
def head(request: pytest.FixtureRequest) -> Head:
    return Head(AFFINES[request.param])


def test_a_tensor_in_fsls_frame_keeps_its_fibres(head, tmp_path):
    matrices = outer(head.in_fsl_frame(head.directions))
    rows, columns = np.triu_indices(3)
    head.write(tmp_path / "case" / "tensor.nii.gz", matrices[..., rows, columns])
    anatomy = load(tmp_path)
    check_whole(anatomy)
    assert median_angle(anatomy) < 3
    packed = anatomy.components[0].movedim(0, -1)[anatomy.tissue[2] > 0.99]
    assert mean_diffusivity(packed).median().item() == pytest.approx((AXIAL + 2 * RADIAL) / 3, rel=0.02)
    assert fractional_anisotropy(packed).median().item() == pytest.approx(true_fa(), abs=0.03)


def test_fa_and_principal_directions_become_the_axially_symmetric_tensor(head, tmp_path):
    head.write(tmp_path / "case" / "dti_FA.nii.gz", np.full(head.shape, true_fa()))
    head.write(tmp_path / "case" / "dti_MD.nii.gz", np.full(head.shape, (AXIAL + 2 * RADIAL) / 3))
    head.write(tmp_path / "case" / "dti_V1.nii.gz", head.in_fsl_frame(head.directions))
    head.write(tmp_path / "case" / "refb0.nii.gz", np.full(head.shape, 700.0))
    anatomy = load(tmp_path)
    check_whole(anatomy)
    assert median_angle(anatomy) < 3
    packed = anatomy.components[0].movedim(0, -1)[anatomy.tissue[2] > 0.99]
    assert mean_diffusivity(packed).median().item() == pytest.approx((AXIAL + 2 * RADIAL) / 3, rel=0.02)
    assert fractional_anisotropy(packed).median().item() == pytest.approx(true_fa(), abs=0.03)
    assert anatomy.s0[anatomy.mask].median() == 1


def test_peaks_in_the_scanners_frame_keep_their_crossings_and_the_measured_fa(head, tmp_path):
    up = np.zeros_like(head.directions)
    up[..., 2] = 1.0
    second = np.cross(head.directions, up)
    second /= np.maximum(np.linalg.norm(second, axis=-1, keepdims=True), 1e-6)
    peaks = np.concatenate([head.directions, 0.4 * second, np.zeros_like(up)], axis=-1)
    head.write(tmp_path / "case" / "peaks.nii.gz", peaks)
    head.write(tmp_path / "case" / "FA.nii.gz", np.full(head.shape, 0.45))
    member = np.ones(head.shape)
    head.write(tmp_path / "case" / "bundles" / "CST_left.nii.gz", member)
    head.write(tmp_path / "case" / "orientations" / "CST_left.nii.gz", head.directions)
    anatomy = load(tmp_path)
    check_whole(anatomy)
    assert median_angle(anatomy) < 3
    solid = anatomy.fractions[-1] == 0
    fa = fractional_anisotropy(anatomy.components[0].movedim(0, -1))
    assert (fa[solid & anatomy.mask] - 0.45).abs().quantile(0.95) < 0.01
    first, other = anatomy.fractions[0][solid & anatomy.mask], anatomy.fractions[1][solid & anatomy.mask]
    assert (other / first).median().item() == pytest.approx(0.4, abs=0.02)
    bundle = anatomy.bundles["CST_left"]
    expected = helix(grid_points(GRID.shape, GRID.voxel_size))
    inner = bundle.mask & (torch.linalg.vector_norm(grid_points(GRID.shape, GRID.voxel_size), dim=-1) < RADIUS_MM - 9)
    assert angle_degrees(bundle.directions[:, inner].T, expected[inner]).median() < 3
    torch.testing.assert_close(torch.linalg.vector_norm(bundle.directions, dim=0), bundle.mask.float())


def _write_fib(folder: Path, head: Head, *, missing: str = "") -> None:
    """A fibre template: directions as indices into a table, along the array's own (LPS) axes."""
    folder.mkdir()
    along = head.in_image_axes(head.directions)[head.mask]
    table = np.concatenate([along, -along])
    content = {"dimension": np.array([head.shape]), "voxel_size": np.array([[2.0, 2.0, 2.0]]), "odf_vertices": table.T}
    for i, qa in enumerate((0.6, 0.0, 0.0)):
        index = np.zeros(head.shape, dtype=np.int32)
        index[head.mask] = np.arange(len(along))
        content[f"index{i}"] = index.reshape(-1, head.shape[2], order="F")
        content[f"fa{i}"] = (qa * head.mask).astype(np.float32).reshape(-1, head.shape[2], order="F")
    content["iso"] = (0.8 * head.mask).astype(np.float32).reshape(-1, head.shape[2], order="F")
    content.pop(missing, None)
    stream = io.BytesIO()
    scipy.io.savemat(stream, content, format="4")
    (folder / "template.fib.gz").write_bytes(gzip.compress(stream.getvalue()))


def test_a_fibre_template_in_lps_keeps_its_fibres(tmp_path):
    _write_fib(tmp_path / "case", Head(AFFINES["working size"]))
    anatomy = load(tmp_path)
    check_whole(anatomy)
    assert median_angle(anatomy) < 3
    fa = fractional_anisotropy(anatomy.components[0].movedim(0, -1)[anatomy.mask])
    assert 0.6 < fa.median() < 0.8


def test_a_raw_series_becomes_its_own_fit(head, tmp_path):
    generator = torch.Generator().manual_seed(0)
    gradients = torch.nn.functional.normalize(torch.randn(20, 3, generator=generator).double(), dim=-1)
    gradients = torch.cat([torch.zeros(2, 3).double(), gradients])
    bvals = torch.cat([torch.zeros(2), torch.full((20,), 1000.0)]).double()
    matrices = torch.from_numpy(outer(head.directions))
    rows, columns = [0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]
    signal = predict_signal(
        matrices[..., rows, columns], torch.full(head.shape, 800.0).double(), bvals, gradients
    ).numpy()
    head.write(tmp_path / "case" / "dwi.nii.gz", signal)
    head.write(tmp_path / "case" / "mask.nii.gz", np.ones(head.shape))
    np.savetxt(tmp_path / "case" / "dwi.bval", bvals.numpy()[None], fmt="%g")
    np.savetxt(tmp_path / "case" / "dwi.bvec", head.in_fsl_frame(gradients.numpy()).T, fmt="%.6f")
    anatomy = load(tmp_path)
    check_whole(anatomy)
    assert median_angle(anatomy) < 5  # the brain's middle lies half a voxel beside the grid's: 1 mm, 4°
    packed = anatomy.components[0].movedim(0, -1)[anatomy.tissue[2] > 0.99]
    assert fractional_anisotropy(packed).median().item() == pytest.approx(true_fa(), abs=0.05)
    assert anatomy.s0[anatomy.mask].median().item() == pytest.approx(1, abs=0.02)


def test_a_brain_cut_by_the_field_of_view_ends_there(tmp_path):
    head = Head(AFFINES["LAS"])
    matrices = outer(head.in_fsl_frame(head.directions))[:, :, head.shape[2] // 2 :]
    rows, columns = np.triu_indices(3)
    data = matrices[..., rows, columns] * head.mask[:, :, head.shape[2] // 2 :, None]
    (tmp_path / "case").mkdir()
    nibabel.save(nibabel.Nifti1Image(data.astype(np.float32), head.affine), tmp_path / "case" / "tensor.nii.gz")
    anatomy = load(tmp_path)
    heights = anatomy.mask.any(dim=0).any(dim=0).sum().item() * GRID.voxel_mm
    assert heights < RADIUS_MM + 2


def test_a_map_of_another_grid_and_an_incomplete_template_are_refused(tmp_path):
    head, other = Head(AFFINES["LAS"]), Head(AFFINES["RAS"])
    head.write(tmp_path / "maps" / "case" / "dti_FA.nii.gz", np.full(head.shape, 0.5))
    other.write(tmp_path / "maps" / "case" / "dti_V1.nii.gz", other.directions)
    with pytest.raises(DataError, match=r"dti_V1\.nii\.gz: lies on another grid"):
        load(tmp_path / "maps")
    (tmp_path / "fib").mkdir()
    _write_fib(tmp_path / "fib" / "case", Head(AFFINES["working size"]), missing="iso")
    with pytest.raises(DataError, match="has no 'iso'"):
        load(tmp_path / "fib")
    (tmp_path / "fib" / "case" / "template.fib.gz").write_bytes(b"not a gzip")
    with pytest.raises(DataError, match="not a fibre template"):
        load(tmp_path / "fib")
    head.write(tmp_path / "empty" / "case" / "tensor.nii.gz", np.zeros((*head.shape, 6)))
    with pytest.raises(DataError, match="no voxel is above zero"):
        load(tmp_path / "empty")
