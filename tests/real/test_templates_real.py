"""The real templates: every one in its right frame, by the fibres' own word and by comparison with a scan."""

from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path

import pytest
import torch
from torch.nn.functional import avg_pool3d

from tensorldm.cohort.anatomy import Anatomy
from tensorldm.cohort.bundle_names import PAPER_BUNDLES
from tensorldm.cohort.manifest import MANIFEST
from tensorldm.cohort.templates import TemplateSource
from tensorldm.dti.maps import fractional_anisotropy, mean_diffusivity, principal_direction

pytestmark = [pytest.mark.real, pytest.mark.slow]

TEMPLATES = ("hcp1065", "niimath_tensor", "papaya_case", "tractor_case", "tractseg_case")
TRAINING_SCANS = tuple(entry.name for entry in MANIFEST if entry.split == "train" and entry.name not in TEMPLATES)
FLIPS = {"none": (1, 1, 1), "x": (-1, 1, 1), "y": (1, -1, 1), "z": (1, 1, -1)}


@pytest.fixture(scope="module")
def load(real_data: Path) -> Callable[[str], Anatomy]:
    @cache
    def loaded(name: str) -> Anatomy:
        folder = "templates" if name in TEMPLATES else "real"
        return TemplateSource(real_data / folder).load(name)

    return loaded


def _white(anatomy: Anatomy) -> tuple[torch.Tensor, torch.Tensor]:
    packed = anatomy.components[0].movedim(0, -1)
    return packed, (fractional_anisotropy(packed) > 0.3) & (mean_diffusivity(packed) < 1.2e-3) & anatomy.mask


def _coherence(anatomy: Anatomy, signs: tuple[int, int, int]) -> float:
    """How nearly v1 is parallel to the v1 that it leads to, 3 mm on; 0 where it leads out of the white matter."""
    packed, white = _white(anatomy)
    v1 = principal_direction(packed) * torch.tensor(signs)
    places = white.nonzero()
    heading = v1[white]
    ahead = (places + (1.5 * heading).round().long()).clamp(
        min=torch.zeros(3, dtype=torch.long), max=torch.tensor(white.shape) - 1
    )
    i, j, k = ahead.unbind(dim=-1)
    return ((v1[i, j, k] * heading).sum(dim=-1).abs() * white[i, j, k]).mean().item()


@pytest.mark.parametrize("name", [*TEMPLATES, *TRAINING_SCANS, "philips_elition"])
def test_fibres_lead_into_each_other_better_than_in_any_mirror_image(load, name):
    given = _coherence(load(name), FLIPS["none"])
    others = {flip: _coherence(load(name), signs) for flip, signs in FLIPS.items() if flip != "none"}
    assert given > 1.05 * max(others.values()), (given, others)


def _deviation(anatomy: Anatomy) -> tuple[torch.Tensor, torch.Tensor]:
    """Off-diagonals xy, xz, yz blurred over 14 mm, and the mask, both in steps of 4 mm."""
    off = (anatomy.components[:, 3:] * (anatomy.tissue[0] < 0.2))[0]
    blurred = avg_pool3d(off[None], 7, stride=1, padding=3)
    return avg_pool3d(blurred, 2)[0], avg_pool3d(anatomy.mask.float()[None], 2)[0] > 0.5


def _correlations(template: Anatomy, scan: Anatomy) -> dict[str, float]:
    """How like a scan's the off-diagonals are under each flip, wherever along y and z the two heads agree best.

    Fields of view end at different heights, so that centred heads may lie 4 cm apart.
    """
    (first, inside), (second, other) = _deviation(template), _deviation(scan)
    least = 0.7 * min(int(inside.sum()), int(other.sum()))
    scores = dict.fromkeys(FLIPS, -1.0)
    for along_y, along_z in product(range(-6, 7, 2), range(-12, 13, 2)):
        both = torch.roll(inside, (along_y, along_z), (1, 2)) & other
        if both.sum() < least:
            continue
        moved = torch.roll(first, (along_y, along_z), (2, 3))[:, both]
        for flip, (x, y, z) in FLIPS.items():
            turned = moved * torch.tensor([x * y, x * z, y * z])[:, None]
            score = torch.corrcoef(torch.stack([turned.flatten(), second[:, both].flatten()]))[0, 1].item()
            scores[flip] = max(scores[flip], score)
    return scores


@pytest.mark.parametrize("name", [*TEMPLATES, *TRAINING_SCANS, "siemens_prisma_supine"])
def test_off_diagonals_have_the_signs_of_a_real_scans_fit(load, name):
    scores = _correlations(load(name), load("philips_elition"))
    print(name, {flip: round(score, 2) for flip, score in scores.items()})
    # The oblique head lies askew to the scan, so that only part of its off-diagonals can agree.
    least, margin = (0.25, 0.1) if name == "toshiba_oblique" else (0.5, 0.3)
    assert scores["none"] > least, scores
    assert scores["none"] > max(value for flip, value in scores.items() if flip != "none") + margin, scores


@pytest.mark.parametrize("name", TEMPLATES)
def test_templates_become_whole_anatomies_in_the_middle_of_the_grid(load, name):
    anatomy = load(name)
    assert anatomy.mask.shape == (96, 112, 96)
    assert (anatomy.fractions.sum(dim=0)[anatomy.mask] - 1).abs().max() < 1e-4
    places = anatomy.mask.nonzero()
    middle = (places.amin(dim=0) + places.amax(dim=0)) / 2
    assert (middle - torch.tensor([47.5, 55.5, 47.5])).abs().max() <= 1.5
    packed = anatomy.components[0].movedim(0, -1)
    md = mean_diffusivity(packed)
    assert 0.6e-3 < md[anatomy.tissue[2] > 0.9].median() < 0.9e-3
    assert md[anatomy.tissue[0] > 0.7].median() > 1.8e-3


def test_the_bundles_of_the_test_case_run_along_its_own_fibres(load):
    anatomy = load("tractseg_case")
    assert set(anatomy.bundles) == set(PAPER_BUNDLES)
    for name, bundle in anatomy.bundles.items():
        directions = bundle.directions[:, bundle.mask].T
        strength = directions.abs().mean(dim=0)
        expected = {"CST": 2, "CG": 1, "ILF": 1, "IFO": 1}.get(name.split("_")[0])
        assert expected is None or strength.argmax() == expected, name
        fibres = principal_direction(anatomy.tensors[:3, :, bundle.mask].movedim(1, -1))
        present = anatomy.fractions[:3, bundle.mask] > 0.02
        best = {
            flip: ((fibres * (directions * torch.tensor(signs))).sum(dim=-1).abs() * present).amax(dim=0).mean().item()
            for flip, signs in FLIPS.items()
        }
        assert best["none"] > 0.85, (name, best)
        assert best["none"] == max(best.values()), (name, best)
        right = bundle.mask.nonzero()[:, 0].float().median() > 47.5
        if name.endswith(("_left", "_right")):
            assert right == name.endswith("_right"), name


def test_the_manifest_lists_every_folder_of_the_real_data(real_data):
    folders = {path.name for kind in ("templates", "real") for path in (real_data / kind).iterdir() if path.is_dir()}
    assert folders == {entry.name for entry in MANIFEST}


def test_scans_of_one_person_name_the_same_source(load):
    assert load("uih_PA").source == load("uih_AP").source != load("toshiba_ortho").source
