"""``tensorldm tables run`` and ``make`` as a newcomer types them."""

import shutil

import pytest
from typer.testing import CliRunner

from tensorldm.cli import verbs  # noqa: F401  registers the verbs
from tensorldm.cli.main import app
from tensorldm.errors import ConfigError, DataError, ToolError

STUDY = """
groups:
  virtual:
    grid: native
    virtual:
      subjects: 3
      changes: ["shape=[16, 16, 16]", "voxel_mm=[11, 11, 11]", "protocol.b0s=[1, 1]", "protocol.directions=[14, 14]"]
methods:
  ade: {analytic: ade}
  minimum-norm: {analytic: minimum-norm}
  ols-6: {analytic: ols-6, ranked: false}
comparisons:
  closed: {title: closed forms, ours: minimum-norm, methods: [ade, ols-6]}
keep_tensors: 1
"""


def invoke(*arguments: object) -> str:
    answer = CliRunner().invoke(app, [str(each) for each in arguments], catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    return answer.output


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    (folder / "study.yaml").write_text(STUDY)
    (folder / "results.md").write_text("# Results\n\nBefore.\n")
    said = invoke(
        "tables", "run", "--config", folder / "study.yaml", "--out", folder / "out", "--results", folder / "results.md"
    )
    return folder, said


def test_one_command_goes_from_settings_to_tables_figures_and_a_section_of_the_document(ran):
    folder, said = ran
    tables = folder / "out" / "tables"
    for number in (1, 2, 3, 5, 7):
        assert f"Table {number}:" in said
        assert {path.suffix for path in tables.glob(f"table{number:02d}-*")} == {".md", ".csv", ".tex"}
    names = {path.name for path in (tables / "figures").iterdir()}
    assert {"lem-closed-virtual.svg", "maps-closed-virtual-900001-axial.png",
            "components-closed-virtual-900001-coronal.png", "v1-closed-virtual-900001-axial.png"} <= names  # fmt: skip
    document = (folder / "results.md").read_text()
    assert document.startswith("# Results\n\nBefore.\n\n<!-- begin tables out -->\n## Tables: ")
    assert "3 subjects of 3 independent anatomies" in document


def test_tables_can_be_made_again_from_what_is_stored_alone(ran, tmp_path):
    folder, _ = ran
    first = {path.name: path.read_bytes() for path in (folder / "out" / "tables").glob("table*")}
    for kind in ("work", "parts", "cohorts"):
        (folder / "out" / kind).rename(tmp_path / kind)
    try:
        invoke("tables", "make", folder / "out", "--out", tmp_path / "again", "--no-figures")
    finally:
        for kind in ("work", "parts", "cohorts"):
            (tmp_path / kind).rename(folder / "out" / kind)
    assert {path.name: path.read_bytes() for path in (tmp_path / "again").glob("table*")} == first


def test_studies_of_other_folders_have_sections_of_their_own(ran, tmp_path):
    folder, document = ran[0], tmp_path / "results.md"
    shutil.copytree(folder / "out", tmp_path / "other", ignore=shutil.ignore_patterns("work", "cohorts"))
    for study in (folder / "out", tmp_path / "other", folder / "out"):
        invoke("tables", "make", study, "--out", tmp_path / "tables", "--no-figures", "--results", document)
    text = document.read_text()
    assert [text.count(f"<!-- begin tables {name} -->") for name in ("out", "other")] == [1, 1]


def test_a_study_is_checked_without_running_it(ran, tmp_path):
    folder, _ = ran
    said = invoke("tables", "run", "--config", folder / "study.yaml", "--out", tmp_path / "none", "--check")
    assert "Subjects: virtual (3 virtual)" in said
    assert not (tmp_path / "none").exists()


def test_models_that_are_not_trained_yet_are_left_out_by_name_where_that_is_asked_for(ran, tmp_path):
    out = shutil.copytree(ran[0] / "out", tmp_path / "out")
    (tmp_path / "study.yaml").write_text(f"{STUDY}\ntraining: {{size: smoke, runs: {{unet: {{method: unet}}}}}}\n")
    words = ["tables", "run", "--config", tmp_path / "study.yaml", "--out", out]
    for change in (
        "methods.unet={bundle: 'run:unet'}",
        "comparisons.closed.methods=[ade, ols-6, unet]",
        "comparisons.trained={title: trained, ours: unet, methods: [ade]}",
        "fits={fits: [ols], methods: [unet], subjects: 1}",
        *(f"{part}={{methods: [unet]}}" for part in ("sampling", "probe", "routing")),
        "runtime={methods: [ade, unet], devices: [cpu], repeats: 1}",
    ):
        words += ["--set", change]
    with pytest.raises(DataError, match="no model there"):
        invoke(*words, "--check")
    checked = invoke(*words, "--partial", "--check")
    assert "unet is left out: it is not trained yet.\n" in checked
    assert "Comparisons: closed; further experiments: fits, runtime\n" in checked
    said = invoke(*words, "--partial")
    assert "unet is left out: it is not trained yet.\n" in said
    table = (out / "tables" / "table02-components-closed-virtual.md").read_text()
    assert "| ade |" in table
    assert "unet" not in table
    with pytest.raises(DataError, match="no model there"):  # the whole study is still asked for where it is
        invoke(*words)


def test_a_folder_without_a_study_and_a_study_with_a_wrong_word_are_refused(ran, tmp_path):
    with pytest.raises(DataError, match="there is no study"):
        invoke("tables", "make", tmp_path)
    with pytest.raises(ConfigError, match="Did you mean"):
        invoke("tables", "run", "--config", ran[0] / "study.yaml", "--out", tmp_path, "--set", "keep_tensor=1")


def test_a_machine_that_cannot_draw_still_makes_the_tables(ran, tmp_path, monkeypatch):
    from tensorldm.cli import table_figures

    def no_pictures(stored, out):
        raise ToolError("No picture was drawn: matplotlib is not installed.")

    monkeypatch.setattr(table_figures, "draw_figures", no_pictures)
    said = invoke("tables", "make", ran[0] / "out", "--out", tmp_path / "tables")
    assert "No figures: No picture was drawn" in said
    assert list((tmp_path / "tables").glob("table02-*.tex"))


def test_a_study_without_training_has_nothing_to_train(ran, tmp_path):
    with pytest.raises(ConfigError, match="has no 'training'"):
        invoke("tables", "train", "--config", ran[0] / "study.yaml", "--out", tmp_path)
