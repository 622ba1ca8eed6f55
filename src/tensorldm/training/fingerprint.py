"""What a stage's weights depend on. A run goes on only where all of it is the same, and says what is not."""

import json
from pathlib import Path
from typing import Any

from tensorldm.config.run import RunSettings
from tensorldm.errors import ConfigError, DataError
from tensorldm.imaging.atomic import write_json

NAME = "stage.json"
LONGEST_VALUE = 60


def fingerprint(
    config: RunSettings, stage: int, *, data: str, cohort: dict[str, Any], start: str, samples_per_step: int
) -> dict[str, Any]:
    """Every setting that changes this stage's weights, by dotted name; how often to save or validate does not."""
    values = config.model_dump(mode="json")
    relevant = {name: values[name] for name in ("seed", "model", "data", "average")}
    relevant["cohort"] = cohort
    relevant["stages"] = {str(stage): values["stages"][str(stage)]}
    relevant["hardware"] = {"precision": values["hardware"]["precision"]}
    run = {"--data": data, "start": start, "samples_per_step": samples_per_step}
    return {**_flat(relevant), **run}


def check_fingerprint(folder: Path, now: dict[str, Any], *, stage: int) -> None:
    """Refuse to go on with other settings than the stage was begun with; note them where it begins."""
    path = folder / NAME
    if not path.exists():
        write_json(path, now)
        return
    try:
        before = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read ({error}). Train this stage anew with --restart.") from error
    changed = [key for key in sorted({*before, *now}) if _switched(before.get(key)) != _switched(now.get(key))]
    if changed:
        told = "; ".join(f"{key} was {_short(before.get(key))}, is now {_short(now.get(key))}" for key in changed)
        raise ConfigError(
            f"{folder}: Stage {stage} was begun with other settings ({told}). "
            "Use those of before, give another --out, or train it anew with --restart."
        )


def _switched(value: Any) -> Any:
    """A switch that is off decides as little as one that there was not yet: what was begun before it goes on."""
    return None if value is False else value


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"
