"""``tensorldm report``: pages to look at, of one reconstruction, of several methods, or of a cohort."""

from pathlib import Path
from typing import Annotated

import typer

from tensorldm.cli.main import app

SOME_FAILED = 1


@app.command()
def report(
    places: Annotated[
        list[Path],
        typer.Argument(help="Folders that reconstruct wrote; with --compare a reference, then tensors of methods."),
    ],
    compare: Annotated[
        bool, typer.Option("--compare", help="The first is the reference, the others are methods.")
    ] = False,
    cohort: Annotated[bool, typer.Option("--cohort", help="One table of all reconstructions in the folders.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="The page; by default report.html in the folder, compare.html or cohort.html."
        ),
    ] = None,
    mask: Annotated[Path | None, typer.Option(help="With --compare: brain mask, else the reference's own.")] = None,
    convention: Annotated[
        str | None, typer.Option(help="With --compare: of images without a sidecar: mrtrix, fsl, dipy or nifti.")
    ] = None,
    subject: Annotated[str | None, typer.Option(help="With --compare: the subject's name.")] = None,
) -> None:
    """Write a page for people: one HTML file that needs no network and opens from disk.

    Without an option, the report of one reconstruction, as reconstruct itself writes it. With --cohort exit code 1
    means that some reconstructions could not be read; the page names them.
    """
    import os

    from tensorldm.errors import ConfigError

    # Before torch is loaded. Threads that spin while they wait make a busy machine ten times slower than one thread.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if compare and cohort:
        raise ConfigError("--compare and --cohort: give one of the two.")
    if not compare and (mask, convention, subject) != (None, None, None):
        raise ConfigError("--mask, --convention and --subject belong to --compare. Leave them out, or give it.")
    if compare:
        _compare(places, out or Path("compare.html"), mask, convention, subject)
    elif cohort:
        _cohort(places, out or Path("cohort.html"))
    else:
        _single(places, out)


def _single(places: list[Path], out: Path | None) -> None:
    from tensorldm.errors import ConfigError
    from tensorldm.report.reading import find_tensor, read_recorded
    from tensorldm.report.subject_page import write_subject_page

    if len(places) != 1:
        raise ConfigError(f"{len(places)} folders: give one, or --cohort for a table of all, or --compare for methods.")
    recorded = read_recorded(find_tensor(places[0]))
    path = out or recorded.tensor.parent / recorded.naming.report
    write_subject_page(path, recorded.result, recorded.notes)
    _tell(path)


def _compare(places: list[Path], out: Path, mask: Path | None, convention: str | None, subject: str | None) -> None:
    from rich.console import Console

    from tensorldm.errors import ConfigError
    from tensorldm.report.compare_fields import read_comparison
    from tensorldm.report.compare_page import write_compare_page
    from tensorldm.report.reading import find_tensor

    if len(places) < 2:
        raise ConfigError("--compare: give the reference first, then at least one tensor image or folder to compare.")
    with Console().status("measuring") as status:
        reference, *predictions = (find_tensor(place) for place in places)
        found = read_comparison(reference, predictions, mask=mask, convention=convention, subject=subject)
        status.update("drawing")
        write_compare_page(out, found)
    _tell(out)


def _cohort(places: list[Path], out: Path) -> None:
    from rich.console import Console

    from tensorldm.report.cohort_members import gather_members
    from tensorldm.report.cohort_page import write_cohort_page

    with Console().status("looking") as status:
        members, failures = gather_members(places, tell=status.update)
        write_cohort_page(out, members, failures=failures)
    for name, reason in failures.items():
        typer.echo(f"error: {name}: {reason}", err=True)
    _tell(out)
    if failures:
        raise typer.Exit(SOME_FAILED)


def _tell(path: Path) -> None:
    typer.echo(f"{path} is written: open it in a browser.")
