"""Small noise-free scans written as HCP trees or loose files, and the program called as a user calls it."""

import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import nibabel
import numpy as np
import pytest

from tensorldm.cli.main import run

SHAPE = (12, 13, 11)
BVALS = [5.0, 995.0, 1000.0, 1005.0, 990.0, 1000.0, 5.0, 1000.0, 1000.0, 1010.0, 1000.0, 2000.0, 2000.0]
RAS_2MM = np.array([[2.0, 0, 0, -11], [0, 2, 0, -13], [0, 0, 2, -9], [0, 0, 0, 1]])


def directions() -> np.ndarray:
    """In RAS image axes; volumes 1, 3 and 8 lie near x, y and z."""
    vectors = np.random.default_rng(4).normal(size=(len(BVALS), 3))
    vectors[1], vectors[3], vectors[8] = (0.98, 0.1, -0.17), (-0.05, -0.99, 0.1), (0.1, -0.12, 0.985)
    vectors[[2, 4, 5]] = (0.7, 0.7, 0.1), (0.7, -0.1, 0.7), (0.1, 0.7, -0.7)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors[np.array(BVALS) < 50] = 0
    return vectors


def head() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tensors (x y z 3 3, mm²/s), S0 and brain: an ellipsoid whose fibres are helices about a tilted axis."""
    places = np.stack(np.meshgrid(*(np.linspace(-1, 1, n) for n in SHAPE), indexing="ij"), axis=-1)
    fibre = np.cross([0.2, 0.4, 0.9], places) + [0.06, 0.12, 0.27]
    fibre /= np.linalg.norm(fibre, axis=-1, keepdims=True)
    tensors = 0.4e-3 * np.eye(3) + 1.1e-3 * fibre[..., :, None] * fibre[..., None, :]
    brain = (places**2).sum(axis=-1) < 0.8
    s0 = 400 + 100 * places[..., 2]
    return tensors, s0, brain


@dataclass
class Scan:
    """A scan in memory, RAS; ``write_*`` puts it on the disk, ``stored`` in another orientation."""

    data: np.ndarray
    mask: np.ndarray
    bvals: np.ndarray
    bvecs: np.ndarray
    affine: np.ndarray

    def stored(self, orientation: str) -> "Scan":
        start = nibabel.orientations.io_orientation(self.affine)
        turn = nibabel.orientations.ornt_transform(start, nibabel.orientations.axcodes2ornt(tuple(orientation)))
        image = nibabel.Nifti1Image(self.data, self.affine).as_reoriented(turn)
        mask = nibabel.Nifti1Image(self.mask.astype(np.uint8), self.affine).as_reoriented(turn)
        axes = image.affine[:3, :3] / np.linalg.norm(image.affine[:3, :3], axis=0)
        vectors = self.bvecs @ axes
        return Scan(image.get_fdata(), mask.get_fdata() > 0, self.bvals, vectors, image.affine)

    def _write(self, folder: Path, image: str, bval: str, bvec: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        nibabel.save(nibabel.Nifti1Image(self.data.astype(np.float32), self.affine), folder / image)
        vectors = self.bvecs.copy()
        if np.linalg.det(self.affine[:3, :3]) > 0:  # FSL's rule
            vectors[:, 0] *= -1
        np.savetxt(folder / bval, self.bvals[None], fmt="%g")
        np.savetxt(folder / bvec, vectors.T, fmt="%.8f")

    def write_hcp(self, subject: Path) -> Path:
        folder = subject / "T1w" / "Diffusion"
        self._write(folder, "data.nii.gz", "bvals", "bvecs")
        mask = nibabel.Nifti1Image(self.mask.astype(np.uint8), self.affine)
        nibabel.save(mask, folder / "nodif_brain_mask.nii.gz")
        return subject

    def write_bids(self, dataset: Path, subject: str, session: str) -> Path:
        folder = dataset / f"sub-{subject}" / f"ses-{session}" / "dwi"
        stem = f"sub-{subject}_ses-{session}_dwi"
        self._write(folder, f"{stem}.nii.gz", f"{stem}.bval", f"{stem}.bvec")
        return dataset

    def write_files(self, image: Path) -> Path:
        stem = image.name.removesuffix(".nii.gz")
        self._write(image.parent, image.name, f"{stem}.bval", f"{stem}.bvec")
        return image


@pytest.fixture
def scan() -> Scan:
    tensors, s0, brain = head()
    vectors, bvals = directions(), np.array(BVALS)
    exponent = np.einsum("ni,xyzij,nj->xyzn", vectors, tensors, vectors) * bvals
    signal = s0[..., None] * np.exp(-exponent)
    air = np.random.default_rng(0).uniform(1, 4, size=signal.shape)
    return Scan(np.where(brain[..., None], signal, air), brain, bvals, vectors, RAS_2MM.copy())


@pytest.fixture
def truth() -> np.ndarray:
    """The head's six components in RAS axes, zero outside the brain."""
    tensors, _, brain = head()
    packed = np.stack([tensors[..., i, j] for i, j in ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))])
    return packed * brain


@dataclass
class Answer:
    code: int
    out: str
    err: str


@pytest.fixture
def program(monkeypatch, capsys):
    """Call ``tensorldm ARGUMENTS`` in this process; the exit code and what was printed."""

    def call(*arguments: object) -> Answer:
        monkeypatch.setattr(sys, "argv", ["tensorldm", *map(str, arguments)])
        monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # the program sets its own
        monkeypatch.setenv("COLUMNS", "200")
        capsys.readouterr()
        code = 0
        try:
            run()
        except SystemExit as leaving:
            code = int(leaving.code or 0)
        return Answer(code, *capsys.readouterr())

    return call
