"""What goes wrong through no fault of ours, told as one sentence.

Each message names the file, what was found in it, and what to do. The command line prints it and ends with
exit code 2. A broken invariant of our own is an ``assert`` or an ordinary exception and keeps its traceback.
"""


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
