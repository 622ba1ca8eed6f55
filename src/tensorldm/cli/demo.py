"""``tensorldm demo``: the main job on a virtual subject, from four volumes to a picture."""

from pathlib import Path
from typing import Annotated

import typer

from tensorldm.cli.main import app


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the results.")],
    seed: Annotated[int, typer.Option(min=0, help="Which virtual subject.")] = 0,
    voxel_size: Annotated[float, typer.Option(min=1.5, max=6.0, help="Voxel size in mm; 4 takes seconds.")] = 2.0,
) -> None:
    """Make a virtual subject, reconstruct a tensor from four of its volumes, and show how good it is."""
    import os
    import time

    from rich.console import Console

    # Before torch is loaded. Threads that spin while they wait make a busy machine ten times slower than one thread.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    console = Console()
    start = time.perf_counter()
    with console.status("starting") as status:
        from tensorldm.demo import run_demo
        from tensorldm.evaluation.summary import describe_anatomies, describe_subjects, summarise
        from tensorldm.reconstruct.outputs import check_writable

        check_writable(out)
        result = run_demo(out, seed=seed, voxel_size=voxel_size, tell=status.update)
    for table in summarise(result.rows):
        console.print(table.to_rich())
    for line in (*describe_subjects(result.rows), describe_anatomies(result.rows)):
        console.print(line, style="dim", markup=False)
    console.print(
        "Three directions along the axes measure the diagonal of the tensor. What lies off it is a guess here: "
        "compare the directions (v1) of any method with the reference before you trust them.",
        style="dim",
    )
    if result.remark is not None:
        console.print(result.remark, markup=False)
    console.print(
        f"\nDone in {time.perf_counter() - start:.0f} s. The results are in {out}", markup=False, soft_wrap=True
    )
    places = {
        "scan": result.scan,
        f"tensor ({result.method})": result.tensor,
        "maps": result.tensor.parent,
        "figures": result.table,
        "picture": result.picture,
        "page, methods compared": result.page,
    }
    for what, where in places.items():
        if where is not None:
            console.print(f"  {what:22} {where}", markup=False, soft_wrap=True)
    if result.picture is not None:
        console.print(f"Open {result.picture} first, then {result.page} in a browser.", markup=False, soft_wrap=True)
