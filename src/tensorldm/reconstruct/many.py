"""Many scans: what is done is kept, the rest is checked, then shared out to a crew; one bad scan stops nobody.

Where this process has a GPU and no crew was asked for, helpers read and write around it (``overlap``).
"""

import secrets
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tensorldm.errors import DataError, TensorldmError
from tensorldm.reconstruct.choice import own_gpu
from tensorldm.reconstruct.derivative import check_place, describe_dataset
from tensorldm.reconstruct.engine import Engine
from tensorldm.reconstruct.files import Failed, Finished, Request, check_files, run_job
from tensorldm.reconstruct.inputs import InputFiles
from tensorldm.reconstruct.journal import Entry, find_done
from tensorldm.reconstruct.naming import naming_for
from tensorldm.reconstruct.overlap import bytes_of_helper, helpers_for
from tensorldm.reconstruct.ownership import refuse_another_scan, refuse_foreign
from tensorldm.reconstruct.pipeline import Tell
from tensorldm.reconstruct.shared_engine import EngineAtDesk, SharedEngine
from tensorldm.work.bugs import explain
from tensorldm.work.crew import ALONE, Crew, Done, Lost, perform, silent
from tensorldm.work.folder import writing_to
from tensorldm.work.pool import perform_in_pool
from tensorldm.work.processes import let_go, once


def reconstruct_files(
    inputs: Sequence[InputFiles], request: Request, *, tell: Tell, crew: Crew = ALONE, say: Tell = silent
) -> Generator[Finished | Failed, None, None]:
    """Every scan: what is done already is kept, the others are checked, then shared out; a bad one stops nobody.

    ``tell`` hears what is being done, ``say`` what a user should read about the crew. Outcomes come as they are known.
    """
    with writing_to(request.out):
        missing, largest, alone = [], 0, len(inputs) == 1
        if any(files.entities is not None for files in inputs):
            check_place(request.out)
        for files in inputs:
            tell(f"{files.name}: checking")
            naming = naming_for(files, alone=alone, grid=request.settings.grid)
            try:
                done = None if request.redo else find_done(request.out, files, recipe=request.recipe(naming))
                if done is None:
                    refuse_foreign(request.out, naming)
                    if not request.redo:
                        refuse_another_scan(request.out, files, naming=naming)
                    plan = check_files(files, request, naming=naming).plan
                    largest = max(largest, bytes_of_helper(plan.space.shape, len(plan.read)))
                    missing.append(files)
                else:
                    yield _kept(done, request.out)
            except TensorldmError as error:
                yield Failed(files.name, error)
        helpers = helpers_for(request.device, len(missing), bytes_each=largest) if crew.stays_here(len(missing)) else 0
        task = Reconstructing(request, secrets.token_hex(8), alone=alone, tell=tell, asks=helpers > 0)
        with closing(_performed(task, missing, helpers=helpers, crew=crew, say=say)) as ended:
            for each in ended:
                outcome = each.value if isinstance(each, Done) else _lost(each)
                if isinstance(outcome, Finished):
                    describe_dataset(request.out, each.job)
                yield outcome


Ended = Done[InputFiles, Finished | Failed] | Lost[InputFiles]


def _performed(
    task: "Reconstructing", missing: Sequence[InputFiles], *, helpers: int, crew: Crew, say: Tell
) -> Generator[Ended, None, None]:
    """Every scan by whoever suits: helpers around this process's GPU, this process alone, or the crew."""
    tell, elsewhere = task.tell, replace(task, tell=silent)
    try:
        if helpers:
            desk = EngineAtDesk(task.engine, partial(_tell_of, tell, part="reconstructing"))
            early = partial(_load_early, desk.load, tell)
            yield from perform_in_pool(elsewhere, missing, workers=helpers, serve=desk, meanwhile=early)
        else:
            here = crew.stays_here(len(missing))
            yield from perform(task if here else elsewhere, missing, crew=crew, tell=say)
    finally:
        let_go(task.token)


@dataclass(frozen=True, eq=False)
class Reconstructing:
    """The work on one scan, wherever it is done; a process loads the model once."""

    request: Request
    token: str
    """Of this call: the model of another call is another model."""
    alone: bool
    """The only scan of its call: it needs no folder of its own, and a bug may end the program."""
    tell: Tell
    asks: bool = False
    """The model is in the first process, which is asked."""

    def __call__(self, files: InputFiles) -> Finished | Failed:
        """The result on the disk and in the journal, or why there is none."""
        try:
            return self._do(files)
        except TensorldmError as error:
            return Failed(files.name, error)
        except Exception as error:
            if self.alone:
                raise
            what, traceback = explain(error, where=files.image)
            return Failed(files.name, DataError(what), traceback)

    def _do(self, files: InputFiles) -> Finished:
        request = self.request
        naming = naming_for(files, alone=self.alone, grid=request.settings.grid)
        job = check_files(files, request, naming=naming)
        engine: Engine = SharedEngine(request.choice.traits, files.name) if self.asks else self.engine()
        finished, _ = run_job(job, engine, request=request, tell=partial(_tell_of, self.tell, files.name))
        return finished

    def engine(self) -> Engine:
        """Loaded once in a process."""
        request = self.request
        return once(self.token, lambda: request.choice.load(request.settings, device=own_gpu(request.device)))


def _load_early(load: Callable[[], Engine], tell: Tell) -> None:
    """While helpers start; what goes wrong is told again to every scan that needs the engine."""
    tell("loading the model")
    with suppress(Exception):
        load()


def _kept(done: Entry, out: Path) -> Finished:
    return Finished(done.name, done.summary, done.brain, tuple(out / file.path for file in done.written), kept=True)


def _lost(lost: Lost[InputFiles]) -> Failed:
    return Failed(lost.job.name, DataError(f"{lost.job.image}: {lost.reason}"))


def _tell_of(tell: Tell, name: str, part: str) -> None:
    tell(f"{name}: {part}")
