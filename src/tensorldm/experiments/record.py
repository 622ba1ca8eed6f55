"""What a result was made with: command, versions and hardware, so that it can be made again."""

import importlib.metadata
import os
import platform
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tensorldm.doctor import describe_device

PACKAGES = ("tensorldm", "torch", "numpy", "scipy", "nibabel", "dipy")


@dataclass(frozen=True)
class RunRecord:
    """Everything outside the data that a figure may depend on."""

    command: str
    versions: dict[str, str]
    hardware: str
    seed: int | None
    """None where nothing is drawn at random."""

    def to_json(self) -> dict[str, Any]:
        """For ``run.json``."""
        return {
            "Command": self.command,
            "Versions": self.versions,
            "Hardware": self.hardware,
            "Seed": self.seed,
        }

    def to_markdown(self) -> str:
        """For a document: the command as it can be typed, then one line."""
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        seed = "none, nothing is drawn at random" if self.seed is None else str(self.seed)
        return f"```\n{self.command}\n```\n\n{versions}. Hardware: {self.hardware}. Seed: {seed}."


def record_run(arguments: Sequence[str], *, seed: int | None) -> RunRecord:
    """The record of a run of ``tensorldm`` with these arguments."""
    versions = {"Python": platform.python_version()}
    versions |= {name: importlib.metadata.version(name) for name in PACKAGES}
    return RunRecord(
        command=shlex.join(["tensorldm", *arguments]),
        versions=versions,
        hardware=f"{_processor()}, {os.cpu_count()} cores, device {describe_device().partition(':')[0]}",
        seed=seed,
    )


def own_arguments() -> list[str]:
    """The arguments that this program was started with."""
    return sys.argv[1:]


def _processor() -> str:
    """The processor's name; Python itself does not know it on Linux."""
    listing = Path("/proc/cpuinfo")
    if listing.is_file():
        for line in listing.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
