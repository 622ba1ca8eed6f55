"""Streamlines of a whole cohort: one tensor image a job, each into the place that it has among the tensors."""

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from tensorldm.evaluation.evaluate import mask_of
from tensorldm.imaging.header import stem
from tensorldm.imaging.mask import read_brain_mask
from tensorldm.imaging.nifti import read_header
from tensorldm.tracts.engine import open_engine
from tensorldm.tracts.settings import TrackSettings
from tensorldm.tracts.tracking import read_field, track_field
from tensorldm.work.bugs import explain
from tensorldm.work.crew import Crew, Done, Tell, perform


@dataclass(frozen=True)
class TrackTask:
    """How every tensor of a cohort is tracked."""

    root: Path
    """Folder of the tensors; what lies below it has the same place below ``out``."""
    out: Path
    settings: TrackSettings
    engine: str
    convention: str | None
    threads: int = 1

    def __call__(self, tensor: Path) -> "Tracked":
        """Track one tensor, unless it is tracked already; done by a worker."""
        name = tensor.relative_to(self.root).as_posix()
        try:
            space = read_header(tensor).space
            brain = read_brain_mask(mask_of(tensor, None), space)
            field = read_field(tensor, brain, space=space, convention=self.convention)
            found = track_field(
                field,
                (self.out / name).with_name(stem(tensor)),
                settings=self.settings,
                engine=open_engine(self.engine),
                workers=self.threads,
                notes={"Tensor": tensor.name},
            )
        except Exception as error:
            return Tracked(name, *explain(error, where=tensor))
        return Tracked(name, streamlines=found.streamlines, was_there=found.was_there)


@dataclass(frozen=True)
class Tracked:
    """What became of one tensor."""

    name: str
    problem: str = ""
    """One sentence, if it could not be tracked."""
    traceback: str = ""
    """Of a bug."""
    streamlines: int = 0
    was_there: bool = False


def track_cohort(tensors: Sequence[Path], task: TrackTask, *, crew: Crew, tell: Tell) -> Generator[Tracked, None, None]:
    """Track every tensor; outcomes as they are known."""
    open_engine(task.engine)  # a missing program is told before anything is shared out
    with closing(perform(task, tensors, crew=crew, tell=tell)) as ended:
        for each in ended:
            if isinstance(each, Done):
                yield each.value
            else:
                yield Tracked(each.job.relative_to(task.root).as_posix(), problem=f"{each.job}: {each.reason}")
