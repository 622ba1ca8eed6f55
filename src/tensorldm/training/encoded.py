"""What the autoencoder reads of a subject, which Phase II need not work out again.

The memory lives as long as the stage, so it can never outlive the weights it was computed with.
"""

from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import Tensor

from tensorldm.batch import Batch
from tensorldm.data.scaling import TensorScaling
from tensorldm.model import TensorLDM
from tensorldm.networks.conditioner import ScanFeatures
from tensorldm.shapes import Latents
from tensorldm.training.streams import split

LatentsAndFeatures = tuple[Tensor, ScanFeatures]
"""Of one subject, or of a batch."""


class Encoded:
    """Encodes subjects; the last ``remember`` ones are known by name and not encoded again."""

    def __init__(
        self, model: TensorLDM, scaling: TensorScaling, *, remember: int = 0, keeps_expected: bool = False
    ) -> None:
        """``keeps_expected`` is for who decodes: the expectation is added to what is decoded."""
        self.model, self.scaling, self.remember, self.keeps_expected = model, scaling, remember, keeps_expected
        self._known: OrderedDict[str, LatentsAndFeatures] = OrderedDict()

    @torch.no_grad()
    def __call__(self, batch: Batch, *, comes_again: bool = True) -> tuple[Latents, ScanFeatures]:
        """Normalised latents of the reference tensors, and what the experts read of the DWIs."""
        if not (self.remember and comes_again):
            return self._encode(batch)
        for subject in split(batch):
            name = subject.subjects[0]
            if name not in self._known:
                self._known[name] = self._encode(subject)
        found = _join([self._known[name] for name in batch.subjects])
        while len(self._known) > self.remember:
            self._known.popitem(last=False)
        return found

    def _encode(self, batch: Batch) -> tuple[Latents, ScanFeatures]:
        features = self.model.scan_features(**batch.scan)
        latents = self.model.encode(self.scaling.scale(batch.components), features).float()
        # Φ_X is by far the largest part, and nothing of Phase II reads it. Φ^d is not kept: the experts learn.
        expected, spread = (features.expected, features.spread) if self.keeps_expected else (None, None)
        return latents, ScanFeatures(
            (), features.pooled, gradients=features.gradients, expected=expected, spread=spread
        )


def _join(parts: Sequence[LatentsAndFeatures]) -> LatentsAndFeatures:
    expected = [features.expected for _, features in parts if features.expected is not None]
    spread = [features.spread for _, features in parts if features.spread is not None]
    features = ScanFeatures(
        (),
        torch.cat([features.pooled for _, features in parts]),
        gradients=torch.cat([features.gradients for _, features in parts]),
        expected=torch.cat(expected) if expected else None,
        spread=torch.cat(spread) if spread else None,
    )
    return torch.cat([latents for latents, _ in parts]), features
