"""EnvironmentPool: one environment per agent and session, made on first use.

An environment that nobody has used for its lifetime, and in which nothing
runs, is closed; all that stays is the directory the session stood in. No two
sessions ever share one.
"""

import asyncio
import functools
import importlib
import weakref
from collections.abc import Callable, Mapping
from typing import cast

from msgspec import Struct

from hermes.domain.errors import ConfigError
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.execution import ProcessNotice
from hermes.execution.contract import (
    EnvironmentRequest,
    EnvironmentSettings,
    OpenEnvironment,
    PooledEnvironment,
)

__all__ = ["BACKENDS", "EnvironmentPool", "EnvironmentSettings", "resolve_backend"]

BACKENDS: Mapping[str, str] = {"local": "hermes.execution.local:open_environment"}
"""Built-in backends, imported on use."""

_Key = tuple[str, str]


class _Slot(Struct, kw_only=True):
    lock: asyncio.Lock
    environment: PooledEnvironment | None = None
    lifetime: float = 0.0


def resolve_backend(name: str, backends: Mapping[str, str] = BACKENDS) -> OpenEnvironment:
    """Import the backend called `name`."""
    path = backends.get(name)
    if path is None:
        raise ConfigError(
            f"There is no execution backend `{name}`.",
            hint=f"Set `terminal.backend` to one of: {', '.join(sorted(backends))}.",
        )
    module, _, attribute = path.partition(":")
    return cast("OpenEnvironment", getattr(importlib.import_module(module), attribute))


class EnvironmentPool:
    """Hands out environments and closes the idle ones."""

    def __init__(
        self,
        settings: Callable[[str], EnvironmentSettings],
        clock: Clock,
        backends: Mapping[str, str] = BACKENDS,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._backends = backends
        self._slots: dict[_Key, _Slot] = {}
        self._notices: asyncio.Queue[ProcessNotice] = asyncio.Queue()
        self._last_cwd: dict[_Key, str] = {}
        # Closed while idle but still in somebody's hands: the next `get` must
        # return that same one, or a session would have two.
        self._parked: weakref.WeakValueDictionary[_Key, PooledEnvironment] = (
            weakref.WeakValueDictionary()
        )

    def __len__(self) -> int:
        return len(self._slots)

    async def get(self, agent_id: str, session_id: str, cwd: str | None) -> PooledEnvironment:
        """Return the session's environment, starting it if needed.

        `cwd` counts only for a session that has none yet.
        """
        key = (agent_id, session_id)
        slot = self._slots.setdefault(key, _Slot(lock=asyncio.Lock()))
        async with slot.lock:
            if slot.environment is None:
                try:
                    slot.environment = self._parked.pop(key, None) or await self._open(key, cwd)
                finally:
                    if slot.environment is None:
                        self._slots.pop(key, None)
                slot.lifetime = self._settings(agent_id).lifetime_seconds
            return slot.environment

    async def release(self, session_id: str) -> None:
        """Close the session's environments and forget where it stood."""
        for key in [key for key in self._slots if key[1] == session_id]:
            await self._close(key)
        for key in [key for key in self._last_cwd if key[1] == session_id]:
            del self._last_cwd[key]

    async def reap(self) -> int:
        """Close what has been idle for its lifetime; return how many."""
        now = self._clock.monotonic()
        due = [key for key, slot in self._slots.items() if _expired(slot, now)]
        for key in due:
            await self._close(key)
        return len(due)

    async def keep_reaping(self, every: float = 30.0) -> None:
        """Reap for ever; a background task of the gateway."""
        while True:
            await self._clock.sleep(every)
            await self.reap()

    async def next_notice(self) -> ProcessNotice:
        """Wait for the next notice about a background process."""
        return await self._notices.get()

    async def close(self) -> None:
        """Close them all."""
        for key in list(self._slots):
            await self._close(key)
        for environment in list(self._parked.values()):
            await environment.close()

    def _tell(self, agent_id: str, session_id: str, process_id: str, text: str) -> None:
        notice = ProcessNotice(
            agent_id=agent_id, session_id=session_id, process_id=process_id, text=text
        )
        self._notices.put_nowait(notice)

    async def _open(self, key: _Key, cwd: str | None) -> PooledEnvironment:
        agent_id, session_id = key
        settings = self._settings(agent_id)
        request = EnvironmentRequest(
            agent_id=agent_id,
            session_id=session_id,
            cwd=self._last_cwd.get(key) or cwd or settings.default_cwd,
            settings=settings,
            clock=self._clock,
            notify=functools.partial(self._tell, agent_id, session_id),
        )
        return await resolve_backend(settings.backend, self._backends)(request)

    async def _close(self, key: _Key) -> None:
        slot = self._slots.get(key)
        if slot is None:
            return
        async with slot.lock:
            environment, slot.environment = slot.environment, None
            self._slots.pop(key, None)
            if environment is not None:
                self._last_cwd[key] = environment.cwd
                self._parked[key] = environment
                await environment.close()


def _expired(slot: _Slot, now: float) -> bool:
    if slot.environment is None or slot.environment.idle_since is None:
        return False
    return now - slot.environment.idle_since >= slot.lifetime
