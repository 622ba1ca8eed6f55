"""The group level: one table of measures for all scans and one for participants, and a page to look at.

Only files of the derivative are read, so that it can be made elsewhere and later than the participants.
"""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from tensorldm import __version__
from tensorldm.bids.failures import failures_of
from tensorldm.errors import DataError, TensorldmError
from tensorldm.imaging.atomic import write_json, write_text
from tensorldm.imaging.mask_files import entities
from tensorldm.reconstruct.derivative import BIDS_VERSION
from tensorldm.report.cohort_members import Member, gather_members
from tensorldm.report.cohort_page import write_cohort_page
from tensorldm.report.reading import find_tensors
from tensorldm.work.crew import Crew, Done, Tell, perform, silent

FOLDER: Final = Path("derivatives") / "group"
"""A dataset of its own inside the derivative: BIDS has no other place for tables of scans and for pages."""
MEASURES: Final[Mapping[str, tuple[str, str, str]]] = {
    "fa": ("fa_white_matter", "1", "median FA over what looks like white matter (FA > 0.25, MD < 1e-3 mm²/s)"),
    "md": ("md_white_matter", "mm^2/s", "median MD over what looks like white matter"),
    "brain": ("brain_volume", "l", "volume of the brain mask"),
    "white": ("white_matter_volume", "l", "volume of what looks like white matter"),
    "spd": ("not_positive_definite", "1", "share of the brain where the method's own tensor was not positive definite"),
    "prior": ("prior_share", "1", "median share of the anisotropy that no direction measured, in white matter"),
    "cone": ("v1_cone", "degree", "median half angle of the cone about v1, in white matter"),
    "consistency": ("consistency", "1", "median of the residual of the input signals over the noise"),
    "angle": ("largest_angle", "degree", "largest angle of a chosen direction to its axis"),
}
"""By the report's keys: column, unit, description."""


@dataclass(frozen=True)
class Group:
    """What the group level found and wrote."""

    scans: int
    failures: Mapping[str, str]
    """Reasons by scan or file."""
    written: tuple[Path, ...]


def write_group(out: Path, *, crew: Crew, tell: Tell, say: Tell) -> Group:
    """Read every result of the derivative, write the tables and the page."""
    tensors = find_tensors(out) if out.is_dir() else []
    failed = {failure.name: failure.reason for failure in failures_of(out).entries()}
    if not tensors:
        first = next(iter(failed.values()), "Run the participant level first.")
        raise DataError(f"{out}: no reconstruction in it. {first}")
    members = []
    with closing(perform(read_member, tensors, crew=crew, tell=say)) as ended:
        for each in ended:
            tell(each.job.parent.name)
            found = each.value if isinstance(each, Done) else f"{each.job}: {each.reason}"
            if isinstance(found, Member):
                members.append(found)
            else:
                failed[str(each.job.relative_to(out))] = found
    if not members:
        raise DataError(next(iter(failed.values())))
    members.sort(key=lambda member: member.name)
    return Group(len(members), failed, _write(out, members, failed))


def read_member(tensor: Path) -> Member | str:
    """The figures of one result, or the sentence why there are none; done by a worker."""
    try:
        members, _ = gather_members([tensor], tell=silent)
    except TensorldmError as error:
        return str(error)
    return members[0]


def _write(out: Path, members: Sequence[Member], failed: Mapping[str, str]) -> tuple[Path, ...]:
    folder = out / FOLDER
    described = {column: {"Description": text, "Units": unit} for column, unit, text in MEASURES.values()}
    table, people, page = folder / "measures.tsv", out / "participants.tsv", folder / "report.html"
    write_json(folder / "dataset_description.json", _description())
    write_text(folder / ".bidsignore", "measures.*\nreport.html\n")
    write_json(table.with_suffix(".json"), {**SCAN_COLUMNS, **described})
    write_text(table, _scan_table(members, failed))
    write_json(people.with_suffix(".json"), {**PEOPLE_COLUMNS, **described})
    write_text(people, _participant_table(members))
    write_cohort_page(page, members, failures=failed)
    return table, people, page


SCAN_COLUMNS: Final[Mapping[str, Any]] = {
    "participant_id": {"Description": "participant"},
    "scan": {"Description": "name of the diffusion series without its suffix"},
    "state": {"Description": "whether there is a result", "Levels": {"done": "there is", "failed": "there is none"}},
    "method": {"Description": "what made the tensor"},
    "warnings": {"Description": "how many warnings the tensor's sidecar has"},
    "reason": {"Description": "why there is no result"},
}
PEOPLE_COLUMNS: Final[Mapping[str, Any]] = {
    "participant_id": {"Description": "participant; measures are means over the participant's scans"},
    "scans": {"Description": "how many diffusion series of the participant have a result"},
}


def _scan_table(members: Sequence[Member], failed: Mapping[str, str]) -> str:
    header = ("participant_id", "scan", "state", "method", "warnings", *_columns(), "reason")
    lines = [
        (_participant(each.name), each.name, "done", each.method, str(len(each.warnings)), *_values([each]), "n/a")
        for each in members
    ]
    empty = ("n/a",) * (2 + len(MEASURES))
    lines += [(_participant(name), name, "failed", *empty, " ".join(reason.split())) for name, reason in failed.items()]
    return _tsv(header, sorted(lines, key=lambda line: line[1]))


def _participant_table(members: Sequence[Member]) -> str:
    people = sorted({_participant(member.name) for member in members})
    own = {person: [each for each in members if _participant(each.name) == person] for person in people}
    lines = [(person, str(len(scans)), *_values(scans)) for person, scans in own.items()]
    return _tsv(("participant_id", "scans", *_columns()), lines)


def _columns() -> list[str]:
    return [column for column, _, _ in MEASURES.values()]


def _values(members: Sequence[Member]) -> list[str]:
    """The mean of each measure over some scans, as BIDS writes what is not there."""
    found = [[each.figures[key] for each in members if each.figures[key] is not None] for key in MEASURES]
    return [f"{fmean(value for value in values if value is not None):.6g}" if values else "n/a" for values in found]


def _participant(scan: str) -> str:
    return f"sub-{entities(scan).get('sub', 'unknown')}"


def _tsv(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    return "".join("\t".join(cells) + "\n" for cells in (header, *lines))


def _description() -> dict[str, Any]:
    return {
        "Name": "Measures of a group, by TensorLDM",
        "BIDSVersion": BIDS_VERSION,
        "DatasetType": "derivative",
        "GeneratedBy": [{"Name": "tensorldm", "Version": __version__}],
        "DatasetLinks": {"tensors": "../.."},
    }
