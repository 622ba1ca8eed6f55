"""The bill of materials lists what is installed, and hangs together."""

import importlib.metadata
import json
import runpy
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
make_bill = runpy.run_path(str(REPOSITORY / "tools" / "sbom.py"))["make_bill"]


@pytest.fixture(scope="module")
def bill() -> dict:
    return make_bill("tensorldm")


def test_every_core_dependency_is_listed_with_the_version_that_is_installed(bill):
    listed = {part["name"]: part["version"] for part in bill["components"]}
    for name in ("torch", "numpy", "nibabel", "dipy", "safetensors", "pydantic", "pyyaml"):
        assert listed[name] == importlib.metadata.version(name)
    assert bill["metadata"]["component"]["name"] == "tensorldm"


def test_dependencies_of_dependencies_are_listed_too(bill):
    whole = {edge["ref"]: edge["dependsOn"] for edge in bill["dependencies"]}
    torch = next(part["bom-ref"] for part in bill["components"] if part["name"] == "torch")
    assert any("sympy" in ref for ref in whole[torch])
    refs = {part["bom-ref"] for part in bill["components"]} | {bill["metadata"]["component"]["bom-ref"]}
    assert whole.keys() == refs
    assert {ref for needed in whole.values() for ref in needed} <= refs


def test_nearly_every_package_says_its_licence(bill):
    silent = [part["name"] for part in bill["components"] if "licenses" not in part]
    assert len(silent) <= 0.1 * len(bill["components"]), silent


def test_the_same_installation_gives_the_same_bytes(bill):
    assert json.dumps(make_bill("tensorldm")) == json.dumps(bill)
