"""Watchdog: a blocked event loop ends the process, so that it can start again.

A loop that is blocked serves no door and hears no SIGTERM. Two timers of the kernel watch
it. Neither is a Python thread: what blocks, a regular expression above all, often holds
the interpreter's lock, and then no other thread runs.

- SIGALRM every second. Its handler runs on top of whatever blocks the loop, in its
  context, so that it knows the session. When the loop has not moved for `LIMIT` ticks, the
  session and all stacks go to the stall file and the process ends.
- SIGPROF after `CPU_SECONDS` of processor time in which the loop did not move: a thread
  keeps the interpreter to itself. faulthandler writes the stacks, in C, and the signal ends
  the process. No session is known then, so each running turn of the process is suspect.

Ticks and processor time do not pass for a process that is stopped, suspended or starved.
The next start logs the stall file, and fails the turn that is to blame instead of resuming
it (`Gateway.recover`).
"""

import asyncio
import faulthandler
import os
import signal
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from hermes.app.shutdown import EXIT_RESTART
from hermes.observability.logs import tagged_session

LIMIT = 30
"""Seconds without a step of the loop."""
CPU_SECONDS = 60.0


@contextmanager
def watchdog(stall_path: Path) -> Iterator[None]:
    """Watch the running loop for the body of the `with`; for the main thread of a process."""
    with stall_path.open("wb", buffering=0) as stall:
        watch = _Watch(asyncio.get_running_loop(), stall)
        faulthandler.register(signal.SIGPROF, file=stall, all_threads=True, chain=True)
        before = signal.signal(signal.SIGALRM, watch.tick)
        signal.setitimer(signal.ITIMER_REAL, 1.0, 1.0)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.setitimer(signal.ITIMER_PROF, 0.0)
            signal.signal(signal.SIGALRM, before)
            faulthandler.unregister(signal.SIGPROF)


class _Watch:
    def __init__(self, loop: asyncio.AbstractEventLoop, stall: BinaryIO) -> None:
        self._loop = loop
        self._stall = stall
        self._missed = 0
        self._screen: Any = None
        with suppress(termios.error, ValueError, OSError):
            self._screen = termios.tcgetattr(sys.stdin.fileno())

    def tick(self, *_: object) -> None:
        if self._missed == 0:
            self._loop.call_soon_threadsafe(self._moved)
        self._missed += 1
        if self._missed > LIMIT:
            self._end()

    def _moved(self) -> None:
        self._missed = 0
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)

    def _end(self) -> None:
        self._stall.write(f"session {tagged_session() or '-'}\n".encode())
        faulthandler.dump_traceback(self._stall, all_threads=True)
        if self._screen is not None:
            with suppress(termios.error):
                termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, self._screen)
        with suppress(OSError):
            text = f"\nHermes was blocked for {LIMIT} s and stops; its next start logs where.\n"
            os.write(2, text.encode())
        os._exit(EXIT_RESTART)
