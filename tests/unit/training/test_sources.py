"""Where training subjects come from."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tensorldm.cohort.config import read_cohort
from tensorldm.cohort.procedural import ProceduralSource
from tensorldm.cohort.sources import open_source as open_cohort
from tensorldm.cohort.templates import save_anatomy
from tensorldm.config.training import DataConfig
from tensorldm.errors import ConfigError, DataError
from tensorldm.training.sources import open_source

COARSE = ("shape=[16, 16, 16]", "voxel_mm=[11, 11, 11]")
SETTINGS = DataConfig(anatomies=2, cohort_set=COARSE)


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two packed anatomies for training, none for validation."""
    folder = tmp_path_factory.mktemp("anatomies")
    heads = ProceduralSource("test", 2, shape=(16, 16, 16), voxel_size=(11.0, 11.0, 11.0), bundles=())
    for name, head in zip(("ann", "bob"), heads.names, strict=True):
        save_anatomy(folder / f"{name}.anatomy", replace(heads.load(head), name=name, source=name))
    rows = ("name\tperson\tsplit", "ann\tann\ttrain", "bob\tbob\ttrain")
    (folder / "manifest.tsv").write_text("\n".join(rows) + "\n")
    return folder


def _open(where: str) -> object:
    return open_source(where, SETTINGS, device=torch.device("cpu"))


def test_joined_sources_give_the_anatomies_of_all(packed):
    joined = _open(f"cohort:procedural+templates:{packed}")
    assert joined.num_anatomies == 4
    drawn = {joined.volumes((16, 16, 16)).batch(seed=0, position=p, size=1).subjects[0] for p in range(12)}
    assert {name.split("@")[0] for name in drawn} >= {"ann", "bob"}


def test_procedural_heads_stand_in_where_a_folder_has_none_for_validation(packed):
    source = _open(f"cohort:templates:{packed}")
    subjects = source.validation_subjects(1, box=(16, 16, 16), device=torch.device("cpu"), seed=0)
    assert subjects[0].subjects[0].startswith("procedural/validation/")


def test_a_description_keeps_the_folders_name_and_not_its_place(packed):
    description = _open(f"cohort:templates:{packed}/").description
    assert f"templates:{packed.name}, 2 anatomies" in description
    assert str(packed.parent) not in description


def test_an_anatomy_that_two_sources_hold_is_refused(packed):
    with pytest.raises(ConfigError, match="'ann' is in two of the joined sources"):
        _open(f"cohort:templates:{packed}+templates:{packed}")


def test_anatomies_on_different_grids_are_refused(packed):
    finer = DataConfig(anatomies=1, cohort_set=("shape=[20, 20, 20]", "voxel_mm=[9, 9, 9]"))
    with pytest.raises(DataError, match=r"different grids.*16×16×16 at 11 mm and 20×20×20 at 9 mm"):
        open_source(f"cohort:procedural+templates:{packed}", finer, device=torch.device("cpu"))


def test_an_unknown_source_is_named_with_its_option():
    with pytest.raises(ConfigError, match=r"^--source mars: there is no such source"):
        open_cohort("mars", "train", settings=read_cohort("cohort", COARSE), subjects=1)
