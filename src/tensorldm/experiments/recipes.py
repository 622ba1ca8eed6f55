"""How the models of a study are trained: one recipe for each, by name, and where its bundle will lie.

A method of a study names a recipe as its bundle, ``run:NAME`` or ``run:NAME/STAGE``; `tensorldm tables train` makes
what is missing in the study's own folder, so that the same settings lead from nothing to the tables.
"""

from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Final, Literal, NamedTuple

from pydantic import Field, field_validator, model_validator

from tensorldm.baselines.learned.catalogue import RIVALS
from tensorldm.bundle_files import OURS
from tensorldm.config.reading import Strict
from tensorldm.errors import ConfigError
from tensorldm.training.paper_stage import TENSORLDM

RUN: Final = "run:"
SHIPPED: Final = "shipped"
"""In place of a bundle's folder: the model that comes with the package."""
RUNS: Final = "runs"
LARGEST_STEPS: Final = 100_000_000
"""Where minutes end a stage, steps do not."""
Variant = Literal["", "no-anatomy", "no-pretrain"]


class RunReference(NamedTuple):
    """A stage of a run; None for its last."""

    name: str
    stage: int | None

    @classmethod
    def read(cls, text: str) -> "RunReference":
        """``NAME`` or ``NAME/STAGE``."""
        name, _, stage = text.partition("/")
        if stage and not stage.isdecimal():
            raise ValueError(f"'{text}': after the name of a run comes the number of a stage")
        return cls(name, int(stage) if stage else None)


class Recipe(Strict):
    """One training run."""

    method: str = Field(default=OURS, description=f"{OURS} or one of {', '.join(RIVALS)}")
    size: str | None = Field(default=None, description="a preset's name or a YAML file; by default the study's own")
    stages: tuple[int, ...] = Field(default=(), description="which to train; by default all that the model has")
    start: str = Field(
        default="",
        description=f"NAME/STAGE of a run before this one, whose weights it goes on from; {SHIPPED}: that Stage 0",
    )
    minutes: dict[int, float] = Field(default_factory=dict, description="by stage; a stage without them has its steps")
    variant: Variant = Field(default="", description="stages of an ablation that no setting describes")
    tried: tuple[int, ...] = Field(
        default=(), description="stages whose learning rate is tried, from the first on; by default all"
    )
    seed: int | None = Field(default=None, ge=0, description="by default the study's")
    changes: tuple[str, ...] = Field(default=(), description="to the run's settings: [stages.3.lem_weight=0]")

    @field_validator("method")
    @classmethod
    def _known(cls, method: str) -> str:
        if method != OURS and method not in RIVALS:
            raise ValueError(f"there is no method '{method}'; give {OURS} or one of {', '.join(RIVALS)}")
        return method

    @model_validator(mode="after")
    def _only_ours_is_ablated(self) -> "Recipe":
        if self.variant and self.method != OURS:
            raise ValueError(f"{self.variant} is an ablation of {OURS}, not of {self.method}")
        if self.stages and set(self.minutes) - set(self.stages):
            raise ValueError("minutes are given for a stage that is not trained")
        odd = sorted({*self.stages, *self.minutes} - set(self._known_stages))
        if odd:
            raise ValueError(f"{self.method} has no Stage {odd[0]}; it has {', '.join(map(str, self._known_stages))}")
        if any(minutes <= 0 for minutes in self.minutes.values()):
            raise ValueError("minutes are more than 0")
        return self

    @property
    def before(self) -> RunReference | None:
        """The stage of a run that this one goes on from; None where it starts afresh, or from what ships."""
        return RunReference.read(self.start) if self.start and self.start != SHIPPED else None

    @property
    def last_stage(self) -> int:
        """The one whose bundle is the run's."""
        return max(self.stages or self._known_stages)

    @property
    def _known_stages(self) -> tuple[int, ...]:
        return tuple(TENSORLDM.stages if self.method == OURS else RIVALS[self.method].stages)


class TrainingConfig(Strict):
    """What ``tensorldm tables train`` does before it measures."""

    data: str = Field(default="cohort:procedural", description="as of tensorldm train")
    size: str = Field(default="base", description="of every run that does not say its own")
    changes: tuple[str, ...] = Field(default=(), description="to the settings of every run, before its own")
    time_scale: float = Field(default=1.0, gt=0, description="on all minutes: 0.1 for a rehearsal")
    rates: tuple[float, ...] = Field(
        default=(), description="factors on the learning rates, each tried for a while on validation; none: 1"
    )
    trial_share: float = Field(default=0.1, gt=0, lt=1, description="of a run's minutes or steps, for each trial")
    runs: dict[str, Recipe] = Field(min_length=1)

    @model_validator(mode="after")
    def _starts_are_before(self) -> "TrainingConfig":
        seen: set[str] = set()
        for name, recipe in self.runs.items():
            if not name or name != "".join(each for each in name if each.isalnum() or each in "-_."):
                raise ValueError(f"'{name}' cannot be the name of a run: letters, digits, - _ and . alone")
            before = recipe.before
            if recipe.start == SHIPPED and recipe.method != OURS:
                raise ValueError(f"runs.{name}: {SHIPPED} is the start of {OURS} alone")
            if before is not None and (before.stage is None or before.name not in seen):
                raise ValueError(
                    f"runs.{name} starts from '{recipe.start}', where NAME/STAGE of an earlier run belongs"
                )
            seen.add(name)
        return self

    def minutes(self, name: str) -> float:
        """Of a run itself, without what it starts from."""
        return self.time_scale * sum(self.runs[name].minutes.values())

    def minutes_tried(self, name: str) -> float:
        """Of the stages of a run whose learning rate is tried."""
        recipe = self.runs[name]
        tried = recipe.tried or recipe.minutes
        return self.time_scale * sum(value for stage, value in recipe.minutes.items() if stage in tried)

    def minutes_with_start(self, name: str, last: int | None = None) -> float:
        """Of all stages behind a run's weights, up to a stage of it; those that others share count in full."""
        recipe = self.runs[name]
        own = sum(value for stage, value in recipe.minutes.items() if last is None or stage <= last)
        before = recipe.before
        if before is None:
            return self.time_scale * own
        return self.time_scale * own + self.minutes_with_start(before.name, before.stage)

    def needed(self, only: Sequence[str] = ()) -> list[str]:
        """These runs (all where none is named) and what they start from, in the order of training."""
        unknown = [name for name in only if name not in self.runs]
        if unknown:
            raise ConfigError(f"--only {unknown[0]}: there is no such run. Give one of {', '.join(self.runs)}.")
        wanted = set(only or self.runs)
        for name in reversed(self.runs):
            before = self.runs[name].before
            if name in wanted and before is not None:
                wanted.add(before.name)
        return [name for name in self.runs if name in wanted]


def reference_of(bundle: Path | None) -> RunReference | None:
    """The run that a method's bundle stands for; None for a folder."""
    text = "" if bundle is None else bundle.as_posix()
    return RunReference.read(text.removeprefix(RUN)) if text.startswith(RUN) else None


def shipped_model() -> Path:
    """The bundle that comes with the package."""
    return Path(str(files("tensorldm"))) / "weights"


def run_folder(out: Path, name: str) -> Path:
    """Where a run of a study lies."""
    return out / RUNS / name


def bundle_folder(out: Path, reference: RunReference, *, runs: Mapping[str, Recipe]) -> Path:
    """Where the weights of a stage of a run will lie."""
    stage = runs[reference.name].last_stage if reference.stage is None else reference.stage
    return run_folder(out, reference.name) / f"stage{stage}" / "bundle"
