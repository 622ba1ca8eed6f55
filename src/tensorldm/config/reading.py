"""From a preset's name or a YAML file plus ``a.b=c`` overrides to a checked, frozen object.

PyYAML is loaded when a YAML text is read or written: the schemas of bundles and journals do not need it.
"""

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from tensorldm import bounded
from tensorldm.errors import ConfigError

PRESETS = Path(__file__).parent.parent / "presets"
LARGEST_BYTES = bounded.MIB
LONGEST_SHOWN = 80
"""Letters of a wrong value that a message repeats."""


class Strict(BaseModel):
    """Base of every schema: frozen, and an unknown key is refused by name."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


Schema = TypeVar("Schema", bound=Strict)


def preset_path(name: str) -> Path:
    """The YAML file of a preset that ships with the package."""
    path = PRESETS / f"{name}.yaml"
    if not path.is_file():
        names = sorted(p.stem for p in PRESETS.glob("*.yaml"))
        raise ConfigError(f"There is no preset '{name}'. Give one of {', '.join(names)}, or the path of a YAML file.")
    return path


def read_config(schema: type[Schema], source: Path | str, overrides: Sequence[str] = ()) -> Schema:
    """Read a preset (by name) or a YAML file (by path) and apply ``a.b=c`` overrides in order."""
    import yaml

    from tensorldm.config.plain_yaml import plain_yaml

    path = Path(source)
    if path.suffix not in {".yaml", ".yml"}:
        path = preset_path(str(source))
    try:
        values = plain_yaml(bounded.read_text(path, limit=LARGEST_BYTES))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"{path}: the configuration cannot be read ({reason}). Give a YAML file or a preset's name."
        ) from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not valid YAML ({_one_line(error)}). Mend the file.") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: expected settings as 'key: value' lines, found {type(values).__name__}.")
    for override in overrides:
        _apply(values, override)
    try:
        return schema.model_validate(values)
    except ValidationError as error:
        raise ConfigError(f"{path}{' with --set' if overrides else ''}: {_explain(error, schema)}") from error


def dump_config(config: Strict) -> str:
    """The whole configuration as YAML, as it is written beside results."""
    import yaml

    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def _apply(values: dict[str, Any], override: str) -> None:
    """Set one dotted key in place: ``stage.steps=10``; the value is read as YAML."""
    import yaml

    from tensorldm.config.plain_yaml import plain_yaml

    key, found, text = override.partition("=")
    if not found or not key:
        raise ConfigError(f"--set {override}: expected KEY=VALUE, such as protocol.snr=[20,40].")
    *parents, leaf = key.split(".")
    node: Any = values
    for parent in parents:
        node = node.setdefault(parent, {}) if isinstance(node, dict) else None
    if not isinstance(node, dict):
        raise ConfigError(f"--set {override}: '{'.'.join(parents)}' is a value, not a group of settings.")
    try:
        node[leaf] = plain_yaml(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"--set {override}: the value is not valid YAML ({_one_line(error)}).") from error


def _explain(error: ValidationError, schema: type[Strict]) -> str:
    """One sentence for the first problem, with the nearest known key for a misspelt one."""
    first = error.errors()[0]
    key = ".".join(str(part)[:LONGEST_SHOWN] for part in first["loc"])
    if first["type"] != "extra_forbidden":
        what = first["msg"].removeprefix("Value error, ")
        # A rule about a whole group says itself which of its values is wrong.
        found = "" if isinstance(first["input"], dict) else f" (found {_shown(first['input'])})"
        return f"'{key}': {what}{found}." if key else f"{what}{found}."
    *parents, name = first["loc"]
    group, path = _group(schema, parents), "".join(f"{part}." for part in parents)
    near = [path + known for known in difflib.get_close_matches(str(name), group.model_fields, n=1)]
    if not (near or parents):
        near = difflib.get_close_matches(key, _keys(schema), n=1)
    known_keys = ", ".join(sorted(path + known for known in group.model_fields))
    return f"there is no setting '{key}'. " + (f"Did you mean '{near[0]}'?" if near else f"Known keys: {known_keys}.")


def _keys(schema: type[BaseModel], prefix: str = "") -> list[str]:
    keys = []
    for name, field in schema.model_fields.items():
        keys.append(prefix + name)
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            keys += _keys(field.annotation, f"{prefix}{name}.")
    return keys


def _group(schema: type[BaseModel], path: Sequence[str | int]) -> type[BaseModel]:
    """The settings that a path leads to; keys of a mapping (``stages.4``) are no settings of their own."""
    group: type[BaseModel] = schema
    for part in path:
        field = group.model_fields.get(str(part))
        group = group if field is None else _schema_in(field.annotation) or group
    return group


def _schema_in(annotation: Any) -> type[BaseModel] | None:
    """The first schema of an annotation: of ``Group``, ``Group | None`` and ``dict[str, Group]`` it is ``Group``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for inner in get_args(annotation) if (found := _schema_in(inner)) is not None), None)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
