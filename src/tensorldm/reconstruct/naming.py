"""What output files are called: plain names in a folder, or BIDS-derivative names where the input is BIDS."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tensorldm.imaging.mask_files import entities
from tensorldm.reconstruct.inputs import InputFiles

IMAGE: Final = ".nii.gz"
ORIGINAL_SPACE: Final = "space-orig"
"""BIDS's word for an image's own space."""
ABBREVIATION: Final = re.compile(r"fa|md|rd|ad|s0|sd|spd|[vl][123]")


@dataclass(frozen=True)
class Naming:
    """Paths of one scan's outputs, relative to the output folder."""

    folder: Path
    entities: str | None
    """``sub-01_ses-2_space-orig``, or None for plain names."""

    def image(self, name: str) -> Path:
        """An image by its plain name (``fa``)."""
        if self.entities is None:
            return self.folder / f"{name}{IMAGE}"
        if name == "mask":
            return self.folder / f"{self.entities}_desc-brain_mask{IMAGE}"
        return self.folder / f"{self.entities}_model-DTI_param-{_label(name)}_dwimap{IMAGE}"

    @property
    def model_sidecar(self) -> Path | None:
        """What BIDS inherits to all maps of the model; plain names have none."""
        return None if self.entities is None else self.folder / f"{self.entities}_model-DTI_dwimap.json"

    @property
    def picture(self) -> Path:
        """The overview."""
        return self.folder / ("overview.png" if self.entities is None else f"{self.entities}_desc-overview_dwimap.png")

    @property
    def report(self) -> Path:
        """The page for people."""
        return self.folder / ("report.html" if self.entities is None else f"{self.entities}_desc-report_dwimap.html")


def naming_for(scan: InputFiles, *, alone: bool, grid: str = "native") -> Naming:
    """A BIDS scan gets BIDS's folders and says its space; of several plain ones each gets a folder of its own."""
    if scan.entities is not None:
        found = entities(scan.entities)
        parts = [f"{key}-{found[key]}" for key in ("sub", "ses") if key in found]
        return Naming(Path(*parts) / "dwi", _with_space(scan.entities, grid))
    return Naming(Path() if alone else Path(scan.name), None)


def _with_space(source: str, grid: str) -> str:
    """The series' own entities without its ``desc``, then the space: the series' own, or the one it names."""
    kept = [part for part in source.split("_") if not part.startswith(("desc-", "res-"))]
    if not any(part.startswith("space-") for part in kept):
        kept.append(ORIGINAL_SPACE)
    if grid != "native":
        kept.append(f"res-{grid}")
    return "_".join(kept)


def naming_of(tensor: Path) -> Naming:
    """The names of the files around a tensor image that is there, relative to its own folder."""
    entities, end, _ = tensor.name.partition("_model-DTI_param-tensor_dwimap")
    return Naming(Path(), entities if end else None)


def _label(name: str) -> str:
    """BIDS labels are letters and digits: ``fa`` is ``FA``, ``colour_fa`` is ``colourFA``."""
    first, *rest = (word.upper() if ABBREVIATION.fullmatch(word) else word for word in name.split("_"))
    return first + "".join(word[0].upper() + word[1:] for word in rest)
