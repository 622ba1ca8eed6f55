"""Scans whose truth is known: virtual ones as they are dealt and made, and a series with the fit of all its volumes."""

from pathlib import Path

import nibabel
import numpy as np
import pytest
import torch
from dipy.core.gradients import gradient_table
from dipy.reconst.dti import TensorModel

from tensorldm.cohort.anatomy import TISSUES
from tensorldm.cohort.config import read_cohort
from tensorldm.dti.maps import fractional_anisotropy, mean_diffusivity
from tensorldm.errors import ConfigError, DataError
from tensorldm.experiments.known_scans import CLEAN, FIT, KnownScan, open_split
from tensorldm.experiments.known_series import check_known_series, read_known_series, tissues_of

CPU = torch.device("cpu")
SMALL = ["shape=[20,24,20]", "voxel_mm=[6,6,6]", "artefacts.coarse=0", "artefacts.slab=0"]


def split(number: int, *, seed: int = 0, name: str = "test"):
    cohort = read_cohort("clinical", SMALL)
    return open_split("cohort:procedural", name, cohort=cohort, number=number, seed=seed)


@pytest.fixture(scope="module")
def known() -> KnownScan:
    (scan,) = split(1).scans(CPU)
    return scan


def test_every_anatomy_has_its_turn_before_one_comes_again():
    dealt = split(13).dealt
    counts = [sum(name == each for name, _ in dealt) for each in {name for name, _ in dealt}]
    assert sorted(counts) == [1, 1, 1, 2, 2, 2, 2, 2]
    assert list(dealt) == sorted(dealt), "those of one anatomy in a row, so that each is loaded once"


def test_no_two_subjects_share_a_head_or_a_group_of_directions():
    settings = read_cohort("clinical").settings
    positions = [position for _, position in split(9).dealt]
    for apart in (settings.scans_per_head, settings.protocol.scheme.group):
        assert len({position // apart for position in positions}) == 9


def test_splits_and_seeds_give_other_subjects():
    assert {name.split("/")[1] for name, _ in split(4, name="validation").dealt} == {"validation"}
    assert split(3).dealt == split(3).dealt
    assert split(3).dealt != split(3, seed=1).dealt


def test_a_subject_is_the_same_each_time(known):
    (again,) = split(1).scans(CPU)
    assert torch.equal(again.scan.dwi, known.scan.dwi)
    assert torch.equal(again.truths[CLEAN], known.truths[CLEAN])
    assert again.scan.key == known.scan.key


def test_the_scan_is_cropped_around_its_brain_and_scaled(known):
    scan, mask = known.scan, known.scan.mask
    for axis in range(3):
        others = tuple(other for other in range(3) if other != axis)
        filled = np.flatnonzero(mask.numpy().any(axis=others))
        assert filled[0] <= 2
        assert filled[-1] >= mask.shape[axis] - 3
    assert (scan.dwi[0][mask] / scan.b0_scale).median().item() == pytest.approx(1, rel=1e-5)
    assert len(known.tissue) == len(known.truths[CLEAN]) == int(mask.sum())
    assert scan.bvals[0] == 0
    assert known.num_directions == len(scan.bvals) - 1


def test_tissues_are_where_their_diffusion_is(known):
    md, fa = mean_diffusivity(known.truths[CLEAN]).numpy(), fractional_anisotropy(known.truths[CLEAN]).numpy()
    csf, grey, white = (known.tissue == TISSUES.index(name) for name in TISSUES)
    assert min(csf.sum(), grey.sum(), white.sum()) > 50
    assert np.median(md[csf]) > 2 * np.median(md[white])
    assert np.median(fa[white]) > 1.5 * np.median(fa[grey])


def test_noise_parts_the_fit_from_the_clean_tensor(known):
    error = (known.truths[FIT] - known.truths[CLEAN]).abs()
    assert 1e-6 < error[:, :3].median().item() < 4e-4


def test_only_virtual_subjects_are_taken_for_truth():
    cohort = read_cohort("clinical", SMALL)
    with pytest.raises(ConfigError, match="only virtual subjects"):
        open_split("store", "test", cohort=cohort, number=1, seed=0)


def test_templates_without_the_split_are_refused_with_a_way_out(tmp_path):
    from tensorldm.cohort.procedural import ProceduralSource
    from tensorldm.cohort.templates import save_anatomy

    head = ProceduralSource("train", 1, shape=(20, 24, 20), voxel_size=(6.0, 6.0, 6.0), bundles=())
    save_anatomy(tmp_path / "one.anatomy", head.load("procedural/train/0000"))
    (tmp_path / "manifest.tsv").write_text("name\tperson\tsplit\none\tp\ttrain\n")
    cohort = read_cohort("clinical", SMALL)
    with pytest.raises(DataError, match="holds no test anatomies"):
        open_split(f"cohort:templates:{tmp_path}", "test", cohort=cohort, number=1, seed=0)


def test_a_real_series_has_its_whole_fit_for_truth(scans):
    path = Path(scans[0])
    check_known_series(path)
    known = read_known_series(path, "head")
    assert known.num_directions == 3
    assert set(known.truths) == {FIT}
    # DIPY's fit of the same file; the working grid is RAS, the file LAS: x is mirrored, and with it xy and xz.
    image = nibabel.load(path)
    bvals, bvecs = np.loadtxt(path.with_name("dwi.bval")), np.loadtxt(path.with_name("dwi.bvec"))
    table = gradient_table(bvals, bvecs=bvecs.T)
    mask = nibabel.load(path.with_name("mask.nii.gz")).get_fdata() > 0
    theirs = TensorModel(table, fit_method="OLS", min_signal=1e-3).fit(image.get_fdata()[::-1], mask=mask[::-1])
    assert np.median(np.abs(theirs.md[mask[::-1]] - mean_diffusivity(known.truths[FIT]).numpy())) < 1e-6
    assert np.median(np.abs(theirs.fa[mask[::-1]] - fractional_anisotropy(known.truths[FIT]).numpy())) < 1e-3


def test_tissues_of_a_fit_leave_out_what_may_be_either():
    shapes = ([3e-3] * 3, [8e-4] * 3, [1.7e-3, 3e-4, 3e-4], [1.5e-3] * 3, [1.0e-3, 7e-4, 7e-4])
    packed = torch.tensor([[*values, 0.0, 0.0, 0.0] for values in shapes], dtype=torch.float64)
    assert fractional_anisotropy(packed)[4].item() == pytest.approx(0.207, abs=0.01), "between grey and white"
    assert tissues_of(packed).tolist() == [0, 1, 2, -1, -1]
