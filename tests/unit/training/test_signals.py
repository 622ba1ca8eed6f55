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


def test_a_signal_heard_in_an_inner_block_is_there_for_the_outer_one():
    before = signal.getsignal(signal.SIGTERM)
    with stop_on_signals() as study:
        with stop_on_signals() as run:
            os.kill(os.getpid(), signal.SIGTERM)
            assert run
        assert study, "the run may have been over before it could act on it"
        os.kill(os.getpid(), signal.SIGUSR1)  # the inner block has not taken the handlers away
        assert study.name == "SIGUSR1"
    assert signal.getsignal(signal.SIGTERM) is before
    with stop_on_signals() as later:
        assert not later
