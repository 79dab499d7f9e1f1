"""Options of one run: what a command line may change."""

import asyncio
import os
import sys
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct

from hermes.config.loader import LoadedConfig, load_config
from hermes.config.paths import HermesHome


class AppOptions(Struct, frozen=True, kw_only=True):
    """Where to run, and what to use instead of the configuration."""

    home: HermesHome
    environ: Mapping[str, str]
    cwd: Path
    own_cwd: str = ""
    """The directory of the conversation, if it is another one."""
    restored: str = ""
    """What is said about it."""
    model: str | None = None
    provider: str | None = None
    toolsets: tuple[str, ...] | None = None
    max_turns: int | None = None
    yolo: bool = False
    can_ask: bool = False
    """Whether a person at this door can answer approvals."""
    ignore_rules: bool = False
    """Leave out SOUL.md, memory, skills and project files."""
    platform: str = "cli"
    loaded: LoadedConfig | None = None
    """The configuration, where it has just been read."""

    def configuration(self) -> LoadedConfig:
        return self.loaded or load_config(self.home, self.environ)


T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    if sys.version_info < (3, 12) and hasattr(os, "pidfd_open"):
        # The default of 3.11 starts a thread for every child process; later ones do not.
        asyncio.get_event_loop_policy().set_child_watcher(asyncio.PidfdChildWatcher())
    return asyncio.run(main)
