"""A worker that was left behind, and the next run that sweeps its folder away."""

import shutil

import pytest

from tensorldm.errors import DataError
from tensorldm.imaging.atomic import write_text
from tensorldm.reconstruct.outputs import appearing
from tensorldm.work import debris


def test_what_another_run_cleared_away_does_not_appear_by_halves(tmp_path):
    """Writing makes missing folders, so the second file lies in a new folder of the old name."""
    out = tmp_path / "out"

    def left_behind():
        with appearing(out) as hidden:
            write_text(hidden / "fa.json", "{}")
            assert debris.sweep(out) == 1
            write_text(hidden / "md.json", "{}")

    with pytest.raises(DataError, match="another run cleared away"):
        left_behind()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("existing", [False, True])
def test_a_folder_that_is_being_swept_cannot_appear(tmp_path, monkeypatch, existing):
    out, remove = tmp_path / "out", shutil.rmtree
    if existing:
        out.mkdir()

    def in_mid_sweep(folder, **options):
        monkeypatch.setattr(shutil, "rmtree", remove)
        try:
            hand.__exit__(None, None, None)  # the owner has written its last file in this very moment
        finally:
            remove(folder, **options)

    hand = appearing(out)
    hidden = hand.__enter__()
    write_text(hidden / "fa.json", "{}")
    monkeypatch.setattr(shutil, "rmtree", in_mid_sweep)
    with pytest.raises(DataError, match="cannot be written"):
        debris.sweep(out)
    assert list(tmp_path.rglob("*")) == ([out] if existing else [])
