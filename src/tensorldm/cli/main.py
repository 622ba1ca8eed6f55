"""The program ``tensorldm``: collects the verbs, turns user errors into one line and exit code 2."""

import logging
import sys
import warnings
from typing import Annotated, Any

import typer

from tensorldm import __version__
from tensorldm.errors import TensorldmError

app = typer.Typer(
    name="tensorldm",
    help="A full diffusion tensor from four diffusion-weighted volumes.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

USER_ERROR = 2
WRONG_CALL: Any = typer.BadParameter.__base__
"""Typer's error of a wrong option, argument or command; it has the parent of this one and no name for it."""
INTERRUPTED = 130


def _print_version(wanted: bool) -> bool:
    if wanted:
        typer.echo(f"tensorldm {__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and leave."),
    ] = False,
) -> None:
    """A full diffusion tensor from four diffusion-weighted volumes."""


def _warn_in_one_line(message: Warning | str, *_details: object, **_more: object) -> None:
    typer.echo(f"warning: {message}", err=True)


def _tell_in_one_line(error: Any, _file: object = None) -> None:
    """What typer says in four lines of a wrong call: which command, what is wrong with it, and where to look."""
    message = error.format_message().rstrip(".")
    where = error.ctx.command_path if error.ctx else app.info.name
    typer.echo(f"error: {message}. See '{where} -h'.", err=True)


def run() -> None:
    """Entry point of the installed program."""
    from tensorldm.cli import verbs  # noqa: F401  registers every verb on ``app``

    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    warnings.showwarning = _warn_in_one_line
    WRONG_CALL.show = _tell_in_one_line
    try:
        app()
    except TensorldmError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(USER_ERROR)
    except SystemExit as leaving:
        if leaving.code == INTERRUPTED:  # what typer makes of Ctrl-C, without a word
            typer.echo("stopped; nothing half-written was left behind", err=True)
        raise
