"""What a stranger's file asks for is refused with a sentence before memory is taken; the peak is measured."""

import gzip
import json
import os
import tracemalloc
from contextlib import contextmanager

import nibabel
import numpy as np
import pytest

from tensorldm import bounded
from tensorldm.build import build_model
from tensorldm.bundle import INDEX, Card, load_bundle, write_bundle
from tensorldm.cohort.templates import fibre_files, packing
from tensorldm.cohort.templates.request import GridChoice, Request
from tensorldm.config.reading import read_config
from tensorldm.config.run import RunConfig
from tensorldm.errors import ConfigError, DataError
from tensorldm.imaging.gradient_files import read_mrtrix
from tensorldm.imaging.nifti import read_header, read_volume
from tensorldm.imaging.tensor_sidecar import read_sidecar
from tensorldm.imaging.volume import Space

MIB = 2**20
AFFINE = np.diag([-2.0, 2.0, 2.0, 1.0])
SPACE = Space((4, 4, 4), AFFINE)


@contextmanager
def at_most(num_bytes: int):
    """Memory taken inside the block, NumPy's included, stays below."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < num_bytes, f"{peak / MIB:.1f} MiB"


def header(shape: tuple[int, ...], *, dtype=np.float32, affine=AFFINE, offset: float = 352) -> bytes:
    """A NIfTI header alone, with a claim that nothing has to stand behind."""
    made = nibabel.Nifti1Header()
    made.set_data_shape(shape)
    made.set_data_dtype(dtype)
    made.set_sform(affine, 1)
    made["vox_offset"] = offset
    made["magic"] = b"n+1"
    return made.binaryblock + bytes(4)


FORTY_GB = (2000, 2000, 2500)


@pytest.mark.parametrize("suffix", [".nii", ".nii.gz"])
def test_forty_gigabytes_claimed_by_a_small_file_are_refused(suffix, tmp_path):
    path = tmp_path / f"x{suffix}"
    content = header(FORTY_GB)
    path.write_bytes(gzip.compress(content) if suffix == ".nii.gz" else content)
    with at_most(1 * MIB), pytest.raises(DataError, match=r"x\.nii.*claims .*2500.*more than the file can hold"):
        read_volume(path)


def test_forty_gigabytes_that_are_really_there_are_refused(tmp_path):
    path = tmp_path / "x.nii"
    path.write_bytes(header(FORTY_GB))
    os.truncate(path, 352 + 4 * 2000 * 2000 * 2500)  # a hole: it takes no room on the disk
    with at_most(1 * MIB), pytest.raises(DataError, match=r"37 GiB, over the limit of 32"):
        read_volume(path)


def test_more_than_this_machine_holds_is_refused_but_one_volume_of_it_is_read(tmp_path, monkeypatch):
    path = tmp_path / "x.nii.gz"
    nibabel.save(nibabel.Nifti1Image(np.ones((16, 16, 16, 100), np.int16), AFFINE), path)
    monkeypatch.setattr(bounded, "machine_bytes", lambda: 1 * MIB)
    with pytest.raises(DataError, match=r"takes at least 0\.0 GiB and this machine has 0\.0.*fewer volumes"):
        read_volume(path)
    assert read_volume(path, volumes=[7]).data.mean() == 1


def test_what_a_container_may_use_counts_and_not_what_its_host_has(tmp_path, monkeypatch):
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(bounded, "CGROUP_LIMITS", (limit,))
    limit.write_text("max\n")
    whole = bounded.machine_bytes()
    assert whole == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit.write_text(f"{256 * MIB}\n")
    assert bounded.machine_bytes() == min(whole, 256 * MIB)


def test_a_field_of_view_that_would_fill_memory_when_resampled_is_refused(tmp_path):
    path = tmp_path / "x.nii"
    path.write_bytes(header((1000, 1000, 1000), dtype=np.uint8, affine=np.diag([20.0, 20.0, 20.0, 1.0])))
    os.truncate(path, 352 + 1000**3)
    with at_most(1 * MIB), pytest.raises(DataError, match=r"field of view of 20 × 20 × 20 m"):
        read_header(path)


def test_gigabytes_of_notes_before_the_voxels_are_refused(tmp_path):
    path = tmp_path / "x.nii.gz"
    path.write_bytes(gzip.compress(header((4, 4, 4), offset=2.0**31)))
    with at_most(1 * MIB), pytest.raises(DataError, match=r"2048 MiB of notes"):
        read_header(path)


def test_of_a_gzip_that_goes_on_for_ever_only_what_the_header_asks_for_is_read(tmp_path):
    path = tmp_path / "x.nii.gz"
    path.write_bytes(gzip.compress(header((4, 4, 4)) + bytes(256 * MIB), compresslevel=1))
    with at_most(8 * MIB):
        assert read_volume(path).data.shape == (4, 4, 4)


@pytest.mark.parametrize("kind", ["anatomy", "fibres"])
def test_a_packed_template_is_unpacked_no_further_than_its_limit(kind, tmp_path, monkeypatch):
    bomb = gzip.compress(bytes(256 * MIB), compresslevel=1)
    module = packing if kind == "anatomy" else fibre_files
    monkeypatch.setattr(module, "LARGEST_BYTES", 8 * MIB)
    (tmp_path / "x.anatomy").write_bytes(bomb)
    (tmp_path / "x.fib.gz").write_bytes(bomb)
    read = {
        "anatomy": lambda: packing.load_anatomy(tmp_path / "x.anatomy"),
        "fibres": lambda: fibre_files.convert_fib(tmp_path, Request("x", "x", GridChoice())),
    }[kind]
    with at_most(40 * MIB), pytest.raises(DataError, match="more than 8 MiB"):
        read()


def test_texts_are_read_up_to_a_limit_even_where_they_never_end(tmp_path):
    for name in ("grad.b", "x.yaml"):
        (tmp_path / name).symlink_to("/dev/zero")
    with at_most(64 * MIB):
        with pytest.raises(DataError, match=r"grad\.b: not a table of numbers \(more than 16 MiB\)"):
            read_mrtrix(tmp_path / "grad.b", space=SPACE)
        with pytest.raises(ConfigError, match=r"x\.yaml: the configuration cannot be read \(more than 1 MiB\)"):
            read_config(RunConfig, tmp_path / "x.yaml")
    (tmp_path / "y.json").write_text("[" * 100_000)
    with pytest.raises(DataError, match=r"y\.json: not readable as JSON \(nested too deeply\)"):
        read_sidecar(tmp_path / "y.nii.gz")


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (
            ("autoencoder", "decoder_blocks"),
            10**9,
            r"'model\.autoencoder\.decoder_blocks' is 1e\+09, over the limit of 64",
        ),
        (("autoencoder", "num_codes"), 10**12, r"'model\.autoencoder\.num_codes' is 1e\+12"),
        (("diffusion", "num_steps"), 10**12, r"'model\.diffusion\.num_steps' is 1e\+12"),
        (("unet", "channels"), [16] * 10_000, r"the length of 'model\.unet\.channels' is 10000, over the limit of 16"),
    ],
)
def test_a_model_that_nobody_could_have_trained_is_refused_before_it_is_built(place, value, words, tmp_path):
    _write_changed(tmp_path, place, value)
    with at_most(16 * MIB), pytest.raises(DataError, match=words):
        load_bundle(tmp_path)


def test_a_model_with_a_width_of_zero_is_refused(tmp_path):
    _write_changed(tmp_path, ("unet", "channels"), [0, 0])
    with pytest.raises(DataError, match=r"settings of which no model can be built \(.*zero"):
        load_bundle(tmp_path)


def _write_changed(folder, place, value):
    """A whole bundle, one setting of whose model is another than its weights were made with."""
    config = read_config(RunConfig, "smoke").model
    write_bundle(folder, build_model(config).state_dict(), config=config, joint=("off", "off"), card=Card())
    index = json.loads((folder / INDEX).read_text())
    index["model"][place[0]][place[1]] = value
    (folder / INDEX).write_text(json.dumps(index))
