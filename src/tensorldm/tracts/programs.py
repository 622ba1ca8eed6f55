"""Other people's programs: started without a shell, ended when asked, what they say kept.

The only place of this layer that starts a process.
"""

import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Event
from typing import Final

from tensorldm.errors import ToolError

POLL_SECONDS: Final = 0.1


@dataclass(frozen=True)
class Ended:
    """A program that has ended: its exit code and all that it said."""

    code: int
    words: str


def run_program(
    command: Sequence[str], *, environment: Mapping[str, str] | None = None, stop: Event | None = None, install: str
) -> Ended:
    """Run a command to its end, or until ``stop`` is set: a thread that waits for a process hears no Ctrl-C.

    ``install`` ends the sentence about a program that does not start.
    """
    try:
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise ToolError(f"{command[0]}: does not start ({error.strerror}). {install}") from error
    try:
        while True:
            try:
                words = process.communicate(timeout=POLL_SECONDS)[0]
                return Ended(process.returncode, words)
            except subprocess.TimeoutExpired:
                if stop is not None and stop.is_set():
                    process.terminate()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def ask_version(program: str, option: str, *, seconds: float, install: str) -> str:
    """What a program says when it is asked for its version; one that does not answer is a ``ToolError``."""
    try:
        answer = subprocess.run([program, option], capture_output=True, text=True, timeout=seconds, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolError(f"{program}: does not start ({error}). {install}") from error
    return answer.stdout + answer.stderr


def as_typed(command: Sequence[str]) -> str:
    """A command as a person would type it."""
    return shlex.join(command)
