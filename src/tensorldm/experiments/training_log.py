"""What was trained for a study, a line for every run and session: minutes, steps, rate, validation, hardware.

Tables cite it in their captions, so that a budget that is claimed is the one that was spent.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tensorldm.errors import DataError
from tensorldm.experiments.recipes import RunReference, TrainingConfig
from tensorldm.imaging.atomic import write_text
from tensorldm.training.runlog import read_log

NAME: Final = "training.jsonl"
TRAINED: Final = "trained"


@dataclass(frozen=True)
class TrainingLog:
    """The file of a study."""

    path: Path

    @classmethod
    def of(cls, out: Path) -> "TrainingLog":
        """The log of a study's folder."""
        return cls(out / NAME)

    def add(self, run: str, event: str, **values: Any) -> None:
        """One more line; the file is whole at any time."""
        line = json.dumps({"run": run, "event": event, **values}, ensure_ascii=False, allow_nan=False)
        before = self.path.read_text(encoding="utf-8") if self.path.is_file() else ""
        write_text(self.path, f"{before}{line}\n")

    def records(self, run: str | None = None) -> list[dict[str, Any]]:
        """Every line, or those of a run, oldest first."""
        if not self.path.is_file():
            return []
        try:
            found = [json.loads(line) for line in self.path.read_text(encoding="utf-8").splitlines()]
        except ValueError as error:
            raise DataError(f"{self.path}: not lines of JSON ({error}). Mend or remove the file.") from error
        return [record for record in found if run is None or record["run"] == run]

    def minutes_by_clock(self, run: str) -> float:
        """All sessions of a run together, with opening, validating and writing."""
        return sum(float(record.get("session_minutes", 0.0)) for record in self.records(run))

    def budget(self, reference: RunReference, training: TrainingConfig) -> float:
        """Minutes of steps behind a run's weights, up to a stage of it, as the runs were begun with them.

        The study's settings say it where the log does not: what was trained elsewhere may have had other minutes.
        """
        trained = [record for record in self.records(reference.name) if record["event"] == TRAINED]
        if not trained or "minutes" not in trained[-1]:
            return training.minutes_with_start(reference.name, reference.stage)
        minutes = {int(stage): float(value) for stage, value in trained[-1]["minutes"].items()}
        own = sum(value for stage, value in minutes.items() if reference.stage is None or stage <= reference.stage)
        before = training.runs[reference.name].before
        return own + (self.budget(before, training) if before is not None else 0.0)

    def describe(self, reference: RunReference, training: TrainingConfig) -> str:
        """What is behind a method's weights, in a few words; nothing where the log does not say."""
        records = [record for record in self.records(reference.name) if record["event"] == TRAINED]
        if not records:
            return ""
        last = records[-1]
        budget = self.budget(reference, training)
        words = [f"{budget:.3g} minutes of training"] if budget else []
        until = training.runs[reference.name].last_stage if reference.stage is None else reference.stage
        steps = {stage: count for stage, count in last["steps"].items() if int(stage) <= until}
        words.append(", ".join(f"Stage {stage}: {count} steps" for stage, count in steps.items()))
        if training.runs[reference.name].start:
            words.append(f"from {training.runs[reference.name].start}")
        if last.get("rate_factor", 1.0) != 1.0:
            tried = last.get("rate_stages", training.runs[reference.name].tried)
            where = ", ".join(str(stage) for stage in tried if stage <= until)
            words.append(f"{last['rate_factor']:g} times the preset's learning rate" + (where and f" in Stage {where}"))
        return "; ".join([*words, str(last["hardware"])])


def steps_of(run: Path) -> dict[str, int]:
    """Steps of each stage, from a run's own log."""
    found: dict[str, int] = {}
    for record in read_log(run) if (run / "log.jsonl").is_file() else []:
        if record["event"] == "train":
            found[str(record["stage"])] = int(record["step"])
    return found
