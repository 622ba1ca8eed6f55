"""What a user may choose about a reconstruction, checked before anything is read."""

from dataclasses import dataclass
from typing import Final

from tensorldm.components import CONVENTIONS
from tensorldm.diffusion.samplers import SAMPLERS
from tensorldm.errors import ConfigError

GRIDS: Final = ("native", "2mm")
VALIDITIES: Final = ("project", "raw")
USED_DIRECTIONS: Final = ("auto", "3", "all")
COMPILING: Final = ("auto", "never")
MOST_DIRECTIONS = 12
"""That a trained model is given: the most it has met in training."""
DEFAULT_SAMPLES = 4
"""Of a model: the fewest that give a spread worth a map; each further one costs as much as the first."""
DEFAULT_STEPS = 10
"""Of dpm++2m: the samples of the shipped model vary as much as after 25 (docs/training-log.md)."""
MEANS: Final = ("arithmetic", "log-euclidean", "eigenvalues")


@dataclass(frozen=True)
class Settings:
    """How to reconstruct; the same settings, input, device and threads give the same bytes."""

    grid: str = "native"
    """The input's own grid, or the working grid: RAS, 2 mm."""
    spd: str = "project"
    """Make every tensor positive definite, or keep what the method gave."""
    directions: str = "auto"
    """3: one b=0 and the three volumes nearest to the axes. all: every b=0 and every direction of the shell, of which
    a model takes the best twelve. auto: all for a model that is told its directions, 3 for everything else."""
    samples: int | None = None
    """How many samples of a model; None is its default. Methods without randomness have one."""
    steps: int = DEFAULT_STEPS
    sampler: str = "dpm++2m"
    mean: str = "arithmetic"
    """Which one tensor stands for the samples; of one sample it is the sample."""
    compile: str = "auto"
    """auto: on a GPU a model's step is recorded once a scan and replayed, where enough steps follow to repay it."""
    seed: int = 0
    force: bool = False
    """Go on where the guard would refuse."""

    def __post_init__(self) -> None:
        _one_of("--grid", self.grid, GRIDS)
        _one_of("--spd", self.spd, VALIDITIES)
        _one_of("--directions", self.directions, USED_DIRECTIONS)
        _one_of("--sampler", self.sampler, tuple(SAMPLERS))
        _one_of("--mean", self.mean, MEANS)
        _one_of("compile", self.compile, COMPILING)
        for option, value in (("--samples", self.samples), ("--steps", self.steps)):
            if value is not None and value < 1:
                raise ConfigError(f"{option} is {value}; give a number of at least 1.")


def check_convention(name: str) -> None:
    """Refuse an unknown tensor convention before time is spent."""
    _one_of("--convention", name, tuple(CONVENTIONS))


def _one_of(option: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ConfigError(f"{option} is '{value}'; give one of {', '.join(known)}.")
