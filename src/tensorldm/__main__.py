"""``python -m tensorldm``."""

from tensorldm.cli.main import run

run()
