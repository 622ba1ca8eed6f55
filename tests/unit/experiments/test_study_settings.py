"""What a study may say, what is refused, and what decides whether a figure has to be measured again."""

import re
from pathlib import Path

import pytest
import yaml

from tensorldm.config.reading import read_config
from tensorldm.errors import ConfigError, DataError
from tensorldm.evaluation.table import Row
from tensorldm.experiments.config import StudyConfig
from tensorldm.experiments.methods import identity
from tensorldm.experiments.parts import Part, Results, key_of
from tensorldm.experiments.published import FIGURES, NOT_SIGNIFICANT, paper_name
from tensorldm.experiments.record import read_commit
from tensorldm.experiments.study import check_study
from tensorldm.experiments.variants import tagged, untagged

STUDY = """
groups: {virtual: {virtual: {subjects: 2}}}
methods: {ade: {analytic: ade}, minimum-norm: {analytic: minimum-norm}}
comparisons: {c: {title: closed forms, ours: minimum-norm, methods: [ade]}}
"""


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("comparisons.c.ours=tensorldm", "comparisons.c names the method 'tensorldm'"),
        ("methods.ade.analytic=adc", "no analytic method 'adc'"),
        ("methods.ade.bundle=x", "exactly one of analytic, bundle and autoencoder"),
        ("groups.virtual.scans=[a.nii.gz]", "either virtual subjects or scans"),
        ("groups.virtual.virtual.split=train", "Input should be 'test' or 'validation'"),
        ("probe.methods=[ade]", "probe needs trained models, and 'ade' is none"),
        ("methods.a@b={analytic: ade}", "'a@b' cannot be a name here"),
        ("fits.method=[ade]", "Did you mean"),
        ("sampling.methods=[]", "at least 1 item"),
    ],
)
def test_a_study_that_cannot_be_meant_is_refused_by_name(tmp_path, change, words):
    (tmp_path / "study.yaml").write_text(STUDY)
    with pytest.raises(ConfigError) as caught:
        read_config(StudyConfig, tmp_path / "study.yaml", [change])
    assert words in str(caught.value)


def test_the_preset_is_a_whole_study_that_needs_no_model():
    study = read_config(StudyConfig, "study")
    assert check_study(study)[0] == "Subjects: virtual (8 virtual)"
    assert all(method.bundle is None for method in study.methods.values())


def test_the_study_of_the_documents_is_one():
    text = (Path(__file__).parents[3] / "docs" / "tables.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```yaml\n(.*?)```", text, flags=re.DOTALL)
    study = StudyConfig.model_validate(yaml.safe_load(example))
    assert {each.kind for each in study.comparisons.values()} == {"rivals", "ablations", "curriculum"}


def test_a_missing_model_is_refused_before_a_subject_is_made(tmp_path):
    (tmp_path / "study.yaml").write_text(STUDY)
    changes = ["methods.tensorldm={bundle: nowhere}"]
    with pytest.raises(DataError, match=r"nowhere.*no model there.*Train it first"):
        check_study(read_config(StudyConfig, tmp_path / "study.yaml", changes))


def test_other_weights_or_settings_have_another_identity_and_words_do_not(make_bundle):
    def method(bundle, **more):
        study = {"methods": {"m": {"bundle": bundle, **more}}, "groups": {"g": {"virtual": {"subjects": 1}}}}
        study["comparisons"] = {"c": {"title": "t", "ours": "m", "methods": ["m"]}}
        return identity(StudyConfig.model_validate(study).methods["m"])

    one, other = make_bundle(1), make_bundle(2)
    assert method(one) == method(make_bundle(1))
    assert method(one) != method(other)
    assert method(one) != method(one, steps=7)
    assert method(one) == method(one, note="trained for eight minutes", paper="TensorLDM")


def test_parts_are_kept_under_names_that_stay_in_the_folder(tmp_path):
    results = Results(tmp_path)
    part = Part("accuracy", "virtual", "../s1", "w/o CCA", key_of(steps=25))
    results.write(part, [Row("w/o CCA", "s1", "tensor", "lem", 0.5)])
    (path,) = (tmp_path / "parts").rglob("*.csv")
    assert path.is_relative_to(tmp_path / "parts" / "accuracy" / "virtual")
    assert results.missing([part]) == []
    assert results.missing([Part("accuracy", "virtual", "../s1", "w/o CCA", key_of(steps=250))])


