"""The demo as a newcomer runs it, on a coarse grid so that it takes seconds."""

import re
import runpy
from pathlib import Path

import nibabel
import numpy as np
import pytest
from typer.testing import CliRunner

from tensorldm.cli import verbs  # noqa: F401  registers the verbs
from tensorldm.cli.main import app
from tensorldm.evaluation.table import read_table
from tensorldm.imaging.gradients import read_gradients
from tensorldm.imaging.tensor_files import read_convention, read_provenance


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def output(folder: Path) -> str:
    """What the demo prints."""
    answer = CliRunner().invoke(app, ["demo", "--out", str(folder), "--voxel-size", "4"], catch_exceptions=False)
    assert answer.exit_code == 0
    return answer.output


def test_the_demo_says_where_its_results_are(output, folder):
    assert "The results are in" in output
    assert f"Open {folder / 'overview.png'} first" in output
    assert (folder / "overview.png").stat().st_size > 10_000
    for name in ("scan/dwi.nii.gz", "minimum-norm/tensor.nii.gz", "table.csv", "overview.png"):
        assert (folder / name).is_file()
        assert Path(name).name in output


@pytest.mark.usefixtures("output")
class TestWhatTheDemoLeaves:
    def test_the_scan_has_four_volumes_with_their_gradients(self, folder):
        gradients = read_gradients(folder / "scan" / "dwi.nii.gz")
        assert gradients.bvals.tolist() == [0, 1000, 1000, 1000]
        assert np.abs(gradients.directions[1:]).argmax(axis=1).tolist() == [0, 1, 2]

    def test_the_tensor_was_made_from_those_four(self, folder):
        known = read_provenance(folder / "minimum-norm" / "tensor.nii.gz")
        assert (known.method, known.volumes) == ("minimum-norm", (0, 1, 2, 3))

    def test_every_map_is_there_and_lies_on_the_scans_grid(self, folder):
        scan = nibabel.load(folder / "scan" / "dwi.nii.gz")
        for name in ("fa", "md", "rd", "ad", "colour_fa", "v1"):
            image = nibabel.load(folder / "minimum-norm" / f"{name}.nii.gz")
            assert image.shape[:3] == scan.shape[:3]
            np.testing.assert_allclose(image.affine, scan.affine)

    def test_the_figures_are_those_of_a_brain_seen_through_three_directions(self, folder):
        rows = read_table(folder / "table.csv")
        found = {(row.method, row.quantity, row.metric): row.value for row in rows}
        for method in ("minimum-norm", "ade"):
            assert 0.1 < found[method, "tensor", "lem"] < 1.0
            assert found[method, "MD", "nmse"] < 0.05
            assert 15 < found[method, "tensor", "v1_median_degrees"] < 50


@pytest.mark.usefixtures("output")
def test_the_python_lines_of_getting_started_work_on_the_demos_scan(folder, monkeypatch):
    document = (Path(__file__).parents[2] / "docs" / "getting-started.md").read_text()
    (lines,) = re.findall(r"```python\n(.*?)```", document, flags=re.DOTALL)
    monkeypatch.chdir(folder)
    runpy.run_path(_saved(folder / "lines.py", lines))
    assert read_convention(folder / "mine" / "tensor.nii.gz") == "mrtrix"
    ours, demos = (nibabel.load(folder / name / "md.nii.gz").get_fdata() for name in ("mine", "minimum-norm"))
    inside = (ours > 0) & (demos > 0)
    assert inside.sum() > 10_000
    np.testing.assert_allclose(ours[inside], demos[inside], rtol=1e-4)


def _saved(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_without_the_drawing_library_the_demo_goes_on_with_a_word(tmp_path, monkeypatch):
    from tensorldm import demo
    from tensorldm.errors import ToolError

    def no_library(*_arguments, **_more):
        raise ToolError("No picture was drawn: matplotlib is not installed.")

    monkeypatch.setattr(demo, "draw_overview", no_library)
    result = demo.run_demo(tmp_path, seed=1, voxel_size=6.0, tell=lambda _: None)
    assert result.picture is None
    assert result.remark is not None
    assert "matplotlib" in result.remark
    assert result.table.is_file()


def test_the_same_seed_makes_the_same_scan_and_another_seed_another():
    from tensorldm.demo import make_virtual_scan

    one, again, other = (make_virtual_scan(seed, voxel_size=6.0) for seed in (3, 3, 4))
    assert one.dwi.equal(again.dwi)
    assert one.components.equal(again.components)
    assert not one.dwi.equal(other.dwi)
