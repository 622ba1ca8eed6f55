"""What the steps of a stage log, left on the device until somebody asks, and whether all of it was finite.

Reading a number makes the host wait for the device, and the device then for the host, in every step. So numbers stay
where they are, and a step whose loss or gradient is no number is undone by the optimiser itself (`loop.Player`).
"""

import time
from math import isfinite

import torch
from torch import Tensor

from tensorldm.errors import TensorldmError

Logs = dict[str, Tensor]


class Numbers:
    """The newest numbers of each player, and the first that were not finite."""

    def __init__(self, stage: int) -> None:
        self.stage = stage
        self._newest: dict[str, Tensor] = {}
        self._names: dict[str, list[str]] = {}
        self._first_broken: dict[str, Tensor] = {}
        """By player: the step, or -1, and then its numbers."""
        self._samples = 0
        self._since = time.perf_counter()

    def take(self, logs: Logs, player: str, *, step: int) -> Tensor:
        """Note a player's step; gives 1 if any number of it is not finite, else 0, on the device."""
        values = torch.stack([value.detach().double().reshape(()) for value in logs.values()])
        broken = ~torch.isfinite(values).all()
        self._names[player], self._newest[player] = list(logs), values
        note = torch.cat([values.new_full((1,), step), values])
        before = self._first_broken.get(player)
        if before is None:
            before = torch.full_like(note, -1)
        self._first_broken[player] = torch.where(broken & (before[0] < 0), note, before)
        return broken.float()

    def count(self, samples: int) -> None:
        """So many samples more."""
        self._samples += samples

    def check(self) -> None:
        """Refuse what is not finite; waits for the device."""
        for player, note in self._first_broken.items():
            step, *values = note.tolist()
            if step >= 0:
                bad = [name for name, value in zip(self._names[player], values, strict=True) if not isfinite(value)]
                raise TensorldmError(
                    f"Stage {self.stage}, step {int(step)}: {', '.join(bad)} is not finite, so the weights were not "
                    f"touched. Lower stages.{self.stage}.learning_rate, or go on from the last checkpoint with other "
                    "data."
                )

    def read(self) -> dict[str, float]:
        """The newest numbers by name, and how many samples a second there were since they were last read."""
        self.check()
        found = {
            (name if index == 0 else f"{player}/{name}"): value
            for index, player in enumerate(self._newest)
            for name, value in zip(self._names[player], self._newest[player].tolist(), strict=True)
        }
        now = time.perf_counter()
        found["samples_per_second"] = self._samples / max(now - self._since, 1e-9)
        self._samples, self._since = 0, now
        return found
