"""Leaving the terminal as it was found, however the chat ends.

The terminal's settings are taken before and put back after; modes that the
screen switches on (bracketed paste, hidden cursor) are switched off again.
SIGTERM and SIGHUP end the chat in the ordinary way, so that this runs.
"""

import asyncio
import os
import signal
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

__all__ = ["clean_terminal", "on_signals"]

RESET_MODES = "\x1b[0m\x1b[?25h\x1b[?7h\x1b[?2004l\x1b[?1l\x1b>"
"""Attributes, visible cursor, line wrap; no bracketed paste, normal cursor keys and keypad."""
SIGNALS = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def clean_terminal() -> Iterator[None]:
    """Put the terminal's settings back when the body ends."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        yield
    finally:
        # The terminal may be gone (SIGHUP): there is nothing to put back then.
        with suppress(OSError, ValueError):
            os.write(sys.stdout.fileno(), RESET_MODES.encode())
        with suppress(OSError, termios.error):
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


@contextmanager
def on_signals(handle: Callable[[int], None]) -> Iterator[None]:
    """Have SIGTERM and SIGHUP handled on the event loop during the body."""
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, handle, int(number))
    try:
        yield
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
