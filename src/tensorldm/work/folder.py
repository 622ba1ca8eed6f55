"""An output folder that one run at a time writes to, and that no run leaves untidy."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tensorldm.work.debris import sweep
from tensorldm.work.lock import holding


@contextmanager
def writing_to(out: Path) -> Iterator[None]:
    """Hold ``out`` and clear away what killed processes left: earlier runs' at the start, this run's at the end."""
    with holding(out):
        sweep(out)
        try:
            yield
        finally:
            sweep(out)
