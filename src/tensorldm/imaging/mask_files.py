"""A brain mask that lies beside an image, by the names that masks usually have.

Only names are read: whether the mask fits the image's grid is told when it is used.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tensorldm.imaging.header import SUFFIXES, stem

PLAIN_NAMES: Final = ("mask", "brain_mask", "nodif_brain_mask")


def find_mask(image: Path) -> Path | None:
    """The image's own mask (``NAME_mask``), one that BIDS gives it, or the folder's only one; else None."""
    own = _first(image.parent, f"{stem(image)}_mask")
    return own or _bids_mask(image) or _first(image.parent, *PLAIN_NAMES)


def entities(name: str) -> dict[str, str]:
    """BIDS entities of a file's name: ``sub-01_dir-AP_dwi`` to ``{"sub": "01", "dir": "AP"}``."""
    return dict(re.findall(r"([a-zA-Z]+)-([a-zA-Z0-9+]+)(?=_|$)", name))


def _bids_mask(image: Path) -> Path | None:
    """``sub-01_desc-brain_mask`` or ``sub-01_mask``: nothing in its name contradicts the image's, most agrees."""
    wanted = _place(entities(stem(image)))
    if "sub" not in wanted:
        return None
    found = [path for suffix in SUFFIXES for path in sorted(image.parent.glob(f"sub-*_mask{suffix}"))]
    fitting = [
        path
        for path in found
        if (own := entities(stem(path))).get("desc", "brain") == "brain" and _place(own).items() <= wanted.items()
    ]
    return max(fitting, key=lambda path: (len(entities(stem(path))), path.name), default=None)


def _place(named: Mapping[str, str]) -> dict[str, str]:
    """All entities but ``desc``, which a mask and its series never share."""
    return {key: value for key, value in named.items() if key != "desc"}


def _first(folder: Path, *names: str) -> Path | None:
    paths = (folder / f"{name}{suffix}" for name in names for suffix in SUFFIXES)
    return next((path for path in paths if path.is_file()), None)
