"""Picking up a changed configuration while the gateway runs.

The files are looked at every few seconds. A configuration that loads replaces
the one in use; one that does not is reported loudly and the last good one stays.
What changed is named by section, divided into what can be applied at once and
what needs a restart.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from hermes.config.loader import LoadedConfig, load_config
from hermes.config.paths import MANAGED_CONFIG, HermesHome
from hermes.control.admission.authz import ACCESS_KEYS, ACCESS_SUFFIXES
from hermes.domain.errors import ConfigError
from hermes.domain.ports.clock import Clock
from hermes.domain.settings import Settings

__all__ = ["ConfigChange", "ConfigWatcher", "config_change"]

log = logging.getLogger(__name__)

LOOK_EVERY_SECONDS = 2.0
SAFE_SECTIONS = frozenset(
    {"approvals", "command_allowlist", "display", "human_delay", "quick_commands"}
    | {"reset_triggers", "session_reset", "streaming", "unauthorized_dm_behavior"}
)
"""Sections that are read anew for every message."""
ACCESS = "access"
"""The name under which changed lists of people are reported."""
ENVIRONMENT = "environment"
KEYS = frozenset({"key", "keys"})
KEY_VARIABLE = "API_SERVER_KEY"
"""The keys of the API server are read with every request."""


class ConfigChange(Struct, frozen=True, kw_only=True):
    """A new configuration and what is different in it."""

    loaded: LoadedConfig
    safe: frozenset[str]
    """Changed sections that can be applied at once; `access` stands for lists of people."""
    needs_restart: frozenset[str]
    """Changed sections that count from the next start; `platforms.<p>` by platform."""


class ConfigWatcher:
    """Watches the configuration of a home."""

    def __init__(
        self,
        home: HermesHome,
        environ: Mapping[str, str],
        loaded: LoadedConfig,
        clock: Clock,
        *,
        managed: Path = MANAGED_CONFIG,
    ) -> None:
        self.loaded = loaded
        """The last good configuration."""
        self.problem: str | None = None
        """Why the files as they are now are not in use."""
        self._home = home
        self._environ = environ
        self._clock = clock
        self._managed = managed
        self._stamp: object = self._stamps()

    async def run(
        self,
        apply: Callable[[ConfigChange], None],
        report: Callable[[str | None], None],
    ) -> None:
        """Call `apply` for each good change and `report` for each bad one, until cancelled.

        `report(None)` says that the files are good again.
        """
        while True:
            await self._clock.sleep(LOOK_EVERY_SECONDS)
            change = await self.look(report)
            if change is not None:
                apply(change)

    async def look(self, report: Callable[[str | None], None]) -> ConfigChange | None:
        """Look once; return the change if there is a good one."""
        stamp = await asyncio.to_thread(self._stamps)
        if stamp == self._stamp:
            return None
        self._stamp = stamp
        try:
            loaded = await asyncio.to_thread(self._load)
        except ConfigError as error:
            self._say(error.message, report)
            return None
        self._say(None, report)
        change = config_change(self.loaded, loaded)
        self.loaded = loaded
        if not change.safe and not change.needs_restart:
            return None
        if change.needs_restart:
            names = ", ".join(sorted(change.needs_restart))
            log.warning("the configuration changed; %s: from the next restart on", names)
        return change

    def _load(self) -> LoadedConfig:
        return load_config(self._home, self._environ, managed=self._managed)

    def _say(self, problem: str | None, report: Callable[[str | None], None]) -> None:
        if problem is not None:
            log.error("the new configuration does not load, the last good one stays: %s", problem)
        elif self.problem is not None:
            log.warning("the configuration loads again")
        self.problem = problem
        report(None if problem is None else f"The configuration on disk does not load: {problem}")

    def _stamps(self) -> object:
        return tuple(map(_stamp, (self._home.config_file, self._home.env_file, self._managed)))


def config_change(old: LoadedConfig, new: LoadedConfig) -> ConfigChange:
    """Name the sections in which two configurations differ."""
    changed = {
        field.encode_name
        for field in msgspec.structs.fields(Settings)
        if getattr(old.config, field.name) != getattr(new.config, field.name)
    }
    safe = changed & SAFE_SECTIONS
    restart = changed - SAFE_SECTIONS - {"platforms", "gateway"}
    for name in tuple(restart):
        if _only_access_differs(getattr(old.config, name, None), getattr(new.config, name, None)):
            restart.discard(name)
            safe.add(ACCESS)
    _sort_platforms(old.config, new.config, safe, restart)
    if old.config.gateway != new.config.gateway:
        same = _only_access_differs(_plain(old.config.gateway), _plain(new.config.gateway))
        (safe if same else restart).add(ACCESS if same else "gateway")
    _sort_variables(old.variables, new.variables, safe, restart)
    return ConfigChange(loaded=new, safe=frozenset(safe), needs_restart=frozenset(restart))


def _sort_platforms(old: Settings, new: Settings, safe: set[str], restart: set[str]) -> None:
    for name in {*old.platforms, *new.platforms}:
        before, after = old.platforms.get(name), new.platforms.get(name)
        if before == after:
            continue
        keys = KEYS if name == "api_server" else frozenset()
        if before and after and _only_access_differs(_flat(before), _flat(after), keys):
            safe.add(ACCESS)
        else:
            restart.add(f"platforms.{name}")


def _sort_variables(
    old: Mapping[str, str], new: Mapping[str, str], safe: set[str], restart: set[str]
) -> None:
    for name in {*old, *new}:
        if old.get(name) != new.get(name):
            lists = name.endswith(ACCESS_SUFFIXES) or name == KEY_VARIABLE
            (safe if lists else restart).add(ACCESS if lists else ENVIRONMENT)


def _only_access_differs(before: Any, after: Any, more: frozenset[str] = frozenset()) -> bool:
    if not isinstance(before, Mapping) or not isinstance(after, Mapping):
        return False
    different = {key for key in {*before, *after} if before.get(key, ...) != after.get(key, ...)}
    return bool(different) and different <= ACCESS_KEYS | more


def _plain(section: Struct) -> dict[str, Any]:
    return {name: getattr(section, name) for name in section.__struct_fields__}


def _flat(platform: Any) -> dict[str, Any]:
    plain = _plain(platform)
    return {**plain.pop("extra"), **plain}


def _stamp(path: Path) -> object:
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_ino, status.st_size)
