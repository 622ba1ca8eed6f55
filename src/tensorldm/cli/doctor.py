"""``tensorldm doctor``: what is installed, which device and model will be used, which optional tools are found."""

from tensorldm.cli.main import app


@app.command()
def doctor() -> None:
    """Show what is installed, which device and model will be used, and which optional tools are found."""
    from rich.console import Console

    from tensorldm.doctor import examine
    from tensorldm.reconstruct.default_words import describe_default

    Console().print(examine(describe_default()))
