"""``tensorldm track``: whole-brain streamlines, and bundles, from tensor images."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tensorldm.cli.crew import Scheduler
from tensorldm.cli.main import app

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

    from tensorldm.tracts.tracking import Watch


@app.command()
def track(
    tensors: Annotated[
        list[Path], typer.Argument(help="Tensor images (NIfTI) on one grid; or a folder of many subjects.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the tractograms.")],
    mask: Annotated[
        Path | None, typer.Option(help="Brain mask; by default the one the first sidecar names, or beside it.")
    ] = None,
    engine: Annotated[str, typer.Option(help="auto (MRtrix3 where it is installed, else DIPY), mrtrix or dipy.")] = (
        "auto"
    ),
    algorithm: Annotated[
        str, typer.Option(help="probabilistic (iFOD2), first-order (iFOD1) or deterministic (FACT on v1).")
    ] = "probabilistic",
    seeds: Annotated[int, typer.Option(help="Starting points; about three in ten give a streamline.")] = 180_000,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same streamlines.")] = 0,
    cutoff: Annotated[float, typer.Option(help="Streamlines end where the FA falls below this.")] = 0.15,
    bundles: Annotated[
        Path | None,
        typer.Option(help="Folder of bundle masks (TractSeg's layout) to cut bundles with; or 'tractseg', to run it."),
    ] = None,
    bundle: Annotated[
        list[str] | None, typer.Option(help="A bundle of that folder; may be repeated. By default the paper's twelve.")
    ] = None,
    convention: Annotated[
        str | None, typer.Option(help="How images without a sidecar are stored: mrtrix, fsl, dipy or nifti.")
    ] = None,
    workers: Annotated[
        int, typer.Option(min=1, help="Threads, or a cohort's processes; the result does not depend on it.")
    ] = os.cpu_count() or 1,
    scheduler: Scheduler = None,
) -> None:
    """Track streamlines through a whole brain, the same way for every tensor, and cut them into bundles.

    Writes NAME.tck, NAME.trx and NAME.json for every tensor. A run that was stopped goes on where it was.
    """
    import warnings

    from rich.console import Console

    from tensorldm.cli.crew import ended_gently
    from tensorldm.cli.track_cohort import track_and_show
    from tensorldm.data.store import safe_name
    from tensorldm.errors import ConfigError, DataWarning
    from tensorldm.evaluation.evaluate import mask_of, name_methods
    from tensorldm.evaluation.track_cohort import TrackTask
    from tensorldm.evaluation.tract_masks import open_masks
    from tensorldm.imaging.mask import read_brain_mask
    from tensorldm.imaging.nifti import read_header
    from tensorldm.imaging.tensor_files import read_convention
    from tensorldm.reconstruct.outputs import check_writable
    from tensorldm.tracts.bundles import cut_bundles, read_bundles
    from tensorldm.tracts.engine import open_engine
    from tensorldm.tracts.regions import Region
    from tensorldm.tracts.selecting import SelectionRule
    from tensorldm.tracts.settings import TrackSettings
    from tensorldm.tracts.tracking import read_field, track_field
    from tensorldm.work.crew import Crew
    from tensorldm.work.folder import writing_to

    check_writable(out)
    settings = TrackSettings(algorithm=algorithm, seeds=seeds, seed=seed, cutoff=cutoff)
    if tensors[0].is_dir():
        if len(tensors) > 1 or (mask, bundles, bundle) != (None, None, None):
            raise ConfigError("A folder is a cohort of its own: give one, without --mask, --bundles and --bundle.")
        crew = Crew(workers if scheduler is None else 1, scheduler)
        track_and_show(TrackTask(tensors[0], out, settings, engine, convention), crew)
        return
    if scheduler is not None:
        raise ConfigError("--scheduler shares out a cohort: give the folder of its tensors, or leave it out.")
    for path in tensors:
        read_convention(path, default=convention)  # what is no tensor is told before a mask is looked for
    tracker, names = open_engine(engine), name_methods(tensors)
    space = read_header(tensors[0]).space
    brain = read_brain_mask(mask_of(tensors[0], mask), space)
    console, masks = Console(), []
    with ended_gently(), writing_to(out):
        if bundles is not None:
            source = open_masks(bundles)
            with console.status("bundle masks") as status:
                folder = source.folder(
                    tensors[0], brain, space=space, out=out, convention=convention, tell=status.update
                )
            masks = read_bundles(folder, bundle or [], brain=Region(brain, space))
        for name, path in zip(names, tensors, strict=True):
            field, target = read_field(path, brain, space=space, convention=convention), out / safe_name(name)
            with _progress(console) as progress:
                bar = progress.add_task(name)
                found = track_field(
                    field,
                    target,
                    settings=settings,
                    engine=tracker,
                    workers=workers,
                    notes={"Tensor": path.name},
                    watch=_moving(progress, bar),
                )
            if not found.streamlines:
                words = f"{path}: no streamline was found. Look at its FA in the mask, or give a lower --cutoff."
                warnings.warn(words, DataWarning, stacklevel=2)
            again = ", as before" if found.was_there else ""
            line = f"{name}: {found.streamlines} streamlines from {found.seeds} seeds{again} ({tracker.version})"
            console.print(line, markup=False, highlight=False)
            for part, lines in cut_bundles(found.tck, masks, rule=SelectionRule(), folder=target).items():
                console.print(f"  {part:12} {len(lines):6}", markup=False, highlight=False)
    console.print(
        f"Tractograms (.tck, .trx) are in {out}; see them: tensorldm view {out}", markup=False, soft_wrap=True
    )


def _progress(console: "Console") -> "Progress":
    """A bar with the share that is done and the time that is left; it leaves the screen at the end."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:.0f} %"))
    return Progress(*columns, TimeRemainingColumn(), console=console, transient=True)


def _moving(progress: "Progress", bar: "TaskID") -> "Watch":
    return lambda done, total: progress.update(bar, completed=done, total=total)
