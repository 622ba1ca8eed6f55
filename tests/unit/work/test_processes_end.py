"""A process that was started for a piece of work does not outlive the one that waits for it."""

import os
import signal
import subprocess
import sys

PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]])
child.wait()
"""
CHILD = """
import signal, time
from tensorldm.work.processes import end_with_parent

def leave(number, frame):
    print("saved", flush=True)
    raise SystemExit

signal.signal(signal.SIGTERM, leave)
end_with_parent()
print("at work", flush=True)
time.sleep(120)
"""


def test_a_run_whose_study_was_killed_is_asked_to_save_its_state():
    with subprocess.Popen([sys.executable, "-c", PARENT, CHILD], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "at work\n"
        os.kill(parent.pid, signal.SIGKILL)
        assert parent.stdout.read() == "saved\n"  # ends when the child has closed it
