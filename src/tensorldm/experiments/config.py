"""What a study is: which subjects, which methods, which comparisons, and which further experiments; a YAML file.

Nothing of it is optional in meaning: what a table shows and what it is called stands here, so that the same file and
the same seed give the same tables.
"""

from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator, model_validator

from tensorldm.baselines.analytic import ANALYTIC
from tensorldm.config.prepare import Fit
from tensorldm.config.reading import Strict
from tensorldm.evaluation.evaluate import REFERENCE
from tensorldm.experiments.recipes import SHIPPED, TrainingConfig, reference_of

Kind = Literal["rivals", "ablations", "curriculum"]
"""rivals: Tables 1, 2 and 5; ablations: Tables 5 and 6; curriculum: the two ways to train the autoencoder, Table 6."""
SEPARATOR = "@"
"""Between a method's name and the setting that was varied; so no method's name may have it."""


class VirtualSubjects(Strict):
    """Subjects of the virtual cohort, written to files as ``tensorldm cohort`` writes them."""

    subjects: int = Field(gt=0)
    source: str = Field(default="procedural", description="as of tensorldm cohort")
    split: Literal["test", "validation"] = Field(default="test", description="never the anatomies of training")
    config: str = "cohort"
    changes: tuple[str, ...] = Field(default=(), description="to the cohort's settings: [protocol.snr=[15,40]]")


class GroupConfig(Strict):
    """Subjects that are measured and tabulated together: virtual ones, or scans."""

    title: str = ""
    virtual: VirtualSubjects | None = None
    scans: tuple[Path, ...] = Field(default=(), description="NIfTI series, HCP trees or BIDS datasets")
    grid: Literal["2mm", "native"] = Field(
        default="2mm", description="2mm: series are resampled before anything is fitted, as in the paper"
    )

    @model_validator(mode="after")
    def _one_kind(self) -> "GroupConfig":
        if (self.virtual is None) == (not self.scans):
            raise ValueError("a group has either virtual subjects or scans")
        return self


class MethodConfig(Strict):
    """One line of the tables: a closed form, a trained model, or an autoencoder that is shown the reference."""

    analytic: str | None = Field(default=None, description=f"one of {', '.join(ANALYTIC)}")
    bundle: Path | None = Field(
        default=None,
        description=f"a trained model's folder, ours or a rival's; {SHIPPED}; or run:NAME, run:NAME/STAGE of training",
    )
    autoencoder: Path | None = Field(
        default=None, description="a bundle, as above, whose decoder is given the reference's latents"
    )
    sees: str | None = Field(
        default=None, description="a trained model gets the volumes of this closed form or fit, not the paper's four"
    )
    samples: int = Field(default=1, ge=1, description="averaged, for methods that draw")
    steps: int = Field(default=25, ge=1)
    sampler: str = "dpm++2m"
    paper: str | None = Field(default=None, description="its name in the paper, where it is not its name here")
    subjects: int | None = Field(default=None, ge=1, description="only the first of each group, for very slow methods")
    ranked: bool = Field(default=True, description="false for what sees more than four volumes")
    note: str = Field(default="", description="what a reader should know: budget, source")

    @model_validator(mode="after")
    def _one_kind(self) -> "MethodConfig":
        if sum(kind is not None for kind in (self.analytic, self.bundle, self.autoencoder)) != 1:
            raise ValueError("a method has exactly one of analytic, bundle and autoencoder")
        for name in (self.analytic, self.sees):
            if name is not None and name not in ANALYTIC:
                raise ValueError(f"there is no analytic method '{name}'; give one of {', '.join(ANALYTIC)}")
        if self.sees is not None and self.bundle is None:
            raise ValueError("only a bundle can be given other volumes (sees)")
        return self


class ComparisonConfig(Strict):
    """Methods that may be compared because they had the same conditions, and ours among them."""

    title: str
    kind: Kind = "rivals"
    ours: str
    methods: tuple[str, ...] = Field(min_length=1, description="the others, in the order of the tables")
    note: str = Field(default="", description="the conditions: data, budget, choice of learning rates")


