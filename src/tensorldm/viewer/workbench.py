"""The main job inside the page: files come in, are checked, reconstructed, looked at, taken away as a zip, and removed.

One scan and one job at a time, in a temporary folder that goes when the server ends.
"""

import shutil
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from io import BufferedIOBase
from pathlib import Path
from typing import Any, Final

from tensorldm.errors import DataError, TensorldmError
from tensorldm.imaging.nifti import read_header
from tensorldm.reconstruct.files import Describe, Draw, check_files
from tensorldm.reconstruct.inputs import InputFiles
from tensorldm.reconstruct.naming import naming_for
from tensorldm.reconstruct.settings import Settings
from tensorldm.viewer.inbox import Inbox
from tensorldm.viewer.job import Job, Task
from tensorldm.viewer.scene import Shown, is_tensor, look_at

KEY: Final = "job"
"""Of the reconstruction that was made in the page."""
LARGEST_SERIES_BYTES: Final = 8 * 2**30
"""Unpacked, as float32."""
SECONDS_TO_WAIT: Final = 1.0
NUM_PARTS: Final = 9
"""Parts of a reconstruction, for the length of the progress bar."""


class BusyError(Exception):
    """A job is running, and there is one at a time."""


@dataclass(frozen=True)
class Means:
    """How scans are reconstructed."""

    model: Path | None = None
    method: str | None = None
    device: str = "auto"
    settings: Settings = field(default_factory=Settings)
    draw: Draw | None = None
    describe: Describe | None = None