def test_a_long_table_has_the_references_rows_once_and_no_stale_part(tmp_path):
    results = Results(tmp_path)
    own = Row("reference", "s1", "tensor", "mask_voxels", 10.0)
    parts = [Part("accuracy", "g", "s1", name, "k") for name in ("ade", "ols")]
    for part in parts:
        results.write(part, [own, Row(part.label, "s1", "tensor", "lem", 0.5)])
    results.write(Part("accuracy", "g", "s1", "ade", "old"), [Row("ade", "s1", "tensor", "lem", 99.0)])
    rows = results.join("accuracy", "g", parts=parts)
    assert rows == results.read("accuracy", "g")
    assert [row.method for row in rows] == ["reference", "ade", "ols"]


def test_times_of_another_machine_are_kept(tmp_path):
    results = Results(tmp_path)
    for machine in ("H200", "EPYC"):
        part = Part("runtime", "g", "s1", f"ade {machine}", "k1")
        results.write(part, [Row("ade", "s1", machine, "total_seconds", 1.0)])
    results.write(Part("runtime", "g", "s1", "ade H200", "k0"), [Row("ade", "s1", "H200", "total_seconds", 9.0)])
    rows = results.join_keys("runtime", "g", subject="s1", keys=["k1"])
    assert {(row.quantity, row.value) for row in rows} == {("H200", 1.0), ("EPYC", 1.0)}


def test_labels_come_apart_again():
    assert untagged(tagged("w/o CCA", seed=3)) == ("w/o CCA", {"seed": "3"})
    assert untagged(tagged("t", sampler="dpm++2m", steps=5)) == ("t", {"sampler": "dpm++2m", "steps": "5"})
    assert untagged("ade") == ("ade", {})


@pytest.mark.parametrize(
    ("key", "mean"),
    [
        (("TensorLDM", "Dxy", "psnr_db"), 29.30), (("TensorLDM", "colour FA", "ssim"), 0.90),
        (("ADE", "FA", "psnr_db"), 16.26), (("Diff-DTI", "tensor", "lem"), 0.49), (("LDM", "Dxy", "ssim"), 0.76),
        (("w/o joint LDM", "MD", "psnr_db"), 33.01), (("w/o full-volume fine-tuning", "tensor", "lem"), 0.33),
        (("reference", "tensor", "spd_violations_percent"), 1.40), (("Stage 1+2", "tensor", "off_diagonal_lem"), 0.240),
    ],
)  # fmt: skip
def test_the_papers_figures_are_the_papers(key, mean):
    assert FIGURES[key].mean == mean


def test_the_paper_has_every_cell_of_its_three_tables():
    methods = ("ADE", "CycleGAN", "Pix2Pix", "ResViT", "SuperDTI", "Diff-DTI", "LDM", "TensorLDM")
    assert all(sum(name == method for name, _, _ in FIGURES) >= 12 + 13 for method in methods)
    assert all(name in {method for method, _, _ in FIGURES} for name, _, _ in NOT_SIGNIFICANT)


def test_methods_are_known_to_the_paper_however_they_are_spelt():
    assert paper_name("diffdti") == paper_name("Diff-DTI") == "Diff-DTI"
    assert paper_name("tensorldm") == "TensorLDM"
    assert paper_name("W/O joint ae") == "w/o joint AE"
    assert paper_name("minimum-norm") is None


def test_the_commit_is_read_from_the_repositorys_own_files(tmp_path):
    assert read_commit(tmp_path) is None
    git = tmp_path / ".git"
    (git / "refs" / "heads").mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "packed-refs").write_text("# pack-refs\nabc123 refs/heads/main\n")
    assert read_commit(tmp_path) == "abc123"
    (git / "refs" / "heads" / "main").write_text("def456\n")
    assert read_commit(tmp_path) == "def456"
    (git / "HEAD").write_text("789aaa\n")
    assert read_commit(tmp_path) == "789aaa"
