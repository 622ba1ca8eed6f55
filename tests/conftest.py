"""Shared fixtures: one thread for steady results, the real scans where they are, MRtrix3 where it is installed."""

import os
import shutil
import signal
from pathlib import Path

import pytest
import torch
from hypothesis import settings

REPOSITORY = Path(__file__).parent.parent
torch.set_num_threads(1)
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # Tests that were started in the background ignore Ctrl-C, and so would every program that they start and interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)
# The closed form by default, here and in programs that tests start; the shipped model has its own tests.
os.environ["TENSORLDM_MODEL"] = "none"

# A check says the same of the same code twice; new examples are looked for with --hypothesis-profile=search.
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("search", deadline=None, max_examples=500)
settings.load_profile("same")


def _real_data() -> Path:
    return Path(os.environ.get("TENSORLDM_REAL_DATA", REPOSITORY.parent / "shared" / "data"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    no_mrtrix = pytest.mark.skip(reason="MRtrix3 is not installed: install Debian's mrtrix3 to compare with it")
    no_real = pytest.mark.skip(reason=f"no real scans at {_real_data()}: set TENSORLDM_REAL_DATA")
    for item in items:
        if item.get_closest_marker("mrtrix") and shutil.which("dwi2tensor") is None:
            item.add_marker(no_mrtrix)
        if item.get_closest_marker("real") and not (_real_data() / "real").is_dir():
            item.add_marker(no_real)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Folder with ``real/``, ``templates/`` and ``schemes/``; mark the test ``real`` so that it skips without it."""
    return _real_data()


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)