class Workbench:
    """The state of the job; every method may be called from any thread."""

    def __init__(self, folder: Path, means: Means, *, finished: Callable[[Shown], None]) -> None:
        self._folder = folder
        self._means = means
        self._finished = finished
        self._inbox = Inbox(folder / "in")
        self._job: Job | None = None
        self._shown = False
        self._lock = threading.Lock()

    def receive(self, kind: str, stream: BufferedIOBase, *, size: int, name: str) -> None:
        """Take in one file of the next scan; an earlier result goes."""
        with self._lock:
            self._refuse_if_running()
            self._drop_result()
            self._inbox.receive(kind, stream, size=size, name=name)

    def check(self, *, force: bool) -> dict[str, Any]:
        """What headers and gradients tell of the scan, for the page."""
        with self._lock:
            task = self._task(self._inbox.scan(), force)
            try:
                return self._inspect(task)
            except TensorldmError as error:
                raise DataError(self._inbox.in_users_words(str(error))) from error

    def start(self, *, force: bool) -> None:
        """Begin to reconstruct the scan."""
        with self._lock:
            self._refuse_if_running()
            self._drop_result()
            self._job = Job(self._task(self._inbox.scan(), force))

    def status(self) -> dict[str, Any]:
        """How far the job is, for the page."""
        with self._lock:
            files = {kind: self._inbox.names[kind] for kind in self._inbox.paths}
            if self._job is None:
                return {"state": "idle", "files": files}
            state = self._job.look()
            if state == "done" and not self._shown:
                self._finished(self._result())
                self._shown = True
            return {
                "state": state,
                "files": files,
                "key": KEY,
                "parts": [{"name": _part(name), "after": round(after, 1)} for name, after in self._job.parts],
                "share": min(len(self._job.parts) / NUM_PARTS, 1.0) if state == "running" else 1.0,
                "seconds": round(self._job.seconds, 1),
                "lines": list(self._job.lines),
                "warnings": [self._inbox.in_users_words(word) for word in self._job.warnings],
                "message": self._inbox.in_users_words(self._job.message),
            }

    def cancel(self) -> None:
        """Stop the job, if one is running; the files of the scan stay, and so does a result."""
        with self._lock:
            if self._job is not None and self._job.look() == "running":
                self._job.cancel()
                self._empty(keep=self._inbox.folder)

    def discard(self) -> None:
        """Stop, and remove every file of the scan and of its result."""
        with self._lock:
            if self._job is not None:
                self._job.cancel()
            self._job, self._shown = None, False
            self._inbox.clear()
            self._empty()

    def end(self) -> None:
        """Stop the job, even while an upload that nobody finishes holds the lock; the folder goes with its owner."""
        held = self._lock.acquire(timeout=SECONDS_TO_WAIT)
        try:
            if self._job is not None:
                self._job.cancel()
        finally:
            if held:
                self._lock.release()

    def archive(self) -> Path | None:
        """The result as a zip file; None where there is none."""
        with self._lock:
            if self._job is None or self._job.state != "done":
                return None
            path = self._folder / "result.zip"
            if not path.is_file():
                _zip(self._out, path)
            return path

    @property
    def _out(self) -> Path:
        return self._folder / "out"

    def _task(self, scan: InputFiles, force: bool) -> Task:
        means = self._means
        settings = replace(means.settings, force=force)
        return Task(scan, self._out, means.model, means.method, means.device, settings, means.draw, means.describe)

    def _inspect(self, task: Task) -> dict[str, Any]:
        scan, request = task.scan, task.request()
        shape = read_header(scan.image).shape
        count = 1
        for side in shape:
            count *= side
        if count * 4 > LARGEST_SERIES_BYTES:
            raise DataError(
                f"{scan.image}: {shape} voxels are more than the page takes. Use `tensorldm reconstruct` in a terminal."
            )
        plan = check_files(scan, request, naming=naming_for(scan, alone=True)).plan
        return {
            "method": request.choice.traits.name,
            "shape": list(shape),
            "voxelSize": [round(side, 2) for side in plan.space.voxel_size],
            "shell": round(plan.selection.shell),
            "volumes": list(plan.used),
            "angles": [round(angle) for angle in plan.angles_degrees],
            "mask": "mask" in self._inbox.paths,
            "warnings": [self._inbox.in_users_words(word) for word in plan.warnings],
        }

    def _refuse_if_running(self) -> None:
        if self._job is not None and self._job.look() == "running":
            raise BusyError("A reconstruction is running. Wait for it, or cancel it first.")

    def _drop_result(self) -> None:
        self._job, self._shown = None, False
        self._empty(keep=self._inbox.folder)

    def _empty(self, *, keep: Path | None = None) -> None:
        """Remove what is in the folder, what an ended process left half-written too; the folder keeps its rights."""
        for path in self._folder.iterdir():
            if path.is_dir() and path != keep:
                shutil.rmtree(path, ignore_errors=True)
            elif not path.is_dir():
                path.unlink(missing_ok=True)

    def _result(self) -> Shown:
        tensor = next(path for path in self._out.rglob("*") if is_tensor(path))
        name = self._inbox.names.get("image", "scan")
        return replace(look_at(tensor, KEY), subject=name)


@contextmanager
def opened(means: Means, *, finished: Callable[[Shown], None]) -> Iterator[Workbench]:
    """A workbench whose temporary folder, readable by its owner only, is gone when the block ends, however it ends."""
    with tempfile.TemporaryDirectory(prefix="tensorldm-view-", ignore_cleanup_errors=True) as folder:
        bench = Workbench(Path(folder), means, finished=finished)
        try:
            yield bench
        finally:
            bench.end()


def _zip(folder: Path, path: Path) -> None:
    """Stored, not packed: images are packed already."""
    part = path.with_suffix(".part")
    with zipfile.ZipFile(part, "w", zipfile.ZIP_STORED) as archive:
        for each in sorted(folder.rglob("*")):
            inner = each.relative_to(folder)
            if each.is_file() and not any(part.startswith(".") for part in inner.parts):
                archive.write(each, Path("tensorldm") / inner)
    part.replace(path)


def _part(told: str) -> str:
    """Without the scan's name, which is ours."""
    return told.partition(": ")[2] or told
