"""What to tell of an error that ended one subject of many, whose others go on."""

import traceback

from tensorldm.errors import TensorldmError
from tensorldm.work.serving import ServingError


def explain(error: Exception, *, where: object) -> tuple[str, str]:
    """A sentence, and the traceback to print above it where the error is a bug of ours; ``where`` names the subject."""
    if isinstance(error, TensorldmError):
        return str(error), ""
    kind = error.kind if isinstance(error, ServingError) else type(error).__name__
    sentence = f"{where}: unexpected {kind}. This is a bug: report it with the traceback."
    return sentence, "".join(traceback.format_exception(error))
