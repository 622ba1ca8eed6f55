"""Scans without a result, and why: kept in the derivative, so that the group level can list them."""

from pathlib import Path
from typing import Final

from tensorldm.config.reading import Strict
from tensorldm.work.journal import Journal

FOLDER: Final = Path(".tensorldm") / "failed"


class Failure(Strict):
    """One scan."""

    name: str
    reason: str
    """One sentence."""


def failures_of(out: Path) -> Journal[Failure]:
    """What is known to have failed in an output folder."""
    return Journal(out / FOLDER, Failure)
