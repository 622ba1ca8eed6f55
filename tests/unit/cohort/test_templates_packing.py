"""Packed anatomies, folders of them, and which split each belongs to."""

from dataclasses import replace

import pytest
import torch

from tensorldm.cohort.anatomy import Anatomy
from tensorldm.cohort.manifest import MANIFEST, Entry, check_manifest
from tensorldm.cohort.procedural import ProceduralSource
from tensorldm.cohort.templates import TemplateSource, load_anatomy, save_anatomy
from tensorldm.cohort.templates.mixing import mixture
from tensorldm.cohort.templates.tissue import CSF_MM2_PER_S, physical, split_fluid, tissue_of
from tensorldm.dti.eigen import eigenvalues
from tensorldm.dti.maps import angle_degrees, fractional_anisotropy
from tensorldm.errors import DataError


@pytest.fixture(scope="module")
def head() -> Anatomy:
    source = ProceduralSource(shape=(32, 38, 32), voxel_size=(6.0, 6.0, 6.0), bundles=("CST_left", "CC_7"))
    return source.load("procedural/train/0000")


def test_an_anatomy_survives_packing_within_the_precision_of_the_format(head, tmp_path):
    path = tmp_path / "head.anatomy"
    save_anatomy(path, head)
    back = load_anatomy(path)
    assert (back.name, back.source, back.voxel_size) == (head.name, head.source, head.voxel_size)
    assert torch.equal(back.mask, head.mask)
    assert (back.components - head.components).abs().max() < 2e-5
    assert (back.fractions - head.fractions).abs().max() < 0.01
    assert (back.tissue - head.tissue).abs().max() < 0.005
    assert ((back.s0 - head.s0).abs() / head.s0.clamp_min(0.1)).max() < 1e-3
    assert (back.fractions.sum(dim=0)[back.mask] - 1).abs().max() < 1e-5
    for name, bundle in head.bundles.items():
        assert torch.equal(back.bundles[name].mask, bundle.mask)
        vectors = (bundle.directions[:, bundle.mask].T, back.bundles[name].directions[:, bundle.mask].T)
        assert angle_degrees(*vectors).max() < 0.6


def test_the_same_anatomy_gives_the_same_bytes(head, tmp_path):
    for name in ("a", "b"):
        save_anatomy(tmp_path / f"{name}.anatomy", head)
    assert (tmp_path / "a.anatomy").read_bytes() == (tmp_path / "b.anatomy").read_bytes()


