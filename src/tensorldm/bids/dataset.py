"""The diffusion series of a BIDS dataset, found with pybids: names, inheritance of gradients, participants."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tensorldm.errors import ConfigError, DataError, ToolError
from tensorldm.imaging.header import stem
from tensorldm.imaging.layouts import ScanFiles, find_way_out
from tensorldm.imaging.mask_files import entities, find_mask
from tensorldm.reconstruct.inputs import InputFiles

DESCRIPTION = "dataset_description.json"


def find_series(root: Path, *, participants: Sequence[str] = (), sessions: Sequence[str] = ()) -> list[InputFiles]:
    """Every magnitude series of these participants and sessions (by default all), in the order of their names."""
    if not root.is_dir():
        raise DataError(f"{root}: there is no such folder. Give the dataset's folder.")
    if not (root / DESCRIPTION).is_file():
        raise DataError(f"{root}: no {DESCRIPTION} in it, so this is not a BIDS dataset. Give the dataset's folder.")
    layout = _open(root)
    wanted = {
        "subject": _chosen("--participant-label", participants, layout.get_subjects(), prefix="sub-"),
        "session": _chosen("--session-label", sessions, layout.get_sessions(), prefix="ses-"),
    }
    found = layout.get(
        suffix="dwi",
        datatype="dwi",
        extension=[".nii", ".nii.gz"],
        **{key: value for key, value in wanted.items() if value},
    )
    series = sorted((each for each in found if each.entities.get("part", "mag") == "mag"), key=lambda each: each.path)
    if not series:
        of = f" of {', '.join(wanted['subject'])}" if wanted["subject"] else ""
        raise DataError(f"{root}: no diffusion series{of} (sub-*/[ses-*/]dwi/*_dwi.nii.gz). Check dataset and labels.")
    return [_files(layout, Path(each.path), root) for each in series]


def _open(root: Path) -> Any:
    try:
        from bids import BIDSLayout, BIDSLayoutIndexer
    except ImportError as error:
        raise ToolError("pybids is not installed. Run: pip install 'tensorldm[bids]'.") from error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pybids tells of its own plans; the dataset is judged by its validator
        try:
            # Metadata of ten thousand sidecars takes an hour to index, and none of it is used.
            return BIDSLayout(root, validate=False, indexer=BIDSLayoutIndexer(validate=False, index_metadata=False))
        except (OSError, ValueError) as error:
            raise DataError(
                f"{root}: pybids cannot read the dataset ({error}). Run the BIDS validator on it."
            ) from error


def _chosen(option: str, labels: Sequence[str], known: Sequence[str], *, prefix: str) -> list[str]:
    """Labels without their prefix; one that the dataset does not have is a mistake."""
    plain = [label.removeprefix(prefix) for label in labels]
    unknown = [label for label in plain if label not in known]
    if unknown:
        there = ", ".join(sorted(known)[:8]) + (", ..." if len(known) > 8 else "")
        raise ConfigError(f"{option} {unknown[0]}: the dataset has none of this name. It has {there or 'none at all'}.")
    return plain


def _files(layout: Any, image: Path, root: Path) -> InputFiles:
    name = stem(image)
    bval, bvec = (_inherited(layout, image, ending) for ending in ("bval", "bvec"))
    scan = ScanFiles(name.removesuffix("_dwi"), name, image, bval, bvec, mask=find_mask(image))
    return InputFiles(
        name=scan.name,
        images=(image,),
        bval=bval,
        bvec=bvec,
        mask=scan.mask,
        entities=scan.name,
        problem=find_way_out(root, scan),
    )


def _inherited(layout: Any, image: Path, ending: str) -> Path:
    """The nearest file that applies to the image; where there is none, the one that is missing beside it."""
    own = entities(stem(image)).items()
    for found in layout.get_nearest(str(image), suffix="dwi", extension=f".{ending}", all_=True) or []:
        if entities(Path(found).stem).items() <= own:  # pybids also offers those of other runs
            return Path(found)
    return image.with_name(f"{stem(image)}.{ending}")
