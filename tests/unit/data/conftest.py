"""Prepared subjects whose signal obeys the Stejskal-Tanner equation exactly, so that physics can be tested on them."""

import numpy as np
import pytest
import torch

from tensorldm.data.store import Store
from tensorldm.data.subject import Record, Subject
from tensorldm.dti.signal import predict_signal
from tensorldm.work.sources import SourceFile

TILTED = [[0.0, 0, 0], [0.96, 0.28, 0], [-0.1, 0.98, 0.17], [0.2, -0.15, 0.97]]


def smooth_tensors(shape, seed):
    """Positive tensors D = A Aᵀ whose entries are smooth functions of place, mm²/s."""
    rng = np.random.default_rng(seed)
    places = np.stack(np.meshgrid(*(np.linspace(-1, 1, n) for n in shape), indexing="ij"), axis=-1)
    waves = rng.normal(size=(3, 3, 3)) * 0.8
    phases = rng.uniform(0, 6, size=(3, 3))
    root = 0.4 * np.eye(3) + 0.6 * np.sin(np.einsum("xyzk,ijk->xyzij", places, waves) + phases)
    tensors = 1e-3 * (root @ np.swapaxes(root, -1, -2) + 0.2 * np.eye(3))
    packed = np.stack([tensors[..., i, j] for i, j in ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))], axis=-1)
    s0 = 1 + 0.3 * np.cos(places @ rng.normal(size=3))
    return torch.from_numpy(packed), torch.from_numpy(s0)


@pytest.fixture
def make_subject():
    def make(name="one", person=None, *, shape=(9, 11, 10), seed=0, full_mask=False):
        packed, s0 = smooth_tensors(shape, seed)
        directions = torch.tensor(TILTED, dtype=torch.float64)
        directions[1:] /= directions[1:].norm(dim=1, keepdim=True)
        bvals = torch.tensor([0.0, 1000, 990, 1010], dtype=torch.float64)
        signal = predict_signal(packed, s0, bvals, directions)
        mask = torch.ones(shape, dtype=torch.bool)
        if not full_mask:
            mask[0], mask[:, -1], mask[:, :, :2] = False, False, False
        source = SourceFile(role="dwi", path=f"{name}.nii.gz", sha256=f"hash of {name}", num_bytes=1, mtime_ns=1)
        record = Record(
            name=name,
            person=person or name,
            sources=(source,),
            inputs_sha256="0" * 64,
            native_shape=shape,
            native_voxel_size_mm=(2.0, 2.0, 2.0),
            shell=1000.0,
            volumes=(0, 1, 2, 3),
            angles_degrees=(1.0, 2.0, 3.0),
            num_b0=1,
            num_directions=6,
            fit="ols",
            gradient_nonlinearity=False,
            gradient_check="verified",
            b0_scale=400.0,
            mask_voxels=int(mask.sum()),
        )
        return Subject(
            record=record,
            dwi=(signal.movedim(-1, 0) * mask).float(),
            bvals=bvals,
            directions=directions,
            components=(packed.movedim(-1, 0) * mask).float(),
            mask=mask,
            affine=np.diag([2.0, 2.0, 2.0, 1.0]) + np.eye(4, k=3) * -20,
        )

    return make


@pytest.fixture
def make_store(tmp_path, make_subject):
    def make(subjects=None, splits=None):
        store = Store.create(tmp_path / "store", settings={"shell": 1000.0}, made_by="tests")
        subjects = subjects or [make_subject(n, seed=i, shape=(9 + i, 11, 10)) for i, n in enumerate("abcd")]
        entries = [store.add(subject) for subject in subjects]
        return store.write_index(splits or {entry.name: "train" for entry in entries}, seed=0)

    return make
