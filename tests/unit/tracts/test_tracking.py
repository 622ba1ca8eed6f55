import json
import shutil

import numpy as np
import pytest

from tensorldm.errors import ConfigError, DataError, ToolError
from tensorldm.imaging.tensor_files import write_tensor
from tensorldm.tracts.core import core_distance, find_core
from tensorldm.tracts.dipy_engine import DipyEngine
from tensorldm.tracts.engine import TensorField, open_engine
from tensorldm.tracts.regions import Region, look_up
from tensorldm.tracts.settings import TrackSettings
from tensorldm.tracts.streamlines import Streamlines
from tensorldm.tracts.tck import read_tck
from tensorldm.tracts.tracking import read_field, track_field

FEW = TrackSettings(seeds=300)
ENGINES = [pytest.param("mrtrix", marks=pytest.mark.mrtrix), "dipy"]
TURN = np.linalg.qr(np.random.default_rng(4).normal(size=(3, 3)))[0]
GRIDS = {
    "RAS": np.eye(3),
    "LAS": np.diag([-1.0, 1, 1]),
    "PSR": np.array([[0.0, 0, 1], [-1, 0, 0], [0, 1, 0]]),
    "oblique": TURN * np.sign(np.linalg.det(TURN)),
}


def tracked(field, folder, engine, settings=FEW, **options):
    result = track_field(field.cropped(), folder / "whole", settings=settings, engine=open_engine(engine), **options)
    return read_tck(result.tck)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("grid", GRIDS)
def test_streamlines_follow_the_fibres_on_every_grid(curved, true_arc, engine, grid, tmp_path):
    lines = tracked(curved(GRIDS[grid]), tmp_path, engine)
    assert len(lines) > 100
    assert np.median(lines.lengths_mm) > 55  # of 94 mm: most go most of the way
    long = lines.chosen(lines.lengths_mm > 80)
    # A cubic through half a circle of 30 mm is 1 mm off at most.
    assert core_distance(true_arc, find_core(long)) < 1


@pytest.mark.mrtrix
def test_both_engines_find_the_same_core(curved, tmp_path):
    cores = {}
    for engine in ("mrtrix", "dipy"):
        lines = tracked(curved(), tmp_path / engine, engine)
        cores[engine] = find_core(lines.chosen(lines.lengths_mm > 70))
    assert core_distance(cores["mrtrix"], cores["dipy"]) < 1


@pytest.mark.mrtrix
@pytest.mark.parametrize("algorithm", ["deterministic", "first-order"])
def test_the_other_algorithms_follow_the_fibres_too(curved, true_arc, algorithm, tmp_path):
    lines = tracked(curved(GRIDS["LAS"]), tmp_path, "mrtrix", TrackSettings(algorithm, seeds=200))
    assert core_distance(true_arc, find_core(lines.chosen(lines.lengths_mm > 60))) < 1.5


def test_dipy_tracks_deterministically_too_and_has_no_first_order(curved, true_arc, tmp_path):
    lines = tracked(curved(), tmp_path, "dipy", TrackSettings("deterministic", seeds=200))
    assert core_distance(true_arc, find_core(lines.chosen(lines.lengths_mm > 60))) < 1.5
    with pytest.raises(ConfigError, match="needs MRtrix3"):
        tracked(curved(), tmp_path, "dipy", TrackSettings("first-order", seeds=200))


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr("tensorldm.tracts.seeds.CHUNK_SEEDS", 60)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_same_seed_gives_the_same_bytes_however_many_work(curved, engine, small_chunks, tmp_path):
    files = []
    for place, workers in (("one", 1), ("three", 3)):
        tracked(curved(), tmp_path / place, engine, workers=workers)
        files.append([(tmp_path / place / f"whole.{kind}").read_bytes() for kind in ("tck", "trx", "json")])
    assert files[0] == files[1]
    other = tracked(curved(), tmp_path / "other", engine, TrackSettings(seeds=300, seed=1))
    assert not np.array_equal(other.points, read_tck(tmp_path / "one" / "whole.tck").points)


@pytest.mark.parametrize("engine", ENGINES)
def test_streamlines_stay_in_the_mask_and_have_allowed_lengths(curved, engine, tmp_path):
    field = curved()
    lines = tracked(field, tmp_path, engine, TrackSettings(seeds=300, min_length_mm=30.0, max_length_mm=60.0))
    assert look_up(Region(field.mask, field.space), lines.points).mean() > 0.95
    assert len(lines) > 10
    assert lines.lengths_mm.min() >= 29
    assert lines.lengths_mm.max() <= 62


class Counting(DipyEngine):
    """Gives a line for each chunk, counts them, and may be interrupted."""

    def __init__(self, fail_at=None):
        super().__init__()
        self.tracked, self.fail_at = [], fail_at

    def prepare(self, field, settings, *, scratch):
        def track(chunk):
            if chunk.index == self.fail_at:
                raise KeyboardInterrupt
            self.tracked.append(chunk.index)
            return Streamlines.of([np.array([[chunk.index, 0.0, 0], [1, 1, 1]])])

        return track


