"""Running the event loop."""

import asyncio
import os
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["run"]

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` to its end in an event loop of its own."""
    if sys.version_info < (3, 12) and hasattr(os, "pidfd_open"):
        # The default of 3.11 starts a thread for every child process; later ones do not.
        asyncio.get_event_loop_policy().set_child_watcher(asyncio.PidfdChildWatcher())
    return asyncio.run(main)
