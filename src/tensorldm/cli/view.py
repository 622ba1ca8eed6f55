"""``tensorldm view``: look at reconstructions in the browser, or reconstruct a scan there."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from tensorldm.cli.main import app


@app.command()
def view(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(help="Folders of reconstructions, or tensor images; none opens an empty page."),
    ] = None,
    reference: Annotated[
        Path | None, typer.Option(help="Tensor (folder or file) that the others are compared with.")
    ] = None,
    convention: Annotated[
        str | None, typer.Option(help="Of tensors without a sidecar: mrtrix, fsl, dipy or nifti.")
    ] = None,
    model: Annotated[Path | None, typer.Option(help="Model (a bundle) for scans dropped into the page.")] = None,
    method: Annotated[str | None, typer.Option(help="Instead: minimum-norm, ade or ade-literal.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 0,
    browser: Annotated[bool, typer.Option(help="Open the page; --no-browser only prints its address.")] = True,
) -> None:
    """Look at reconstructions in the browser: maps, doubts, fibres, two methods side by side.

    A scan dropped into the page is reconstructed there. The page is served on this machine only, and ends with Ctrl-C.
    """
    import os
    import threading
    import webbrowser

    # Before torch is loaded, and for the processes that reconstruct.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from tensorldm.cli.crew import ended_gently
    from tensorldm.cli.reconstruct import describe, draw
    from tensorldm.errors import ToolError
    from tensorldm.reconstruct.choice import choose, pick_device
    from tensorldm.viewer.scene import Scene, find_scene
    from tensorldm.viewer.server import serving
    from tensorldm.viewer.workbench import Means

    _ = choose(model=model, method=method).traits  # a wrong model is told now, not after the upload
    pick_device(device)
    sources = folders or []
    wanted = sources or reference is not None
    scene = find_scene(sources, reference=reference, convention=convention) if wanted else Scene((), (), ())
    means = Means(model=model, method=method, device=device, draw=draw, describe=describe)
    with ended_gently(), serving(scene, means, port=port) as (server, access):
        found = f"{_count(scene.shown, 'reconstruction')} and {_count(scene.tracts, 'tractogram')}"
        typer.echo(f"{found}: {access.address}")
        typer.echo("Only this machine can open it, with the whole address. Ctrl-C ends it.")
        if browser:
            threading.Thread(target=webbrowser.open, args=(access.address,), daemon=True).start()
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            typer.echo("\nclosed; temporary files are removed")
        except OSError as error:
            raise ToolError(f"The server stopped ({error}). Start it again.") from error


def _count(things: Sequence[object], name: str) -> str:
    return f"{len(things)} {name}{'' if len(things) == 1 else 's'}"
