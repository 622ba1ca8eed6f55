"""Who trains, who validates, who tests: by person, seeded, and never changed once given.

A person's scans (two sessions, two head positions, two phase-encoding directions) stay together, because a model
tested on the other scan of a head it was trained on would be tested on its memory. A manifest may pin sources.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tensorldm.errors import DataError
from tensorldm.imaging.heads import SPLITS, Split
from tensorldm.imaging.tab_files import read_rows
from tensorldm.rng import derive_seed

PAPER_COUNTS: Final[tuple[int, int, int]] = (681, 97, 195)
"""Persons in each split of the paper's 973; any other number is shared in the same proportion."""


@dataclass(frozen=True)
class Source:
    """One scan as far as splitting is concerned: its name, whose head it is, and the hash of its image."""

    name: str
    person: str
    sha256: str


@dataclass(frozen=True)
class Pin:
    """A manifest's word on one source: whose head it is and where it belongs; empty means not said."""

    person: str = ""
    split: Split | None = None


def share(number: int, proportions: Sequence[int] = PAPER_COUNTS) -> tuple[int, ...]:
    """Split a number in the given proportion by largest remainders: exact where the proportion divides it."""
    total = sum(proportions)
    counts = [number * part // total for part in proportions]
    by_remainder = sorted(range(len(counts)), key=lambda i: (-(number * proportions[i] % total), i))
    for i in by_remainder[: number - sum(counts)]:
        counts[i] += 1
    return tuple(counts)


def make_splits(
    sources: Iterable[Source],
    seed: int,
    *,
    proportions: Sequence[int] = PAPER_COUNTS,
    pinned: Mapping[str, Split] | None = None,
) -> dict[str, Split]:
    """The split of every source by name; ``pinned`` says it by person and is kept whatever the proportions.

    Heads not pinned fill what each split still lacks, in an order that depends on the seed and on each person's
    name alone. Pass the earlier result as ``pinned`` when a cohort grows: nobody moves from test to train.
    """
    sources, pinned = list(sources), pinned or {}
    head_of = join_copies(sources)
    given: dict[str, Split] = {head: pinned[person] for person, head in head_of.items() if person in pinned}
    heads = set(head_of.values())
    free = sorted(heads - set(given), key=lambda head: derive_seed(seed, "split", head))
    wanted = dict(zip(SPLITS, share(len(heads), proportions), strict=True))
    for split in given.values():
        wanted[split] -= 1
    for head in free:
        # The split that lacks most comes next; one over-filled by pins lacks nothing.
        split = max(SPLITS, key=lambda name: (wanted[name], -SPLITS.index(name)))
        given[head] = split
        wanted[split] -= 1
    splits = {s.name: pinned.get(s.person, given[head_of[s.person]]) for s in sources}
    check_splits(splits, sources)
    return splits


def join_copies(sources: Iterable[Source]) -> dict[str, str]:
    """For each person the first by name of those who are the same head: one image under two names shows one head."""
    head_of: dict[str, str] = {}
    seen: dict[str, str] = {}
    for source in sorted(sources, key=lambda source: (source.person, source.name)):
        mine = head_of.setdefault(source.person, source.person)
        other = head_of[seen.setdefault(source.sha256, source.person)]
        if mine != other:
            first, second = sorted((mine, other))
            head_of = {person: first if head == second else head for person, head in head_of.items()}
    return head_of


def check_splits(splits: Mapping[str, Split], sources: Iterable[Source]) -> None:
    """Refuse splits in which one person, or one and the same image under two names, occurs twice."""
    seen: dict[str, dict[Split, str]] = defaultdict(dict)
    for source in sources:
        split = splits[source.name]
        for key in (f"person '{source.person}'", f"the image with sha256 {source.sha256[:12]}"):
            seen[key][split] = source.name
            if len(seen[key]) > 1:
                (one, first), (two, second) = sorted(seen[key].items())[:2]
                raise DataError(
                    f"{key} would be in two splits: '{first}' in {one} and '{second}' in {two}. "
                    "Give both scans the same person and split in the manifest."
                )


def read_manifest(path: Path) -> dict[str, Pin]:
    """A tab-separated table with a header: ``name``, and ``person`` and ``split`` where they are to be pinned."""
    pins: dict[str, Pin] = {}
    for number, row in enumerate(read_rows(path, what="manifest"), start=2):
        cells = {key: "" if value == "n/a" else value for key, value in row.items()}
        name, split = cells.get("name", ""), cells.get("split", "")
        if not name or name in pins:
            raise DataError(
                f"{path}, line {number}: {'no name' if not name else f'{name!r} is listed twice'}. "
                "The manifest needs a header line 'name, person, split' with tabs between, and one line per scan."
            )
        if split and split not in SPLITS:
            raise DataError(f"{path}, line {number}: there is no split '{split}'. Use {', '.join(SPLITS)}, or n/a.")
        pins[name] = Pin(person=cells.get("person", ""), split=next((s for s in SPLITS if s == split), None))
    return pins


def pins_by_person(sources: Iterable[Source], pins: Iterable[tuple[str, Split]]) -> dict[str, Split]:
    """What ``(source name, split)`` pairs say about persons; a person pinned to two splits is refused."""
    person_of = {source.name: source.person for source in sources}
    pinned: dict[str, Split] = {}
    for name, split in pins:
        person = person_of.get(name)
        if person is None:
            continue
        if pinned.setdefault(person, split) != split:
            raise DataError(
                f"person '{person}' would be in two splits: '{name}' is pinned to {split} and another scan to "
                f"{pinned[person]}. Give all scans of a person one split, or prepare into a new store."
            )
    return pinned
