"""The end of a gateway: running turns get their time, unless somebody is in a hurry."""

import asyncio
import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from hermes.control.commands.wording import count
from hermes.control.lanes.gateway import Gateway

EXIT_RESTART = 75
"""The gateway ended in order to be started again."""
_STOP = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class StopSignals:
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


log = logging.getLogger(__name__)


async def let_turns_end(gateway: Gateway, stop: StopSignals, patience: float) -> None:
    """Wait until no turn runs, so many seconds at most; a second signal ends the wait.

    A turn that waits for a person does not run: it waits on after the next start.
    """
    waits = [
        asyncio.ensure_future(gateway.at_rest()),
        asyncio.ensure_future(stop.at_once.wait()),
    ]
    try:
        await asyncio.wait(waits, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()
    if gateway.live_sessions:
        log.info("kept for the next start: %s", count(gateway.live_sessions, "session"))
