"""Results on the disk: one small table for each subject and method, so that a stopped study goes on where it was.

study.yaml                                   the settings that gave the results
run.json                                     command, versions, hardware, commit, remarks
EXPERIMENT.GROUP.csv                         the long tables: what the published ones are made from
parts/EXPERIMENT/GROUP/SUBJECT/METHOD-KEY.csv   finished parts; the key is a hash of all that decides the figures
work/GROUP/SUBJECT/                          masks, references and tensors
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tensorldm.data.store import safe_name
from tensorldm.evaluation.table import Row, read_table, write_table

KEY_LENGTH = 12


@dataclass(frozen=True)
class Part:
    """The figures of one method on one subject."""

    experiment: str
    group: str
    subject: str
    label: str
    """What the long table calls the method, with the varied setting."""
    key: str
    """Other settings, another key: a figure is never taken for one that was made otherwise."""

    @property
    def place(self) -> Path:
        """Relative to the folder of parts."""
        folder = Path(safe_name(self.experiment)) / safe_name(self.group) / safe_name(self.subject)
        return folder / f"{safe_name(self.label)}-{self.key}.csv"


@dataclass(frozen=True)
class Results:
    """The folder of a study."""

    root: Path

    def missing(self, parts: Sequence[Part]) -> list[Part]:
        """Those that have not been measured."""
        return [part for part in parts if not self._path(part).is_file()]

    def write(self, part: Part, rows: Sequence[Row]) -> None:
        """Keep a finished part."""
        write_table(self._path(part), rows)

    def join(self, experiment: str, group: str, *, parts: Sequence[Part]) -> list[Row]:
        """The long table of an experiment from the parts that are there; it is written, unless there are none."""
        return self._joined(experiment, group, [self._path(part) for part in parts if self._path(part).is_file()])

    def join_keys(self, experiment: str, group: str, *, subject: str, keys: Sequence[str]) -> list[Row]:
        """The same from all parts of a subject with these keys, whichever machine they were made on."""
        folder = self.root / "parts" / safe_name(experiment) / safe_name(group) / safe_name(subject)
        paths = [path for key in dict.fromkeys(keys) for path in sorted(folder.glob(f"*-{key}.csv"))]
        return self._joined(experiment, group, paths)

    def _joined(self, experiment: str, group: str, paths: Sequence[Path]) -> list[Row]:
        # The reference's own rows come with every method, and are kept once.
        rows = list(dict.fromkeys(row for path in paths for row in read_table(path)))
        if rows:
            write_table(self.table(experiment, group), rows)
        return rows

    def table(self, experiment: str, group: str) -> Path:
        """Where a long table stands."""
        return self.root / f"{safe_name(experiment)}.{safe_name(group)}.csv"

    def read(self, experiment: str, group: str) -> list[Row]:
        """The rows of a long table; none where the experiment was not run."""
        path = self.table(experiment, group)
        return read_table(path) if path.is_file() else []

    def work(self, group: str, subject: str) -> Path:
        """The folder of a subject's images."""
        return self.root / "work" / safe_name(group) / safe_name(subject)

    def _path(self, part: Part) -> Path:
        return self.root / "parts" / part.place


def key_of(**what: Any) -> str:
    """A short hash of everything that decides a figure."""
    text = json.dumps(what, sort_keys=True, default=str, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:KEY_LENGTH]
