"""MRtrix3: found, its version checked, one command at a time with one thread, its errors told in a sentence."""

import logging
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Final

from tensorldm.errors import ToolError
from tensorldm.tracts.programs import as_typed, ask_version, run_program

LOG: Final = logging.getLogger(__name__)
LEAST_VERSION: Final = (3, 0, 0)
VERSION_SECONDS: Final = 30.0
INSTALL: Final = "Install MRtrix3 3.0 or later (www.mrtrix.org), or track with --engine dipy."


@dataclass(frozen=True)
class Mrtrix:
    """An installed MRtrix3."""

    tckgen: Path
    version: str
    stop: Event = field(default_factory=Event)
    """Set it to end whatever runs."""

    def run(self, arguments: Sequence[str | Path], *, seed: int) -> None:
        """Run ``tckgen`` with these arguments, one thread and this random seed; a failure is a ``ToolError``."""
        command = [str(self.tckgen), *map(str, arguments), "-nthreads", "0", "-quiet"]
        LOG.info("MRTRIX_RNG_SEED=%d %s", seed, as_typed(command))
        environment = {**os.environ, "MRTRIX_RNG_SEED": str(seed)}
        ended = run_program(command, environment=environment, stop=self.stop, install=INSTALL)
        if ended.code and not self.stop.is_set():
            raise ToolError(f"tckgen failed: {_reason(ended.words) or f'exit code {ended.code}'}. {INSTALL}")


def find_mrtrix() -> Mrtrix | None:
    """The MRtrix3 on the path, or None; one that is too old or broken is a ``ToolError``."""
    found = shutil.which("tckgen")
    if found is None:
        return None
    version = _version(ask_version(found, "-version", seconds=VERSION_SECONDS, install=INSTALL))
    if version is None:
        raise ToolError(f"{found}: does not say which version it is. {INSTALL}")
    if version < LEAST_VERSION:
        raise ToolError(f"{found}: version {'.'.join(map(str, version))} is too old. {INSTALL}")
    return Mrtrix(Path(found), ".".join(map(str, version)))


def need_mrtrix() -> Mrtrix:
    """The MRtrix3 on the path; a ``ToolError`` where there is none."""
    found = find_mrtrix()
    if found is None:
        raise ToolError(f"tckgen is not on the path. {INSTALL}")
    return found


def _version(words: str) -> tuple[int, ...] | None:
    found = re.search(r"tckgen (\d+)\.(\d+)\.(\d+)", words)
    return None if found is None else tuple(int(part) for part in found.groups())


def _reason(words: str) -> str:
    """What MRtrix3 says went wrong, on one line and without its own name in front."""
    errors = [line.partition("[ERROR]")[2].strip() for line in words.splitlines() if "[ERROR]" in line]
    return "; ".join(error for error in errors if error) or words.strip().replace("\n", " ")
