"""Picking up a changed configuration while the gateway runs.

The files are looked at every few seconds. A configuration that loads replaces
the one in use; one that does not is reported loudly and the last good one stays.
Live settings count at once (`LiveSettings`); the others are named until a restart.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from hermes.config.atomic import file_stamp
from hermes.config.loader import LoadedConfig, load_config
from hermes.config.normalize import variables_for
from hermes.config.paths import MANAGED_CONFIG, HermesHome
from hermes.control.admission.authz import ACCESS_SUFFIXES
from hermes.domain.errors import ConfigError
from hermes.domain.ports.clock import Clock

log = logging.getLogger(__name__)

LOOK_EVERY_SECONDS = 2.0


class ConfigWatcher:
    def __init__(
        self,
        home: HermesHome,
        environ: Mapping[str, str],
        loaded: LoadedConfig,
        clock: Clock,
        *,
        check: Callable[[LoadedConfig], None] = lambda _loaded: None,
        managed: Path = MANAGED_CONFIG,
    ) -> None:
        """`check` raises `ConfigError` if the gateway could not work with what is loaded."""
        self._also: Callable[[], object] = lambda: None
        self._others: object = None
        self.problem: str | None = None
        """Why the files as they are now are not in use."""
        self._home = home
        self._environ = environ
        self._clock = clock
        self._check = check
        self._managed = managed
        self._loaded = loaded
        self._stamp: object = None
        """None: the files may have changed since they were loaded, so they are read once more."""

    def watch_also(self, stamp: Callable[[], object]) -> None:
        """Take a difference of `stamp` for a change, too."""
        self._also, self._others = stamp, stamp()

    async def run(
        self, apply: Callable[[LoadedConfig], None], report: Callable[[str | None], None]
    ) -> None:
        """Call `apply` for each good change and `report` for each bad one, until cancelled.

        `report(None)` says that the files are good again.
        """
        while True:
            await self._clock.sleep(LOOK_EVERY_SECONDS)
            loaded = await self.look(report)
            try:
                if loaded is not None:
                    apply(loaded)
            except ConfigError as error:
                self._say(error.message, report)

    async def look(self, report: Callable[[str | None], None]) -> LoadedConfig | None:
        """Look once; return what the files say if they have changed and load."""
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
        before, self._loaded = self._loaded, loaded
        same = loaded.config == before.config and loaded.variables == before.variables
        same = same and self._others == stamp[1]
        self._others = stamp[1]
        return None if same else loaded

    def _load(self) -> LoadedConfig:
        loaded = load_config(self._home, self._environ, managed=self._managed)
        if _has_file(self._loaded) and not _has_file(loaded):
            # Editors truncate or move the old file away before they write the new one.
            raise ConfigError("config.yaml is empty or gone.")
        self._check(loaded)
        return loaded

    def _say(self, problem: str | None, report: Callable[[str | None], None]) -> None:
        if problem is not None:
            log.error("the new configuration does not load, the last good one stays: %s", problem)
        elif self.problem is not None:
            log.warning("the configuration loads again")
        self.problem = problem
        report(None if problem is None else f"The configuration on disk does not load: {problem}")

    def _stamps(self) -> tuple[object, object]:
        files = (self._home.config_file, self._home.env_file, self._managed)
        return tuple(map(file_stamp, files)), self._also()


def _has_file(loaded: LoadedConfig) -> bool:
    return any(origin.startswith("config.yaml:") for origin in loaded.origins.values())


def changed_variables(old: Mapping[str, str], new: Mapping[str, str]) -> frozenset[str]:
    """Name the variables that count only after a restart: those that stand for no setting."""
    settings = {name for name, _key in variables_for({*old, *new})}
    return frozenset(
        name
        for name in {*old, *new} - settings
        if old.get(name) != new.get(name) and not name.endswith(ACCESS_SUFFIXES)
    )
