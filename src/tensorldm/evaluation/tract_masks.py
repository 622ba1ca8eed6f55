"""Where the bundle masks of a subject are: a folder that the user names, one among many subjects', or TractSeg's work.

Masks are made once, from the reference or the truth, and serve every method.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tensorldm.errors import DataError
from tensorldm.imaging.volume import Space
from tensorldm.shapes import MaskImage
from tensorldm.tracts.bundle_masks import choose_bundles, find_files, list_bundles
from tensorldm.tracts.tracking import read_field
from tensorldm.tracts.tractseg import TractSeg, asks_for_tractseg, need_tractseg, segment_bundles

SUBJECT: Final = "{subject}"
"""In a path, it stands for the subject's name."""
TRUTHS: Final = ("", "derivatives/truth", "truth")
"""Below a cohort's folder, where folders of subjects are: its own, or the truth of a virtual cohort."""
INSIDE: Final = ("bundles", "dwi/bundles", "tractseg_output", "tractseg", "")
"""Below a subject's folder, where its masks are; the folder itself last, for it may hold other images too."""
MADE: Final = "tractseg"
"""Folder, among a subject's tractograms, of the masks that TractSeg made."""


@dataclass(frozen=True)
class MaskSource:
    """What the user gave: a folder (of one subject, or of many), or TractSeg."""

    given: Path
    program: TractSeg | None = None

    def of_subject(self, subject: str) -> "MaskSource":
        """That of one subject of a cohort."""
        return self if self.program is not None else MaskSource(find_masks(self.given, subject))

    def files(self, names: Sequence[str]) -> list[Path]:
        """Every mask of these bundles (or of the paper's) that is there before anything is done."""
        if self.program is not None:
            return []
        return [path for name in choose_bundles(self.given, names) for path in find_files(self.given, name).paths]

    def folder(
        self,
        reference: Path,
        brain: MaskImage,
        *,
        space: Space,
        out: Path,
        convention: str | None,
        tell: Callable[[str], None],
    ) -> Path:
        """The folder of masks; TractSeg is started for it where it has not been."""
        if self.program is None:
            return self.given
        field = read_field(reference, brain, space=space, convention=convention)
        return segment_bundles(field, out / MADE, program=self.program, tell=tell)


def open_masks(given: Path) -> MaskSource:
    """What the user gave; TractSeg is looked for where it was asked for."""
    return MaskSource(given, need_tractseg() if asks_for_tractseg(given) else None)


def find_masks(given: Path, subject: str) -> Path:
    """The folder with the masks of one of many subjects; only names are looked at."""
    if Path(subject).name != subject or subject in ("", ".."):
        raise DataError(f"{subject!r}: a subject's name that leads to another folder. Mend the tensor's sidecar.")
    if SUBJECT in str(given):
        folder = Path(str(given).replace(SUBJECT, subject))
        list_bundles(folder)
        return folder
    if not given.is_dir():
        raise DataError(f"{given}: there is no such folder. Give one with a folder of bundle masks for every subject.")
    for place in (given / truth / subject / inside for inside in INSIDE for truth in TRUTHS):
        if _has_masks(place):
            return place
    raise DataError(
        f"{given}: no bundle masks of {subject}, such as {subject}/CST_left.nii.gz. Give a folder that has one folder "
        f"of masks for every subject, or a path with {SUBJECT} in it."
    )


def _has_masks(folder: Path) -> bool:
    try:
        return bool(list_bundles(folder))
    except DataError:
        return False
