"""A method by its name with the settings of its run, ours or a rival's: what ``tensorldm train`` begins with."""

from collections.abc import Sequence
from pathlib import Path

from tensorldm.baselines.learned.catalogue import find_rival
from tensorldm.baselines.learned.config import RivalRun
from tensorldm.baselines.learned.training import RivalMethod
from tensorldm.bundle_files import OURS
from tensorldm.config.reading import PRESETS, read_config
from tensorldm.config.run import RunConfig, RunSettings
from tensorldm.errors import ConfigError
from tensorldm.training.method import TrainedMethod
from tensorldm.training.paper_stage import TENSORLDM

RIVAL_PRESETS = PRESETS / "rivals"
YAML_SUFFIXES = {".yaml", ".yml"}


def open_run(method: str, config: str, overrides: Sequence[str]) -> tuple[TrainedMethod, RunSettings]:
    """The method and its settings, from a preset of this size or a YAML file."""
    if method == OURS:
        return TENSORLDM, read_config(RunConfig, config, overrides)
    rival = RivalMethod(find_rival(method))
    settings = read_config(RivalRun, rival_preset(method, config), overrides)
    rival.check_config(settings, source=config)
    return rival, settings


def rival_preset(method: str, config: str) -> Path:
    """The file of a rival's preset by its size, or the file that was named."""
    if Path(config).suffix in YAML_SUFFIXES:
        return Path(config)
    path = RIVAL_PRESETS / f"{method}-{config}.yaml"
    if not path.is_file():
        sizes = sorted(found.stem.removeprefix(f"{method}-") for found in RIVAL_PRESETS.glob(f"{method}-*.yaml"))
        raise ConfigError(
            f"There is no preset '{config}' of {method}. Give one of {', '.join(sizes)}, or the path of a YAML file."
        )
    return path
