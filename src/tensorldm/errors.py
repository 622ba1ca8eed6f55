"""What goes wrong through no fault of ours, told as one sentence.

Each message names the file, what was found in it, and what to do. The command line prints it and ends with
exit code 2. A broken invariant of our own is an ``assert`` or an ordinary exception and keeps its traceback.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class TensorldmError(Exception):
    """A problem that the user can mend."""


class DataError(TensorldmError):
    """A file, scan or gradient table that cannot be used as it is."""


class ConfigError(TensorldmError):
    """A setting that does not exist or does not fit."""


class ToolError(TensorldmError):
    """An outside program or optional package that is missing or failed."""


class DataWarning(UserWarning):
    """Something in the data that was handled, and that the user should know of."""


@contextmanager
def about(path: Path) -> Iterator[None]:
    """Functions that know no files raise sentences without one: put it in front."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{path}: {error}") from error


@contextmanager
def heard() -> Iterator[list[str]]:
    """What ``DataWarning`` says inside the block, each once; other warnings go on their way."""
    words: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DataWarning)
        yield words
    for each in caught:
        if issubclass(each.category, DataWarning):
            words += [str(each.message)] if str(each.message) not in words else []
        else:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
