"""Where a virtual cohort's files stand: a BIDS dataset or an HCP Young Adult tree, with the truth apart."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from tensorldm import __version__
from tensorldm.cohort.files import ScanPaths
from tensorldm.imaging.atomic import write_json, write_text
from tensorldm.imaging.layouts import HCP_FOLDER

BIDS_VERSION = "1.10.0"
FIRST_HCP_NUMBER = 900001
"""HCP's subjects have six digits; these are none of theirs."""
LayoutName = Literal["bids", "hcp"]
MADE_BY = {"Name": "tensorldm", "Version": __version__, "Description": "virtual cohort"}


@runtime_checkable
class Layout(Protocol):
    """The names of one subject's files; a subject's folder is complete as soon as it exists."""

    truth: Path
    """Folder of what only the maker knows, relative to the cohort's."""
    air: bool
    """Whether the background holds noise, or was masked away as HCP's preprocessing does."""

    def label(self, index: int) -> str:
        """The name of a subject's folder."""
        ...

    def scan_paths(self, folder: Path, label: str) -> ScanPaths:
        """The series' files in a subject's folder."""
        ...

    def truth_prefix(self, label: str) -> tuple[Path, str]:
        """Folder within the subject's truth, and how its files' names begin."""
        ...

    def write_notes(self, folder: Path, label: str, *, notes: Mapping[str, Any]) -> None:
        """What the layout says about one series."""
        ...

    def write_listing(self, out: Path, rows: Sequence[Mapping[str, str]]) -> None:
        """What the layout says about the whole cohort."""
        ...


class BidsLayout:
    """``sub-0001/dwi/sub-0001_dwi.nii.gz`` and its companions; truth is a derivative."""

    truth = Path("derivatives") / "truth"
    air = True

    def label(self, index: int) -> str:
        """``sub-0001`` is the first."""
        return f"sub-{index + 1:04d}"

    def scan_paths(self, folder: Path, label: str) -> ScanPaths:
        """The series under ``dwi/``."""
        stem = folder / "dwi" / f"{label}_dwi"
        return ScanPaths(stem.with_suffix(".nii.gz"), stem.with_suffix(".bval"), stem.with_suffix(".bvec"))

    def truth_prefix(self, label: str) -> tuple[Path, str]:
        """As BIDS names derivatives."""
        return Path("dwi"), f"{label}_"

    def write_notes(self, folder: Path, label: str, *, notes: Mapping[str, Any]) -> None:
        """The JSON sidecar."""
        scanner = {"Modality": "MR", "Manufacturer": "TensorLDM", "ManufacturersModelName": "virtual scanner"}
        write_json(folder / "dwi" / f"{label}_dwi.json", {**scanner, **notes})

    def write_listing(self, out: Path, rows: Sequence[Mapping[str, str]]) -> None:
        """Dataset descriptions, a README and the participants' table."""
        raw = {"Name": "TensorLDM virtual cohort", "BIDSVersion": BIDS_VERSION, "DatasetType": "raw"}
        authors = {"Authors": ["tensorldm cohort"], "License": "CC0", "GeneratedBy": [MADE_BY]}
        write_json(out / "dataset_description.json", {**raw, **authors})
        truth = {"Name": "Truth of the virtual cohort", "BIDSVersion": BIDS_VERSION, "DatasetType": "derivative"}
        write_json(out / self.truth / "dataset_description.json", {**truth, "GeneratedBy": [MADE_BY]})
        write_text(out / "README.md", README)
        write_json(out / "participants.json", COLUMNS)
        lines = ["\t".join(("participant_id", *COLUMNS))]
        lines += ["\t".join(row[column] for column in ("participant_id", *COLUMNS)) for row in rows]
        write_text(out / "participants.tsv", "\n".join(lines) + "\n")


class HcpLayout:
    """``900001/T1w/Diffusion/data.nii.gz`` and its companions; truth stands in ``truth/900001``."""

    truth = Path("truth")
    air = False

    def label(self, index: int) -> str:
        """Six digits."""
        return str(FIRST_HCP_NUMBER + index)

    def scan_paths(self, folder: Path, label: str) -> ScanPaths:  # noqa: ARG002  HCP's files do not bear the name
        """The files of HCP's minimally preprocessed release."""
        at = folder / HCP_FOLDER
        return ScanPaths(
            dwi=at / "data.nii.gz",
            bval=at / "bvals",
            bvec=at / "bvecs",
            mask=at / "nodif_brain_mask.nii.gz",
            grad_dev=at / "grad_dev.nii.gz",
        )

    def truth_prefix(self, label: str) -> tuple[Path, str]:  # noqa: ARG002  the folder bears the name
        """Plain names."""
        return Path(), ""

    def write_notes(self, folder: Path, label: str, *, notes: Mapping[str, Any]) -> None:
        """HCP's tree has no place for notes; the truth's sidecar holds them."""

    def write_listing(self, out: Path, rows: Sequence[Mapping[str, str]]) -> None:
        """The subjects beside their truth."""
        lines = ["\t".join(("subject", *COLUMNS))]
        lines += ["\t".join(row[column] for column in ("participant_id", *COLUMNS)) for row in rows]
        write_text(out / self.truth / "subjects.tsv", "\n".join(lines) + "\n")


LAYOUTS: Mapping[LayoutName, Layout] = {"bids": BidsLayout(), "hcp": HcpLayout()}

COLUMNS = {
    "anatomy": {"Description": "Virtual head that the subject was made from"},
    "anatomy_source": {"Description": "Independent anatomy behind that head; splits are made by it"},
    "split": {"Description": "Which split the anatomy belongs to: train, validation or test"},
}

README = """# TensorLDM virtual cohort

Diffusion scans of heads that never were: made by `tensorldm cohort` from a seed. `derivatives/truth` holds what a
scanner cannot know: the tensor without noise, tissue fractions, bundle masks, and `cohort.json`, the settings that
make the same cohort again. `participants.tsv` names the independent anatomy behind each subject.
"""
