"""``tensorldm reconstruct``: from a four-volume scan to tensor, maps and uncertainty."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tensorldm.cli.crew import Scheduler, Workers, ended_gently
from tensorldm.cli.main import USER_ERROR, app
from tensorldm.cli.outcomes import reconstruct_and_show

if TYPE_CHECKING:
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
    method: Annotated[
        str | None, typer.Option(help="Instead: minimum-norm, ade, ade-literal; a learned rival needs --model too.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    grid: Annotated[str, typer.Option(help="native (the scan's own) or 2mm.")] = "native",
    convention: Annotated[str, typer.Option(help="Of the tensor: mrtrix, fsl, dipy or nifti.")] = "mrtrix",
    samples: Annotated[int | None, typer.Option(help="Samples of a model; 1 is fast and has no uncertainty.")] = None,
    steps: Annotated[int, typer.Option(help="Sampler steps of a model.")] = 10,
    sampler: Annotated[str, typer.Option(help="dpm++2m or ddim.")] = "dpm++2m",
    mean: Annotated[
        str,
        typer.Option(help="Of the samples: arithmetic, log-euclidean, or eigenvalues (as anisotropic as they are)."),
    ] = "arithmetic",
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same bytes.")] = 0,
    spd: Annotated[str, typer.Option(help="project: positive definite everywhere; raw: as the method gives it.")] = (
        "project"
    ),
    directions: Annotated[
        str, typer.Option(help="3: b=0 and three volumes; all: the whole shell; auto: what suits.")
    ] = "auto",
    force: Annotated[bool, typer.Option("--force", help="Go on where the checks would refuse.")] = False,
    redo: Annotated[bool, typer.Option("--redo", help="Do again what is done already.")] = False,
    workers: Workers = 1,
    scheduler: Scheduler = None,
) -> None:
    """Reconstruct a diffusion tensor, its maps and its uncertainty from b=0 and three directions.

    Gradients and brain mask are found beside each series. Exit code 0: every scan is done; 1: some are not, each
    named with its reason; 2: none is. The same command again does only what is missing.
    """
    import os
    from tempfile import TemporaryDirectory

    # Before torch is loaded. Threads that spin while they wait make a busy machine ten times slower than one thread.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from tensorldm.baselines.learned.choice import choose
    from tensorldm.imaging.dicom import convert_dicom
    from tensorldm.reconstruct.choice import pick_device
    from tensorldm.reconstruct.files import Finished, Request
    from tensorldm.reconstruct.inputs import Given, gather
    from tensorldm.reconstruct.settings import Settings
    from tensorldm.work.crew import Crew

    crew = Crew(workers, scheduler)
    settings = Settings(
        grid=grid,
        spd=spd,
        directions=directions,
        samples=samples,
        steps=steps,
        sampler=sampler,
        mean=mean,
        seed=seed,
        force=force,
    )
    request = Request(
        choose(model=model, method=method), settings, pick_device(device), out, convention, draw, describe, redo
    )
    with ended_gently(), TemporaryDirectory(prefix="tensorldm-") as scratch:
        inputs = gather(convert_dicom(scans, Path(scratch)), given=Given(bval, bvec, grad, mask), join=join)
        outcomes = reconstruct_and_show(inputs, request, crew)
    done = sum(isinstance(outcome, Finished) for outcome in outcomes)
    if done < len(outcomes):
        raise typer.Exit(SOME_FAILED if done else USER_ERROR)


def draw(path: Path, result: "Reconstruction") -> None:
    """The overview of one reconstruction."""
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


def describe(path: Path, result: "Reconstruction", notes: Mapping[str, Any]) -> None:
    """The page about one reconstruction."""
    from tensorldm.report.subject_page import write_subject_page

    write_subject_page(path, result, notes)
