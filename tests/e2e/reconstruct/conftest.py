"""The scans and the program of the tests of ``prepare``, and a model that nobody has trained."""

import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tensorldm.build import build_model
from tensorldm.bundle import Card, write_bundle
from tensorldm.config.reading import read_config
from tensorldm.config.run import RunConfig

_shared = runpy.run_path(str(Path(__file__).parents[2] / "integration" / "prepare" / "conftest.py"))
clean, truth, program = _shared["scan"], _shared["truth"], _shared["program"]


@pytest.fixture
def scan(clean):
    """The scan with noise, as every measured one has: the SNR of b=0 is 100."""
    return replace(clean, data=clean.data + np.random.default_rng(2).normal(scale=4, size=clean.data.shape))


@pytest.fixture(scope="session")
def bundle(tmp_path_factory) -> Path:
    return untrained(tmp_path_factory.mktemp("model") / "bundle", [])


@pytest.fixture(scope="session")
def paper_bundle(tmp_path_factory) -> Path:
    """Of the paper's fixed form: four pathways that know neither b nor directions."""
    return untrained(tmp_path_factory.mktemp("model") / "paper", ["model.autoencoder.conditioner=paper"])


def untrained(folder: Path, overrides: list[str]) -> Path:
    config = read_config(RunConfig, "smoke", overrides).model
    write_bundle(folder, build_model(config, 3).state_dict(), config=config, joint=("gated", "gated"), card=Card())
    return folder


@pytest.fixture
def hcp(scan, tmp_path) -> Path:
    """The whole series of 13 volumes, with its mask."""
    return scan.write_hcp(tmp_path / "subject") / "T1w" / "Diffusion" / "data.nii.gz"
