"""``tensorldm train``: a method's stages on a prepared store or on virtual heads; the same command again goes on."""

from pathlib import Path
from typing import Annotated

from typer import Exit, Option, echo

from tensorldm.cli.main import app

STOPPED = 143
"""128 + SIGTERM: what a cluster's scheduler expects of a job that it asked to end."""


@app.command()
def train(
    data: Annotated[
        str, Option(help="A prepared store, or cohort:SOURCE (procedural, templates:FOLDER, joined by +).")
    ],
    out: Annotated[Path, Option(help="Folder of the run; the same command again goes on from it.")],
    config: Annotated[str, Option(help="A preset (paper, base, smoke) or a YAML file.")] = "base",
    method: Annotated[
        str, Option(help="tensorldm, or a rival: unet, pix2pix, cyclegan, resvit, superdti, diffdti, ldm, coupled.")
    ] = "tensorldm",
    stages: Annotated[str | None, Option(help="Which stages: 1-5, 4, or 1,2,4,5; all that the model has.")] = None,
    start: Annotated[
        Path | None, Option("--from-bundle", help="Start from this bundle where the run has none.")
    ] = None,
    overrides: Annotated[list[str] | None, Option("--set", help="Change a setting: stages.4.steps=10.")] = None,
    restart: Annotated[bool, Option("--restart", help="Forget these stages and train them anew.")] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Show settings, parameters and memory; train nothing.")] = False,
) -> None:
    """Train TensorLDM, or one of its rivals, in stages."""
    from tensorldm.baselines.learned.runs import open_run
    from tensorldm.reconstruct.outputs import check_writable
    from tensorldm.training.run import check_stages, parse_stages, run_training
    from tensorldm.training.sources import check_source

    check_writable(out)
    trained, settings = open_run(method, config, overrides or [])
    numbers = parse_stages(stages, trained) if stages is not None else settings.stage_numbers
    check_source(data, settings.data)
    if dry_run:
        from rich.console import Console

        from tensorldm.training.plan import describe

        check_stages(settings, out=out, stages=numbers, start=start, method=trained)
        Console().print(*describe(settings, numbers, method=trained), sep="\n")
        return
    if not run_training(settings, data, out=out, stages=numbers, start=start, restart=restart, method=trained):
        raise Exit(STOPPED)
    echo(f"The trained model: {out / f'stage{numbers[-1]}' / 'bundle'}")
