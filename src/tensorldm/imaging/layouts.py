"""What a folder of scans holds: an HCP Young Adult tree, a BIDS dataset, or files given one by one.

Only names are read here: a file that is missing or broken is told when its scan is read, so that one bad subject does
not keep the others from being prepared. Each scan knows whose head it is, so that splits can keep a person together:
the subjects of a virtual cohort are as many persons as there are anatomies behind them.
"""

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from tensorldm.errors import DataError
from tensorldm.imaging.gradients import FslFiles, find_gradients, find_json
from tensorldm.imaging.header import SUFFIXES, stem
from tensorldm.imaging.heads import Head, read_heads
from tensorldm.imaging.mask_files import entities, find_mask

HCP_FOLDER = Path("T1w") / "Diffusion"
HCP_MASK = "nodif_brain_mask.nii.gz"
COMMON_NAMES = frozenset({"dwi", "dti", "data", "series"})
"""Names of files that do not tell one scan from another; the folder's does."""


@dataclass(frozen=True)
class ScanFiles:
    """One diffusion series and the files that belong to it."""

    name: str
    """Unique in its folder, usable as a file name."""
    person: str
    """Whose head it is; for a virtual subject the independent anatomy that it was made from."""
    dwi: Path
    bval: Path | None
    bvec: Path | None
    """None where an MRtrix3 table stands beside the image instead: ``read_gradients`` finds it."""
    mask: Path | None = None
    grad_dev: Path | None = None
    json: Path | None = None
    problem: str = ""
    """Why it may not be read, told when it would be: a file of a dataset that leads out of it."""
    split: str = ""
    """What a virtual cohort says of the anatomy: train, validation or test; empty where nobody says."""


def find_scans(root: Path) -> list[ScanFiles]:
    """The scans under a folder, by the layout that its names show; or the one scan that a file is."""
    if root.is_file():
        return list_files([root])
    if not root.is_dir():
        raise DataError(f"{root}: there is no such folder. Give an HCP tree, a BIDS dataset or a NIfTI file.")
    for read in (read_hcp, read_bids):
        scans = read(root)
        if scans:
            return scans
    raise DataError(
        f"{root}: neither an HCP tree (SUBJECT/{HCP_FOLDER.as_posix()}/data.nii.gz) nor a BIDS dataset "
        "(sub-*/dwi/*_dwi.nii.gz). Give one of these, or the NIfTI files themselves."
    )


def read_hcp(root: Path) -> list[ScanFiles]:
    """Subjects of an HCP Young Adult tree; ``root`` holds many or is one. None where there is no such tree."""
    subjects = [root] if (root / HCP_FOLDER).is_dir() else sorted(p.parent.parent for p in root.glob(f"*/{HCP_FOLDER}"))
    heads = {parent: read_heads(parent) for parent in {subject.resolve().parent for subject in subjects}}
    return [_hcp_scan(subject, heads[subject.resolve().parent]) for subject in subjects]


def _hcp_scan(subject: Path, heads: Mapping[str, Head]) -> ScanFiles:
    folder, name = subject / HCP_FOLDER, subject.resolve().name
    head = heads.get(name, Head(name))
    return ScanFiles(
        name=name,
        person=head.anatomy,
        split=head.split,
        dwi=folder / "data.nii.gz",
        bval=folder / "bvals",
        bvec=folder / "bvecs",
        mask=_if_there(folder / HCP_MASK),
        grad_dev=_if_there(folder / "grad_dev.nii.gz"),
    )


def read_bids(root: Path) -> list[ScanFiles]:
    """Diffusion series of a BIDS dataset's raw data; None where there is none.

    Gradients and JSON may stand higher up and serve several series (inheritance principle): of the files whose
    entities are all in the image's name, the nearest is taken, and on one level the one with most entities.
    """
    folders = (*root.glob("sub-*/dwi"), *root.glob("sub-*/ses-*/dwi"))
    images = sorted(path for folder in folders for suffix in SUFFIXES for path in folder.glob(f"*_dwi{suffix}"))
    heads = read_heads(root)
    return [_bids_scan(root, image, heads) for image in images if entities(stem(image)).get("part", "mag") == "mag"]


def _bids_scan(root: Path, image: Path, heads: Mapping[str, Head]) -> ScanFiles:
    name = stem(image)
    label = image.relative_to(root).parts[0].removeprefix("sub-")
    head = heads.get(f"sub-{label}", Head(label))
    scan = ScanFiles(
        name=name.removesuffix("_dwi"),
        person=head.anatomy,
        split=head.split,
        dwi=image,
        bval=_inherited(root, image, extension=".bval") or image.with_name(f"{name}.bval"),
        bvec=_inherited(root, image, extension=".bvec") or image.with_name(f"{name}.bvec"),
        mask=find_mask(image),
        json=_inherited(root, image, extension=".json"),
    )
    return replace(scan, problem=find_way_out(root, scan))


def find_way_out(root: Path, scan: ScanFiles) -> str:
    """A sentence about the first file that is a link out of the dataset: a stranger's dataset reads no other files.

    A link inside it, as an annex has them, leads nowhere else.
    """
    home = root.resolve()
    for path in (scan.dwi, scan.bval, scan.bvec, scan.mask, scan.json):
        if path is not None and not path.resolve().is_relative_to(home):
            return (
                f"{path}: a link that leads out of the dataset {root}, to {path.resolve()}. "
                "Copy the file into the dataset, or give the file itself."
            )
    return ""


def _inherited(root: Path, image: Path, *, extension: str) -> Path | None:
    """The nearest file of this extension that applies to an image, from its own folder up to the dataset's root."""
    wanted = entities(stem(image)).items()
    folder = image.parent
    while True:
        applicable = [
            path
            for path in folder.glob(f"*dwi{extension}")
            if re.search(r"(^|_)dwi$", path.stem) and entities(path.stem).items() <= wanted
        ]
        if applicable:
            return max(applicable, key=lambda path: (len(entities(path.stem)), path.name))
        if folder == root:
            return None
        folder = folder.parent


def list_files(images: Iterable[Path]) -> list[ScanFiles]:
    """Scans given one by one, gradients and mask beside each; equal file names are told apart by their folders."""
    paths = [Path(image) for image in images]
    names = [stem(path) for path in paths]
    if len(set(names)) < len(names):
        names = [f"{path.resolve().parent.name}_{name}" for path, name in zip(paths, names, strict=True)]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"{twice[0]}: two scans would have this name. Rename the files or their folders.")
    return [_listed(path, name) for path, name in zip(paths, names, strict=True)]


def _listed(image: Path, name: str) -> ScanFiles:
    bval, bvec = None, None
    with suppress(DataError):  # told by read_gradients, when the scan is read
        files = find_gradients(image)
        bval, bvec = files if isinstance(files, FslFiles) else (None, None)
    person = entities(name).get("sub", name)
    return ScanFiles(name, person, image, bval, bvec, mask=find_mask(image), json=find_json(image))


def _if_there(path: Path) -> Path | None:
    return path if path.is_file() else None
