"""Files from strangers: whatever is in them, a reader answers with a value or with one of our own sentences.

Here the examples are the same each time, so that continuous integration is steady; ``make fuzz`` looks for new ones.
``TENSORLDM_FUZZ_EXAMPLES`` sets how many.
"""

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tensorldm.errors import DataWarning, TensorldmError

EXAMPLES = int(os.environ.get("TENSORLDM_FUZZ_EXAMPLES", "24"))
LONGEST_SENTENCE = 2000

settings.register_profile(
    "fuzz",
    max_examples=EXAMPLES,
    deadline=None,
    derandomize="TENSORLDM_FUZZ_EXAMPLES" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("fuzz")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the examples of a module, each over the last."""
    return tmp_path_factory.mktemp("fuzz")


@pytest.fixture(scope="session")
def survives() -> Callable[..., Any]:
    """Calls a reader; None where it refuses, and anything but a refusal in our own words goes through."""

    def call(read: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)
            try:
                return read(*arguments, **options)
            except TensorldmError as error:
                sentence = str(error)
                assert sentence.rstrip().endswith((".", "?")), sentence
                assert len(sentence) < LONGEST_SENTENCE, sentence
                return None

    return call