class FitsConfig(Strict):
    """Table 11: other fits of the reference, on the first subjects of every group."""

    fits: tuple[Fit, ...] = ("ols", "wls", "nlls", "restore")
    methods: tuple[str, ...] = ()
    subjects: int = Field(default=4, ge=1, description="of each group; NLLS and RESTORE take minutes a brain")


class SamplingConfig(Strict):
    """Table 10: what seed, number of steps and sampler do to models that draw."""

    methods: tuple[str, ...] = Field(min_length=1)
    seeds: int = Field(default=8, ge=2)
    steps: tuple[int, ...] = (5, 10, 25, 50, 250)
    samplers: tuple[str, ...] = ("ddim", "dpm++2m")
    subjects: int = Field(default=8, ge=1, description="of each group")


class RuntimeConfig(Strict):
    """Table 4: seconds for one volume."""

    methods: tuple[str, ...] = Field(min_length=1)
    steps: tuple[int, ...] = (250, 25)
    devices: tuple[Literal["cpu", "cuda"], ...] = ("cuda", "cpu")
    repeats: int = Field(default=5, ge=1)
    longest_steps: dict[str, int] = Field(
        default_factory=dict, description="by device: beyond it the time is extrapolated and marked"
    )


class ModelsConfig(Strict):
    """Tables 8 and 9: what features and latents of a model hold, and how its experts are mixed."""

    methods: tuple[str, ...] = Field(min_length=1)
    subjects: int = Field(default=8, ge=2, description="of each group")


class StudyConfig(Strict):
    """What ``tensorldm tables run`` reads."""

    seed: int = Field(default=0, ge=0)
    groups: dict[str, GroupConfig] = Field(min_length=1)
    methods: dict[str, MethodConfig] = Field(min_length=1)
    comparisons: dict[str, ComparisonConfig] = Field(min_length=1)
    fits: FitsConfig | None = None
    sampling: SamplingConfig | None = None
    runtime: RuntimeConfig | None = None
    probe: ModelsConfig | None = None
    routing: ModelsConfig | None = None
    training: TrainingConfig | None = Field(default=None, description="how the models named run:NAME are trained")
    keep_tensors: int = Field(default=2, ge=0, description="subjects of each group whose tensors stay, for figures")

    @field_validator("groups", "methods", "comparisons")
    @classmethod
    def _plain_names(cls, named: dict[str, Strict]) -> dict[str, Strict]:
        for name in named:
            if not name.strip() or SEPARATOR in name or name == REFERENCE:
                raise ValueError(f"'{name}' cannot be a name here: no '{SEPARATOR}', not empty, not '{REFERENCE}'")
        return named

    @model_validator(mode="after")
    def _methods_exist(self) -> "StudyConfig":
        for where, used in self._used_methods().items():
            unknown = [name for name in used if name not in self.methods]
            if unknown:
                raise ValueError(f"{where} names the method '{unknown[0]}', which is not among methods")
        for where in ("sampling", "probe", "routing"):
            part = getattr(self, where)
            odd = [name for name in (part.methods if part else ()) if self.methods[name].bundle is None]
            if odd:
                raise ValueError(f"{where} needs trained models, and '{odd[0]}' is none")
        return self

    @model_validator(mode="after")
    def _runs_exist(self) -> "StudyConfig":
        for name, method in self.methods.items():
            reference = reference_of(method.bundle or method.autoencoder)
            if reference is not None and (self.training is None or reference.name not in self.training.runs):
                raise ValueError(f"methods.{name} names the run '{reference.name}', which is not among training.runs")
        return self

    def _used_methods(self) -> dict[str, tuple[str, ...]]:
        used = {f"comparisons.{name}": (each.ours, *each.methods) for name, each in self.comparisons.items()}
        for name in ("fits", "sampling", "runtime", "probe", "routing"):
            part = getattr(self, name)
            used |= {} if part is None else {name: part.methods}
        return used
