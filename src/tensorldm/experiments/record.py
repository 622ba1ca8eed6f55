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
    commit: str | None = None
    """Of the package's own repository, where it runs from one."""

    def to_json(self) -> dict[str, Any]:
        """For ``run.json``."""
        return {
            "Command": self.command,
            "Versions": self.versions,
            "Hardware": self.hardware,
            "Seed": self.seed,
            "Commit": self.commit,
        }

    def to_markdown(self) -> str:
        """For a document: the command as it can be typed, then one line."""
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        seed = "none, nothing is drawn at random" if self.seed is None else str(self.seed)
        commit = f" Commit: {self.commit}." if self.commit else ""
        return f"```\n{self.command}\n```\n\n{versions}. Hardware: {self.hardware}. Seed: {seed}.{commit}"


def record_run(arguments: Sequence[str], *, seed: int | None) -> RunRecord:
    """The record of a run of ``tensorldm`` with these arguments."""
    versions = {"Python": platform.python_version()}
    versions |= {name: _version(name) for name in PACKAGES}
    return RunRecord(
        command=shlex.join(["tensorldm", *arguments]),
        versions=versions,
        hardware=f"{processor_name()}, {os.cpu_count()} cores, device {_device()}",
        seed=seed,
        commit=read_commit(Path(__file__).parents[3]),
    )


def _device() -> str:
    """A GPU by its name; the processor has been named already."""
    found = describe_device()
    return "cpu" if found.startswith("cpu:") else found


def _version(name: str) -> str:
    """A package's version; some work is done where not all packages are installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def read_commit(repository: Path) -> str | None:
    """The commit that a repository's files belong to, from its own files; None where there is no repository."""
    git = repository / ".git"
    try:
        head = (git / "HEAD").read_text(encoding="utf-8").strip()
        if not head.startswith("ref: "):
            return head or None
        name = head.removeprefix("ref: ")
        if (git / name).is_file():
            return (git / name).read_text(encoding="utf-8").strip()
        packed = (git / "packed-refs").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    return next((line.split()[0] for line in packed if line.endswith(f" {name}")), None)


def own_arguments() -> list[str]:
    """The arguments that this program was started with."""
    return sys.argv[1:]


def processor_name() -> str:
    """The processor's name; Python itself does not know it on Linux."""
    listing = Path("/proc/cpuinfo")
    if listing.is_file():
        for line in listing.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
