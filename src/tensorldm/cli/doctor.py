"""``tensorldm doctor``: what is installed, which device will be used, which optional tools are found."""

from tensorldm.cli.main import app


@app.command()
def doctor() -> None:
    """Show what is installed, which device will be used, and which optional tools are found."""
    from rich.console import Console

    from tensorldm.doctor import examine

    Console().print(examine())
