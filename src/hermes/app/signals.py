"""Signals as things a program can wait for.

The first SIGTERM, SIGINT or SIGHUP asks to finish; the second one wants it now.
SIGUSR1 asks to finish and to be started again.
"""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["EXIT_CONFIG", "EXIT_RESTART", "StopSignals", "stop_signals"]

EXIT_RESTART = 75
"""The gateway ended in order to be started again."""
EXIT_CONFIG = 78
"""The configuration cannot work; starting again would not help."""

_STOP = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class StopSignals:
    """What was asked of the process."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        """Take nothing new, finish what runs and end."""
        self.at_once = asyncio.Event()
        """End now; what runs is resumed with the next start."""
        self.restart = False
        """Be started again afterwards."""
        self.reason = ""

    @property
    def exit_code(self) -> int:
        """What the process ends with."""
        return EXIT_RESTART if self.restart else 0

    def stop(self, reason: str) -> None:
        """Ask to end; ask again to end at once."""
        if self.asked.is_set():
            self.at_once.set()
            # A person who insists wants an end, not another start.
            self.restart = False
        self.reason = self.reason or reason
        self.asked.set()

    def start_again(self, reason: str) -> None:
        """Ask to end and be started again, e.g. for `/restart`; not if an end was asked for."""
        if not self.asked.is_set():
            self.restart = True
            self.reason = reason
            self.asked.set()


@contextmanager
def stop_signals() -> Iterator[StopSignals]:
    """Turn signals into requests for the body of the `with`; needs a running loop."""
    loop = asyncio.get_running_loop()
    requests = StopSignals()
    for number in _STOP:
        loop.add_signal_handler(number, requests.stop, number.name)
    loop.add_signal_handler(signal.SIGUSR1, requests.start_again, signal.SIGUSR1.name)
    try:
        yield requests
    finally:
        for number in (*_STOP, signal.SIGUSR1):
            loop.remove_signal_handler(number)
