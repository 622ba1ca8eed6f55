"""How streamlines are grown: the same for every method that is compared, and written beside every tractogram."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from tensorldm.errors import ConfigError

PROBABILISTIC, FIRST_ORDER, DETERMINISTIC = "probabilistic", "first-order", "deterministic"
ALGORITHMS: Final[Mapping[str, str]] = {PROBABILISTIC: "iFOD2", FIRST_ORDER: "iFOD1", DETERMINISTIC: "FACT"}
"""What tckgen calls them."""
STEP_VOXELS: Final[Mapping[str, float]] = {PROBABILISTIC: 0.5, FIRST_ORDER: 0.1, DETERMINISTIC: 0.1}
MAX_ANGLE_DEGREES: Final[Mapping[str, float]] = {PROBABILISTIC: 45.0, FIRST_ORDER: 15.0, DETERMINISTIC: 60.0}
"""MRtrix3's own defaults, written out so that another version cannot change them."""


@dataclass(frozen=True)
class TrackSettings:
    """Everything but the tensor and the mask that decides a tractogram."""

    algorithm: str = PROBABILISTIC
    seeds: int = 180_000
    """Starting points in the mask; about three in ten give a streamline."""
    seed: int = 0
    """Of the random numbers: the same seed gives the same streamlines."""
    cutoff: float = 0.15
    """Streamlines end where the FA, the height of the orientation distribution, falls below this."""
    min_length_mm: float = 20.0
    max_length_mm: float = 250.0

    def __post_init__(self) -> None:
        if self.algorithm not in ALGORITHMS:
            raise ConfigError(f"There is no tracking algorithm '{self.algorithm}'. Give {', '.join(ALGORITHMS)}.")
        if self.seeds < 1:
            raise ConfigError(f"{self.seeds} seeds give no streamlines. Give at least one, usually tens of thousands.")
        if not 0 < self.cutoff < 1:
            raise ConfigError(f"A cutoff of {self.cutoff:g} is no FA between 0 and 1. Give about 0.1 to 0.2.")
        if not 0 <= self.min_length_mm < self.max_length_mm:
            raise ConfigError(
                f"Lengths from {self.min_length_mm:g} to {self.max_length_mm:g} mm leave nothing. "
                "Give a lower limit below the upper one."
            )

    @property
    def max_angle_degrees(self) -> float:
        """The sharpest turn from one step to the next."""
        return MAX_ANGLE_DEGREES[self.algorithm]

    def step_mm(self, voxel_size: tuple[float, float, float]) -> float:
        """Length of a step, by the voxels' mean side."""
        return STEP_VOXELS[self.algorithm] * sum(voxel_size) / 3

    def to_json(self) -> dict[str, Any]:
        """For sidecars and fingerprints."""
        return {**asdict(self), "max_angle_degrees": self.max_angle_degrees}
