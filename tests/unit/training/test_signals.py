import os
import signal

from tensorldm.training.signals import stop_on_signals


def test_a_time_limit_is_noted_and_not_deadly_and_the_old_handler_comes_back():
    before = signal.getsignal(signal.SIGTERM)
    with stop_on_signals() as request:
        assert not request
        os.kill(os.getpid(), signal.SIGTERM)
        assert request
        assert request.name == "SIGTERM"
    assert signal.getsignal(signal.SIGTERM) is before
