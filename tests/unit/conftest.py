"""A watch for operations that no recording of a GPU's work could hold."""

from contextlib import nullcontext

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

ASKS_THE_HOST = {"_local_scalar_dense", "nonzero", "masked_select", "lift_fresh", "is_nonzero", "equal", "item"}
WRITTEN_OUT = 64
"""An index of fewer places is a list in the code, which is copied from the host; those of tables have more."""


class Watching(TorchDispatchMode):
    """Notes every operation that a recording could not hold: on the host's tensors, or with an answer for the host."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        tensors = [each for each in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)]
        places = tensors[1:] if name == "index" else []
        indexed = any(each.dtype == torch.bool or each.numel() < WRITTEN_OUT for each in places)
        if name in ASKS_THE_HOST or indexed or any(not each.is_meta for each in tensors):
            self.found.append(name)
        return func(*args, **(kwargs or {}))


def _refuse(*_, **__):
    raise AssertionError("a tensor is made of the host's numbers")


@pytest.fixture
def watching(monkeypatch):
    """On the meta device numbers do not exist, so whoever needs one fails, and the host's tensors stand out."""
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())  # it does not know that device
    for where, name in ((torch, "tensor"), (torch, "as_tensor"), (torch.Tensor, "new_tensor")):
        monkeypatch.setattr(where, name, _refuse)
    return Watching()
