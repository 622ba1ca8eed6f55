"""What output files are called: plain names in a folder, or BIDS-derivative names where the input is BIDS."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tensorldm.reconstruct.inputs import InputFiles

IMAGE: Final = ".nii.gz"
ABBREVIATION: Final = re.compile(r"fa|md|rd|ad|s0|sd|spd|[vl][123]")


@dataclass(frozen=True)
class Naming:
    """Paths of one scan's outputs, relative to the output folder."""

    folder: Path
    entities: str | None
    """``sub-01_ses-2``, or None for plain names."""

    def image(self, name: str) -> Path:
        """An image by its plain name (``fa``)."""
        if self.entities is None:
            return self.folder / f"{name}{IMAGE}"
        if name == "mask":
            return self.folder / f"{self.entities}_desc-brain_mask{IMAGE}"
        return self.folder / f"{self.entities}_model-DTI_param-{_label(name)}_dwimap{IMAGE}"

    @property
    def picture(self) -> Path:
        """The overview."""
        return self.folder / ("overview.png" if self.entities is None else f"{self.entities}_desc-overview_dwimap.png")


def naming_for(scan: InputFiles, *, alone: bool) -> Naming:
    """A BIDS scan gets BIDS's folders; of several plain ones each gets a folder of its own."""
    if scan.entities is not None:
        found = dict(re.findall(r"(sub|ses)-([a-zA-Z0-9+]+)", scan.entities))
        parts = [f"{key}-{found[key]}" for key in ("sub", "ses") if key in found]
        return Naming(Path(*parts) / "dwi", scan.entities)
    return Naming(Path() if alone else Path(scan.name), None)


def _label(name: str) -> str:
    """BIDS labels are letters and digits: ``fa`` is ``FA``, ``colour_fa`` is ``colourFA``."""
    first, *rest = (word.upper() if ABBREVIATION.fullmatch(word) else word for word in name.split("_"))
    return first + "".join(word[0].upper() + word[1:] for word in rest)
