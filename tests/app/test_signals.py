"""Signals as requests: finish, at once, start again."""

import os
import signal

from hermes.app.shutdown import EXIT_RESTART, StopSignals, stop_signals


async def test_the_first_signal_asks_and_the_second_insists() -> None:
    with stop_signals() as signals:
        assert not signals.asked.is_set()
        os.kill(os.getpid(), signal.SIGTERM)
        await signals.asked.wait()
        assert not signals.at_once.is_set()
        assert signals.reason == "SIGTERM"
        os.kill(os.getpid(), signal.SIGINT)
        await signals.at_once.wait()
        assert signals.exit_code == 0


async def test_sigusr1_asks_for_a_restart() -> None:
    with stop_signals() as signals:
        os.kill(os.getpid(), signal.SIGUSR1)
        await signals.asked.wait()
        assert signals.exit_code == EXIT_RESTART == 75
        os.kill(os.getpid(), signal.SIGTERM)
        await signals.at_once.wait()
        assert signals.exit_code == 0, "whoever insists on an end gets one"


async def test_a_restart_cannot_turn_an_end_into_a_start() -> None:
    signals = StopSignals()
    signals.stop("SIGTERM")
    signals.start_again("/restart")
    assert signals.exit_code == 0
    assert signals.reason == "SIGTERM"


async def test_afterwards_signals_mean_what_they_meant_before() -> None:
    before = signal.getsignal(signal.SIGINT)
    with stop_signals():
        pass
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) in {before, signal.default_int_handler}