def test_a_stopped_run_goes_on_where_it_was(curved, small_chunks, tmp_path):
    field = curved().cropped()
    with pytest.raises(KeyboardInterrupt):
        track_field(field, tmp_path / "whole", settings=FEW, engine=Counting(fail_at=3))
    assert [path.name for path in tmp_path.iterdir()] == [next(tmp_path.glob(".whole.*.parts")).name]
    seen = []
    again = Counting()
    result = track_field(field, tmp_path / "whole", settings=FEW, engine=again, watch=lambda *at: seen.append(at))
    assert again.tracked == [3, 4]
    assert seen == [(3, 5), (4, 5), (5, 5)]
    assert result.streamlines == 5
    assert [line[0, 0] for line in read_tck(result.tck)] == [0, 1, 2, 3, 4]  # joined in order
    assert sorted(path.name for path in tmp_path.iterdir()) == ["whole.json", "whole.tck", "whole.trx"]


def test_what_is_there_is_not_made_again_but_anything_else_is(curved, tmp_path):
    field = curved().cropped()
    first = track_field(field, tmp_path / "whole", settings=FEW, engine=Counting())
    again = track_field(field, tmp_path / "whole", settings=FEW, engine=Counting(fail_at=0))
    assert (first.was_there, again.was_there) == (False, True)
    assert again.streamlines == first.streamlines
    changed = TensorField(field.packed * np.float32(1.01), field.mask, field.space)
    for other, settings in ((changed, FEW), (field, TrackSettings(seeds=300, cutoff=0.2))):
        engine = Counting()
        track_field(other, tmp_path / "whole", settings=settings, engine=engine)
        assert engine.tracked


def test_the_sidecar_says_how_to_make_the_same_again(curved, tmp_path):
    tracked(curved(), tmp_path, "dipy", notes={"Method": "ours"})
    notes = json.loads((tmp_path / "whole.json").read_text())
    assert notes["Method"] == "ours"
    assert notes["Engine"].startswith("DIPY")
    assert notes["Settings"]["seeds"] == 300
    assert notes["OrientationDistribution"]["Power"] == 4
    assert len(notes["ChunkRandomSeeds"]) == 1
    assert "probabilistic_tracking" in notes["Command"]


@pytest.mark.parametrize("engine", ENGINES)
def test_an_isotropic_brain_gives_an_empty_tractogram(curved, engine, tmp_path):
    field = curved()
    round_ = np.where(field.mask[..., None], np.float32([1e-3, 1e-3, 1e-3, 0, 0, 0]), np.float32(0))
    lines = tracked(TensorField(round_, field.mask, field.space), tmp_path, engine)
    assert len(lines) == 0
    assert json.loads((tmp_path / "whole.json").read_text())["Streamlines"] == 0


@pytest.mark.parametrize("suffix", [".nii", ".nii.gz"])
def test_the_sidecar_of_an_image_is_never_replaced_by_that_of_streamlines(curved, suffix, tmp_path):
    field = curved()
    write_tensor(tmp_path / f"tensor{suffix}", field.packed, space=field.space)
    before = (tmp_path / "tensor.json").read_text()
    with pytest.raises(DataError, match=rf"tensor{suffix}: its sidecar would be replaced.*--out"):
        track_field(field.cropped(), tmp_path / "tensor", settings=FEW, engine=Counting())
    assert (tmp_path / "tensor.json").read_text() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tensor.json", f"tensor{suffix}"]


def test_a_failing_program_leaves_no_tractogram(curved, tmp_path):
    class Failing(Counting):
        def prepare(self, field, settings, *, scratch):
            raise ToolError("tckgen failed")

    with pytest.raises(ToolError):
        track_field(curved().cropped(), tmp_path / "whole", settings=FEW, engine=Failing())
    assert not list(tmp_path.glob("whole*"))


def test_cropping_moves_nothing_in_the_world(curved):
    field = curved(GRIDS["oblique"])
    small = field.cropped()
    assert small.mask.sum() == field.mask.sum()
    assert not small.mask[[0, -1]].any()
    here, there = (np.argwhere(f.mask) @ f.space.affine[:3, :3].T + f.space.affine[:3, 3] for f in (field, small))
    assert np.allclose(here, there)
    assert np.array_equal(field.packed[field.mask], small.packed[small.mask])


def test_a_mask_of_another_grid_and_broken_tensors_are_told(curved, tmp_path):
    field = curved()
    path = tmp_path / "tensor.nii.gz"
    write_tensor(path, field.packed, space=field.space)
    elsewhere = field.space.moved(field.space.shape, np.diag([1.0, 1, 1.2, 1]))
    with pytest.raises(DataError, match=r"tensor.nii.gz: its grid .* is not that of the mask"):
        read_field(path, field.mask, space=elsewhere)
    broken = field.packed.copy()
    broken[field.mask] = np.nan
    write_tensor(path, broken, space=field.space)
    with pytest.raises(DataError, match="NaN or infinite"):
        read_field(path, field.mask, space=field.space)


@pytest.mark.parametrize(
    "wrong", [{"algorithm": "magic"}, {"seeds": 0}, {"cutoff": 1.5}, {"min_length_mm": 90.0, "max_length_mm": 30.0}]
)
def test_settings_that_cannot_be_are_told(wrong):
    with pytest.raises(ConfigError):
        TrackSettings(**wrong)


def test_no_scratch_is_left_behind(curved, tmp_path, monkeypatch):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    tracked(curved(), tmp_path / "out", "mrtrix" if shutil.which("tckgen") else "dipy")
    assert not list(scratch.iterdir())
