"""``tensorldm reconstruct``: from a four-volume scan to tensor, maps and uncertainty."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tensorldm.cli.main import USER_ERROR, app

if TYPE_CHECKING:
    from rich.console import Console

    from tensorldm.reconstruct.files import Finished
    from tensorldm.reconstruct.result import Reconstruction

SOME_FAILED = 1


@app.command()
def reconstruct(
    scans: Annotated[
        list[Path], typer.Argument(help="4D NIfTI series, BIDS datasets, HCP trees or DICOM folders; one or many.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the results.")] = Path("reconstructed"),
    bval: Annotated[Path | None, typer.Option(help="b-values, where they are not beside the series.")] = None,
    bvec: Annotated[Path | None, typer.Option(help="Directions in FSL's form.")] = None,
    grad: Annotated[Path | None, typer.Option(help="Gradients as MRtrix3's table instead.")] = None,
    mask: Annotated[Path | None, typer.Option(help="Brain mask; by default beside the series, else found.")] = None,
    join: Annotated[bool, typer.Option("--join", help="The files are the volumes of one scan.")] = False,
    model: Annotated[Path | None, typer.Option(help="Folder of a trained model (a bundle).")] = None,
    method: Annotated[str | None, typer.Option(help="Instead: minimum-norm, ade or ade-literal.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    grid: Annotated[str, typer.Option(help="native (the scan's own) or 2mm.")] = "native",
    convention: Annotated[str, typer.Option(help="Of the tensor: mrtrix, fsl, dipy or nifti.")] = "mrtrix",
    samples: Annotated[int | None, typer.Option(help="Samples of a model; 1 is fast and has no uncertainty.")] = None,
    steps: Annotated[int, typer.Option(help="Sampler steps of a model.")] = 25,
    sampler: Annotated[str, typer.Option(help="dpm++2m or ddim.")] = "dpm++2m",
    seed: Annotated[int, typer.Option(help="The same seed gives the same bytes.")] = 0,
    spd: Annotated[str, typer.Option(help="project: positive definite everywhere; raw: as the method gives it.")] = (
        "project"
    ),
    directions: Annotated[str, typer.Option(help="axes: b=0 and three volumes; all: the whole shell.")] = "axes",
    force: Annotated[bool, typer.Option("--force", help="Go on where the checks would refuse.")] = False,
) -> None:
    """Reconstruct a diffusion tensor, its maps and its uncertainty from b=0 and three directions.

    Gradients and brain mask are found beside each series. Exit code 0: every scan is done; 1: some are not, each
    named with its reason; 2: none is.
    """
    import os
    from tempfile import TemporaryDirectory

    from rich.console import Console

    # Before torch is loaded. Threads that spin while they wait make a busy machine ten times slower than one thread.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from tensorldm.imaging.dicom import convert_dicom
    from tensorldm.reconstruct.choice import choose, pick_device
    from tensorldm.reconstruct.files import Finished, Request, reconstruct_files
    from tensorldm.reconstruct.inputs import Given, gather
    from tensorldm.reconstruct.settings import Settings

    settings = Settings(
        grid=grid,
        spd=spd,
        directions=directions,
        samples=samples,
        steps=steps,
        sampler=sampler,
        seed=seed,
        force=force,
    )
    request = Request(choose(model=model, method=method), settings, pick_device(device), out, convention, _draw)
    console = Console()
    outcomes = []
    with _ended_gently(), TemporaryDirectory(prefix="tensorldm-") as scratch:
        inputs = gather(convert_dicom(scans, Path(scratch)), given=Given(bval, bvec, grad, mask), join=join)
        with console.status("checking") as status:
            for outcome in reconstruct_files(inputs, request, tell=status.update):
                outcomes.append(outcome)
                if isinstance(outcome, Finished):
                    _show(console, outcome, out)
                else:
                    typer.echo(f"error: {outcome.error}", err=True)
    done = sum(isinstance(outcome, Finished) for outcome in outcomes)
    if done < len(outcomes):
        raise typer.Exit(SOME_FAILED if done else USER_ERROR)


@contextmanager
def _ended_gently() -> Iterator[None]:
    """A scheduler's SIGTERM counts as Ctrl-C, so that unfinished files are cleared away."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _draw(path: Path, result: "Reconstruction") -> None:
    from tensorldm.report.overview import draw_reconstruction

    draw_reconstruction(
        path,
        result.s0,
        result.tensor,
        space=result.space,
        mask=result.mask,
        prior_share=result.extra["prior_share"],
        v1_cone_degrees=result.extra.get("v1_cone"),
    )


def _show(console: "Console", finished: "Finished", out: Path) -> None:
    """One screen: figures, warnings, files."""
    from tensorldm.reconstruct.summary import summarise

    console.print(f"\n{finished.name}", style="bold", markup=False)
    for line in summarise(finished.name, finished.result).lines():
        console.print(f"  {line}", markup=False, highlight=False)
    console.print(f"  brain                     {finished.brain}", markup=False, highlight=False)
    for word in finished.result.warnings:
        console.print(f"  warning: {word}", style="yellow", markup=False, highlight=False)
    names = ", ".join(str(path.relative_to(out)) for path in finished.written)
    console.print(f"  files in {out}: {names}", markup=False, highlight=False)
