"""A software bill of materials of what is installed here: ``make sbom`` writes ``build/sbom.json`` (CycloneDX 1.6).

Walks from this package through everything that it asks for, with all of its optional groups, and lists what of that is
installed: name, version, licence and who needs whom. Nothing is looked up anywhere; the same installation gives the
same bytes.
"""

import argparse
import re
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from packaging.requirements import Requirement

from tensorldm.imaging.atomic import write_json

ROOT = "tensorldm"
SPDX = re.compile(r"[A-Za-z0-9.+-]+( (AND|OR|WITH) [A-Za-z0-9.+-]+)*")
LONGEST_NAME = 80


def main() -> None:
    """Write the bill and say what is in it."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("build/sbom.json"))
    out = parser.parse_args().out
    bill = make_bill(ROOT)
    write_json(out, bill)
    sys.stdout.write(f"{out}: {len(bill['components'])} packages\n")


def make_bill(root: str) -> dict[str, Any]:
    """The bill of one installed package and all that stands behind it."""
    found, needs = walk(root)
    parts = {name: _component(part) for name, part in sorted(found.items())}
    whole = {**parts.pop(root), "type": "application"}
    edges = [
        {"ref": _ref(found[name]), "dependsOn": [_ref(found[n]) for n in sorted(needs[name])]} for name in sorted(found)
    ]
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid5(NAMESPACE_URL, repr([_ref(part) for _, part in sorted(found.items())]))}",
        "version": 1,
        "metadata": {"component": whole},
        "components": list(parts.values()),
        "dependencies": edges,
    }


def walk(root: str) -> tuple[dict[str, Distribution], dict[str, set[str]]]:
    """Every installed package behind ``root`` by its plain name, and whom each one needs."""
    found: dict[str, Distribution] = {}
    needs: dict[str, set[str]] = {}
    every = frozenset(distribution(root).metadata.get_all("Provides-Extra") or ())
    waiting = [(root, every)]
    seen = set()
    while waiting:
        name, extras = waiting.pop()
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        try:
            part = distribution(name)
        except PackageNotFoundError:  # an optional one, or one for another system
            continue
        found[name] = part
        needs.setdefault(name, set())
        for asked in _asked(part, extras):
            needs[name].add(_plain(asked.name))
            waiting.append((_plain(asked.name), frozenset(asked.extras)))
    return found, {name: (others & found.keys()) - {name} for name, others in needs.items()}


def _asked(part: Distribution, extras: frozenset[str]) -> list[Requirement]:
    """What a package asks for on this system, with these optional groups."""
    wanted = [Requirement(line) for line in part.requires or ()]
    groups = ("", *extras)
    return [each for each in wanted if each.marker is None or any(each.marker.evaluate({"extra": g}) for g in groups)]


def _component(part: Distribution) -> dict[str, Any]:
    described = {
        "type": "library",
        "bom-ref": _ref(part),
        "name": _plain(part.metadata["Name"]),
        "version": part.version,
    }
    licence = _licence(part)
    return {**described, "purl": _ref(part), **({"licenses": [licence]} if licence else {})}


def _licence(part: Distribution) -> dict[str, Any] | None:
    """What the package says of itself: an SPDX expression, else a name, else its classifier."""
    expression, said = (_field(part, name) for name in ("License-Expression", "License"))
    if SPDX.fullmatch(expression):
        return {"expression": expression}
    if not said or "\n" in said or len(said) > LONGEST_NAME:  # some packages put the whole text there
        classifiers = part.metadata.get_all("Classifier") or []
        said = next((line.rpartition(" :: ")[2] for line in classifiers if line.startswith("License ::")), "")
    return {"license": {"name": said}} if said else None


def _field(part: Distribution, name: str) -> str:
    """The first value of a field of the package's metadata; empty where there is none."""
    return next(iter(part.metadata.get_all(name) or ()), "").strip()


def _ref(part: Distribution) -> str:
    return f"pkg:pypi/{_plain(part.metadata['Name'])}@{part.version.replace('+', '%2B')}"


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    main()