def test_a_file_cut_short_or_of_another_kind_is_refused(head, tmp_path):
    path = tmp_path / "head.anatomy"
    save_anatomy(path, head)
    content = path.read_bytes()
    for broken in (content[: len(content) // 2], b"something else", b""):
        path.write_bytes(broken)
        with pytest.raises(DataError, match=r"head\.anatomy: not a packed anatomy"):
            load_anatomy(path)


def test_a_folder_of_packed_anatomies_is_a_source_and_can_leave_bundles_out(head, tmp_path):
    for name in ("one", "two"):
        save_anatomy(tmp_path / f"{name}.anatomy", replace(head, name=name))
    source = TemplateSource(tmp_path, bundles=("CC_7",))
    assert list(source.names) == ["one", "two"]
    assert set(source.load("two").bundles) == {"CC_7"}
    assert source.load("two").name == "two"
    again = TemplateSource(tmp_path).pack(tmp_path / "copy")
    assert [path.name for path in again] == ["one.anatomy", "two.anatomy"]
    assert torch.equal(load_anatomy(again[0]).fractions, source.load("one").fractions)


def test_a_source_of_one_split_has_only_that_splits_anatomies(head, tmp_path):
    for name in ("hcp1065", "tractseg_case", "papaya_case"):
        save_anatomy(tmp_path / f"{name}.anatomy", replace(head, name=name))
    assert list(TemplateSource(tmp_path, split="train").names) == ["hcp1065", "papaya_case"]
    assert list(TemplateSource(tmp_path, split="test").names) == ["tractseg_case"]
    assert list(TemplateSource(tmp_path, split="validation").names) == []
    with pytest.raises(DataError, match="no anatomy 'tractseg_case'"):
        TemplateSource(tmp_path, split="train").load("tractseg_case")


def test_a_folder_of_ones_own_needs_a_manifest_before_it_is_split(head, tmp_path):
    save_anatomy(tmp_path / "mine.anatomy", head)
    assert list(TemplateSource(tmp_path).names) == ["mine"]
    with pytest.raises(DataError, match=r"mine: nothing says which split.*manifest\.tsv"):
        TemplateSource(tmp_path, split="train")
    (tmp_path / "manifest.tsv").write_text("name\tperson\tsplit\nmine\tme\ttrain\n")
    assert list(TemplateSource(tmp_path, split="train").names) == ["mine"]
    (tmp_path / "manifest.tsv").write_text("name\tperson\tsplit\nmine\t\ttrain\n")
    with pytest.raises(DataError, match="line 2: name, person and split"):
        TemplateSource(tmp_path, split="train")


def test_an_empty_or_missing_folder_is_refused_with_what_it_should_hold(tmp_path):
    with pytest.raises(DataError, match=r"no anatomies are here.*tensor\.nii\.gz.*peaks"):
        TemplateSource(tmp_path)
    with pytest.raises(DataError, match="no such folder"):
        TemplateSource(tmp_path / "nowhere")


def test_the_packages_manifest_keeps_every_source_and_person_in_one_split():
    check_manifest(MANIFEST)
    names = [entry.name for entry in MANIFEST]
    assert len(set(names)) == len(names)
    splits = {entry.name: entry.split for entry in MANIFEST}
    assert splits["tractseg_case"] == splits["siemens_prisma_prone"] == splits["siemens_prisma_supine"] == "test"
    assert splits["philips_elition"] == splits["philips_nottingham"] == "validation"


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (Entry("uih_PA", "somebody", "test"), "source 'uih_PA' is in two splits, train and test"),
        (Entry("uih_new", "uih", "validation"), "person 'uih' is in two splits, train and validation"),
        (Entry("other", "other", "tset"), "no split 'tset'"),
    ],
)
def test_a_source_or_person_in_two_splits_is_refused(entry, words):
    with pytest.raises(DataError, match=words):
        check_manifest((*MANIFEST, entry))


def _tensors(count: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    factors = torch.randn(count, 3, 3, generator=generator)
    matrices = factors @ factors.mT * 0.5e-3 * torch.rand(count, 1, 1, generator=generator)
    return matrices[:, [0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]]


def test_taking_fluid_out_leaves_positive_tissue_and_loses_nothing():
    whole = physical(_tensors(3000))
    tissue, fluid = split_fluid(whole)
    water = torch.tensor([CSF_MM2_PER_S] * 3 + [0.0] * 3)
    torch.testing.assert_close(fluid[:, None] * water + (1 - fluid[:, None]) * tissue, whole, atol=1e-8, rtol=1e-4)
    assert eigenvalues(tissue).min() > 0.14e-3
    assert (fluid > 0.3).any()
    shares = tissue_of(fluid, fractional_anisotropy(tissue))
    torch.testing.assert_close(shares.sum(dim=-1), torch.ones(3000))
    assert shares.min() >= 0


def test_a_mixture_has_the_anisotropy_that_is_asked_of_it():
    generator = torch.Generator().manual_seed(1)
    directions = torch.nn.functional.normalize(torch.randn(500, 3, 3, generator=generator), dim=-1)
    weights = torch.rand(500, 3, generator=generator)
    fa = 0.75 * torch.rand(500, generator=generator)
    mixed = mixture(directions, weights, fluid=torch.zeros(500))
    knob = mixed.knob_for(fa)
    assert (mixed.anisotropy(knob) - fa).abs().max() < 2e-3
    torch.testing.assert_close(mixed.fractions(knob).sum(dim=-1), torch.ones(500))
