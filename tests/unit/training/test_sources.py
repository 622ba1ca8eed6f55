"""Where training subjects come from."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tensorldm.cohort.config import read_cohort
from tensorldm.cohort.procedural import ProceduralSource
from tensorldm.cohort.sources import open_source as open_cohort
from tensorldm.cohort.stream import VirtualStream
from tensorldm.cohort.templates import save_anatomy
from tensorldm.config.training import DataConfig
from tensorldm.errors import ConfigError, DataError
from tensorldm.training import opened
from tensorldm.training.opened import Waiting, let_go
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


@pytest.fixture
def made(monkeypatch) -> list[str]:
    """What is made anew: an anatomy by its name, a head by its position."""
    let_go()
    names: list[str] = []
    load, item = ProceduralSource.load, VirtualStream._item
    monkeypatch.setattr(
        ProceduralSource, "load", lambda self, name, **more: (names.append(name), load(self, name, **more))[1]
    )
    monkeypatch.setattr(
        VirtualStream, "_item", lambda self, seed, at: (names.append(f"{seed}-{at}"), item(self, seed, at))[1]
    )
    return names


REPLAYED = SETTINGS.model_copy(update={"replays": 2, "patches_per_subject": 2, "replay_window": 4, "replay_group": 2})
BOX = (16, 16, 16)


def test_stages_and_runs_of_a_process_share_anatomies_and_the_first_heads(made):
    def first_steps() -> list[torch.Tensor]:
        source = open_source("cohort:procedural", REPLAYED, device=torch.device("cpu"))
        held_out = source.validation_subjects(2, box=BOX, device=torch.device("cpu"), seed=0)
        heads = [source.volumes(BOX).batch(seed=0, position=place, size=1) for place in range(8)]
        patches = [source.patches(BOX).batch(seed=0, position=place, size=1) for place in range(8)]
        return [batch.dwi for batch in (*held_out, *heads, *patches)]

    first, count = first_steps(), len(made)
    assert len(set(made)) == count, "nothing is made twice within a stage, nor for its patches"
    again = first_steps()
    assert len(made) == count
    let_go()
    anew = first_steps()
    assert len(made) == 2 * count
    for one, two, three in zip(first, again, anew, strict=True):
        assert torch.equal(one, two)
        assert torch.equal(one, three)


def test_what_decides_an_anatomy_is_not_shared_with_what_has_another(made, packed):
    def anatomies_made(where: str = "procedural", **changes: object) -> int:
        before = len(made)
        open_source(f"cohort:{where}", SETTINGS.model_copy(update=changes), device=torch.device("cpu"))
        return len(made) - before

    assert anatomies_made() == 2
    assert anatomies_made() == 0
    assert anatomies_made(replays=3) == 0, "how often a head is learned from changes no anatomy"
    assert anatomies_made(anatomies=3) == 3
    assert anatomies_made(cohort_set=(*COARSE, "variation.rim=[0, 0]")) == 2
    assert anatomies_made(f"procedural+templates:{packed}") == 2
    assert anatomies_made(f"procedural+templates:{packed}") == 0
    (packed / "ann.anatomy").touch()
    assert anatomies_made(f"procedural+templates:{packed}") == 2


def test_only_two_opened_streams_and_so_many_heads_wait(made):
    for anatomies in (1, 2, 3):
        settings = SETTINGS.model_copy(update={"anatomies": anatomies})
        open_source("cohort:procedural", settings, device=torch.device("cpu"))
    assert len(opened._opened) == opened.SPLITS_KEPT
    stream = next(reversed(opened._opened.values())).made
    one = opened.num_bytes(stream.batch(seed=0, position=0, size=1))
    for waiting in (
        Waiting(stream, 2, torch.device("cpu"), 100 * one),
        Waiting(stream, 9, torch.device("cpu"), 2 * one),
    ):
        made.clear()
        for place in (0, 1, 2, 0, 1, 2):
            waiting.batch(seed=0, position=place, size=1)
        assert made == ["0-0", "0-1", "0-2", "0-2"]
