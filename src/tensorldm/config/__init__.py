"""Settings: frozen pydantic schemas, whole YAML presets, dotted overrides."""

from tensorldm.config.reading import Strict, dump_config, preset_path, read_config

__all__ = ["Strict", "dump_config", "preset_path", "read_config"]
