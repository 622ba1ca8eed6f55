"""A denoising step recorded once on a GPU and replayed, so that no time goes into starting its hundreds of kernels.

Shapes, condition and weights stay the same for all steps of a scan; latents and the diffusion step are written into
fixed places before each replay. Recording takes as long as a few steps, so it is made anew for each scan; compiling
takes longer than a scan.
Axes: b sample, d component (6), f latent channel, x y z space.
"""

from collections.abc import Callable

import torch
from jaxtyping import Int
from torch import Tensor

from tensorldm.shapes import Latents

Step = Callable[[Latents, Int[Tensor, " one"]], Latents]
"""(noisy latents, the diffusion step of all of them) -> the prediction."""
WARM_UP = 3
"""Calls before a recording, in which libraries choose their kernels and take their memory."""


class RecordedStep:
    """A step as a CUDA graph; called like any ``diffusion.Denoise``, with latents of the shape it was recorded for."""

    def __init__(self, step: Step, like: Latents) -> None:
        """Record ``step`` for latents like these; the autocast in force is recorded with it."""
        assert like.is_cuda, "only a GPU records"
        self._latents = torch.zeros_like(like)
        self._step = torch.zeros(1, dtype=torch.int64, device=like.device)
        # Autocast drops the weights it has cast at the end of its context; the graph would then read freed memory.
        with torch.autocast(
            "cuda", torch.get_autocast_dtype("cuda"), enabled=torch.is_autocast_enabled("cuda"), cache_enabled=False
        ):
            self._warm_up(step)
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph):
                self._prediction = step(self._latents, self._step)

    def _warm_up(self, step: Step) -> None:
        """On a stream of its own, as recording needs it."""
        aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch has no types here
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(WARM_UP):
                step(self._latents, self._step)
        torch.cuda.current_stream().wait_stream(aside)

    def __call__(self, latents: Latents, step: int) -> Latents:
        """The prediction; a copy, since the next replay writes to the same place."""
        assert latents.shape == self._latents.shape, "a recording serves one shape"
        self._latents.copy_(latents)
        self._step.fill_(step)
        self._graph.replay()
        return self._prediction.clone()
