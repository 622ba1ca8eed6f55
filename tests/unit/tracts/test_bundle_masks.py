import numpy as np
import pytest

from tensorldm.errors import DataError
from tensorldm.imaging.bundle_names import PAPER_BUNDLES
from tensorldm.imaging.nifti import write_mask
from tensorldm.imaging.volume import Space
from tensorldm.tracts.bundle_masks import check_place, choose_bundles, list_bundles, read_bundle
from tensorldm.tracts.bundles import read_bundles
from tensorldm.tracts.regions import Region

SPACE = Space((8, 8, 8), np.diag([2.0, 2, 2, 1]))


def put(path, *, at=(2, 6), space=SPACE):
    mask = np.zeros(space.shape, dtype=bool)
    mask[at[0] : at[1]] = True
    write_mask(path, mask, space=space)


@pytest.fixture
def plain(tmp_path):
    """As virtual subjects have them."""
    for name in ("CST_left", "CC_2", "MCP"):
        put(tmp_path / f"{name}.nii.gz")
    return tmp_path


@pytest.fixture
def tractseg(tmp_path):
    """As TractSeg writes them."""
    put(tmp_path / "bundle_segmentations" / "CST_left.nii.gz")
    put(tmp_path / "endings_segmentations" / "CST_left_b.nii.gz", at=(2, 3))
    put(tmp_path / "endings_segmentations" / "CST_left_e.nii.gz", at=(5, 6))
    put(tmp_path / "exclusions" / "CST_left.nii.gz", at=(7, 8))
    return tmp_path


def test_by_default_the_papers_bundles_are_taken_in_their_order(plain):
    assert len(PAPER_BUNDLES) == 12
    assert choose_bundles(plain) == ["CST_left", "CC_2"]
    assert choose_bundles(plain, ["MCP"]) == ["MCP"]


def test_tractsegs_folders_are_understood(tractseg):
    assert list(list_bundles(tractseg)) == ["CST_left"]
    bundle = read_bundle(tractseg, "CST_left")
    assert [int(np.argwhere(each.mask)[0, 0]) for each in bundle.endings] == [2, 5]
    assert bundle.exclusion.mask[7].all()


def test_endings_may_lie_among_plain_masks(plain):
    assert read_bundle(plain, "CST_left").endings is None
    for mark in "be":
        put(plain / f"CST_left_{mark}.nii.gz")
    assert list(list_bundles(plain)) == ["CC_2", "CST_left", "MCP"]
    assert read_bundle(plain, "CST_left").endings is not None


@pytest.mark.parametrize(
    ("names", "words"),
    [(["UF_left"], "no mask of 'UF_left'. There are CC_2, CST_left, MCP"), (["CST_left", "x"], "'x'")],
)
def test_a_bundle_that_is_not_there_is_told(plain, names, words):
    with pytest.raises(DataError, match=words):
        choose_bundles(plain, names)


def test_folders_without_masks_are_told(tmp_path):
    with pytest.raises(DataError, match="no such folder"):
        list_bundles(tmp_path / "nowhere")
    with pytest.raises(DataError, match="no bundle masks"):
        list_bundles(tmp_path)
    put(tmp_path / "MCP.nii.gz")
    with pytest.raises(DataError, match=r"none of CST_left, .*: MCP"):
        choose_bundles(tmp_path)


def test_an_empty_mask_is_told(tmp_path):
    put(tmp_path / "CST_left.nii.gz", at=(0, 0))
    with pytest.raises(DataError, match=r"CST_left.nii.gz: the mask is empty"):
        read_bundle(tmp_path, "CST_left")


def test_a_mask_on_another_grid_is_used_by_its_place_in_the_world(tmp_path):
    fine = Space((16, 16, 16), np.array([[-1.0, 0, 0, 14.5], [0, 1, 0, -0.5], [0, 0, 1, -0.5], [0, 0, 0, 1]]))
    put(tmp_path / "CST_left.nii.gz", space=fine, at=(4, 12))
    brain = Region(np.ones(SPACE.shape, dtype=bool), SPACE)
    assert len(read_bundles(tmp_path, [], brain=brain)) == 1


def test_a_mask_of_another_brain_is_told(plain):
    elsewhere = Space(SPACE.shape, np.array([[2.0, 0, 0, 90], [0, 2, 0, 0], [0, 0, 2, 0], [0, 0, 0, 1]]))
    with pytest.raises(DataError, match="only 0% of CST_left lies in the brain mask"):
        check_place(plain, read_bundle(plain, "CST_left"), brain=Region(np.ones((8, 8, 8), dtype=bool), elsewhere))


@pytest.mark.real
def test_all_seventy_two_bundles_of_a_real_case_are_read(real_data):
    folder = real_data / "templates" / "tractseg_case" / "bundles"
    names = list(list_bundles(folder))
    assert len(names) == 72
    assert choose_bundles(folder) == list(PAPER_BUNDLES)
    assert all(read_bundle(folder, name).inside.mask.any() for name in names[::9])
