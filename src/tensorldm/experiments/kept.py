"""Tensors that a study has kept for figures, found by what their sidecars say."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tensorldm.experiments.config import StudyConfig
from tensorldm.experiments.loading import MASK
from tensorldm.experiments.parts import Results
from tensorldm.experiments.variants import PAPER_FIT
from tensorldm.imaging.tensor_files import read_provenance


@dataclass(frozen=True)
class KeptSubject:
    """A subject's tensors by method; the newest where settings have changed."""

    group: str
    name: str
    reference: Path
    mask: Path
    tensors: dict[str, Path]

    def of(self, methods: tuple[str, ...]) -> dict[str, Path]:
        """Those of these methods, in this order."""
        return {name: self.tensors[name] for name in methods if name in self.tensors}


def kept_subjects(study: StudyConfig, results: Results) -> Iterator[KeptSubject]:
    """Every subject with a mask, a reference and at least one method's tensor."""
    for group in study.groups:
        folder = results.work(group, "x").parent
        for subject in sorted(path for path in folder.glob("*") if path.is_dir()):
            images = sorted(subject.glob("*.nii.gz"), key=lambda path: path.stat().st_mtime_ns)
            references = [path for path in images if path.name.startswith(f"reference-{PAPER_FIT}-")]
            named = ((read_provenance(path).method, path) for path in images if not path.name.startswith("reference-"))
            tensors = {name: path for name, path in named if name in study.methods}
            if references and tensors and (subject / MASK).is_file():
                yield KeptSubject(group, subject.name, references[-1], subject / MASK, dict(tensors))
