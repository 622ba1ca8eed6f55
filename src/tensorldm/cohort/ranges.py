"""What all settings of virtual subjects share: ranges, and checks that say which value is wrong."""

from typing import ClassVar

Range = tuple[float, float]
Counts = tuple[int, int]
Size = tuple[float, float, float]


class Checked:
    """Ranges in order, and unknown keys refused when the settings are read from a file."""

    __pydantic_config__: ClassVar = {"extra": "forbid", "allow_inf_nan": False}

    def _in_order(self, *names: str, lowest: float = float("-inf")) -> None:
        for name in names:
            low, high = getattr(self, name)
            if not lowest <= low <= high:
                raise ValueError(f"{name} is a range (lowest, highest) of numbers of at least {lowest:g}")

    def _at_least(self, lowest: float, *names: str) -> None:
        for name in names:
            value = getattr(self, name)
            values = value if isinstance(value, tuple) else (value,)
            if any(number < lowest for number in values):
                raise ValueError(f"{name} must be at least {lowest:g}")

    def _is_share(self, *names: str) -> None:
        for name in names:
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name} is a share of the subjects, from 0 to 1")
