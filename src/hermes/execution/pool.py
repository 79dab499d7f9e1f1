"""EnvironmentPool: one environment per agent and session, made on first use.

An environment that nobody has used for its lifetime, and in which nothing
runs, is closed; all that stays is the directory the session stood in. No two
sessions ever share one.
"""

import asyncio
import contextlib
import functools
import os
import re
import stat
import tempfile
import time
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from hermes.domain.ports.clock import Clock
from hermes.domain.ports.execution import ProcessInfo, ProcessNotice
from hermes.execution.backend import (
    Backend,
    EnvironmentRequest,
    EnvironmentSettings,
    PooledEnvironment,
    child_environment,
    load_backend,
)
from hermes.execution.host.process import remove_trees

_DIRECTORIES_REMEMBERED = 10_000
_OLD = 7 * 86_400.0

_Key = tuple[str, str]


class _Slot(Struct, kw_only=True):
    lock: asyncio.Lock
    environment: PooledEnvironment | None = None
    lifetime: float = 0.0


class EnvironmentPool:
    """Hands out environments and closes the idle ones."""

    def __init__(self, settings: Callable[[str], EnvironmentSettings], clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._backends: dict[str, Backend] = {}
        self._slots: dict[_Key, _Slot] = {}
        self._envs: dict[str, tuple[EnvironmentSettings, Mapping[str, str]]] = {}
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
        while True:
            slot = self._slots.setdefault(key, _Slot(lock=asyncio.Lock()))
            async with slot.lock:
                if self._slots.get(key) is not slot:
                    continue  # closed while we waited
                if slot.environment is None:
                    await self._fill(slot, key, cwd)
                assert slot.environment is not None
                return slot.environment

    async def release(self, session_id: str) -> list[ProcessInfo]:
        """Close the session's environments and forget where it stood."""
        running = await self._running(
            [slot for key, slot in self._slots.items() if key[1] == session_id]
        )
        for key in [key for key in self._slots if key[1] == session_id]:
            await self._close(key)
        for key in [key for key in self._last_cwd if key[1] == session_id]:
            del self._last_cwd[key]
            self._parked.pop(key, None)
        return running

    async def running(self) -> list[ProcessInfo]:
        return await self._running(list(self._slots.values()))

    async def _running(self, slots: list[_Slot]) -> list[ProcessInfo]:
        environments = [slot.environment for slot in slots if slot.environment]
        found = [each for environment in environments for each in await environment.processes()]
        return [each for each in found if each.running]

    def background_age(self, session_id: str) -> float | None:
        """Return how long the session's oldest background process has run; None: none runs."""
        found = [slot.environment for key, slot in self._slots.items() if key[1] == session_id]
        since = [e.background_since for e in found if e is not None]
        started = min((at for at in since if at is not None), default=None)
        return None if started is None else self._clock.now() - started

    async def reap(self) -> int:
        """Close what has been idle for its lifetime; return how many."""
        now = self._clock.monotonic()
        due = [key for key, slot in self._slots.items() if _expired(slot, now)]
        for key in due:
            await self._close(key)
        return len(due)

    async def keep_reaping(self, every: float = 30.0) -> None:
        """Reap for ever; a background task of the gateway."""
        await sweep_leftovers()
        while True:
            await self._clock.sleep(every)
            await self.reap()

    async def next_notice(self) -> ProcessNotice:
        return await self._notices.get()

    async def close(self) -> None:
        for key in list(self._slots):
            await self._close(key)
        for environment in list(self._parked.values()):
            await environment.close()

    def _tell(
        self,
        agent_id: str,
        session_id: str,
        process_id: str,
        text: str,
        exit_code: int | None,
        **how: Any,
    ) -> None:
        notice = ProcessNotice(
            agent_id=agent_id,
            session_id=session_id,
            process_id=process_id,
            text=text,
            exit_code=exit_code,
            **how,
        )
        self._notices.put_nowait(notice)

    async def _fill(self, slot: _Slot, key: _Key, cwd: str | None) -> None:
        try:
            slot.environment = self._parked.pop(key, None) or await self._open(key, cwd)
        finally:
            if slot.environment is None:
                del self._slots[key]
        slot.lifetime = self._settings(key[0]).terminal.lifetime_seconds

    async def _open(self, key: _Key, cwd: str | None) -> PooledEnvironment:
        agent_id, session_id = key
        settings = self._settings(agent_id)
        if settings.project and cwd and cwd != settings.default_cwd:
            # The conversation goes on in its own directory, not in that of this process.
            settings = structs.replace(settings, project=cwd)
        request = EnvironmentRequest(
            agent_id=agent_id,
            session_id=session_id,
            cwd=self._last_cwd.get(key) or cwd or settings.default_cwd,
            env=self._env_of(agent_id, settings),
            settings=settings,
            clock=self._clock,
            notify=functools.partial(self._tell, agent_id, session_id),
        )
        backend = self._backends.get(settings.backend)
        if backend is None:
            backend = await asyncio.to_thread(load_backend, settings.backend)
            self._backends[settings.backend] = backend
        return await backend.open(request)

    def _env_of(self, agent_id: str, settings: EnvironmentSettings) -> Mapping[str, str]:
        """Return the agent's variables, worked out once for all its sessions."""
        known = self._envs.get(agent_id)
        if known is None or known[0] != settings:
            env = child_environment(
                settings.base_env, settings.secret_names, settings.terminal.env_passthrough
            )
            self._envs[agent_id] = known = (settings, {**env, "TERM": "dumb"})
        return known[1]

    async def _close(self, key: _Key) -> None:
        slot = self._slots.get(key)
        if slot is None:
            return
        async with slot.lock:
            if self._slots.get(key) is not slot or slot.environment is None:
                return
            environment = slot.environment
            self._remember(key, environment.cwd)
            self._parked[key] = environment
            try:
                await environment.close()
            finally:
                del self._slots[key]

    def _remember(self, key: _Key, cwd: str) -> None:
        self._last_cwd.pop(key, None)
        self._last_cwd[key] = cwd
        if len(self._last_cwd) > _DIRECTORIES_REMEMBERED:
            del self._last_cwd[next(iter(self._last_cwd))]


async def sweep_leftovers(directory: str = tempfile.gettempdir()) -> None:
    """Delete what processes of ours that are gone have left where short-lived things are."""
    await remove_trees(*await asyncio.to_thread(_leftovers, Path(directory)))


def _leftovers(directory: Path) -> list[Path]:
    found: list[Path] = []
    for path in directory.glob("hermes-*"):
        with contextlib.suppress(OSError):
            found += _left_behind(path, time.time() - _OLD)
    return found


def _left_behind(path: Path, old: float) -> list[Path]:
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        return []
    if path.name == "hermes-results":
        return [each for each in path.iterdir() if each.lstat().st_mtime < old]
    made = re.fullmatch(r"hermes-(?:shell|ssh|code|browser)-(?:(\d+)-)?\w+", path.name)
    if made is None:
        return []
    gone = not Path(f"/proc/{made[1]}").exists() if made[1] else status.st_mtime < old
    return [path] if gone else []


def _expired(slot: _Slot, now: float) -> bool:
    if slot.environment is None or slot.environment.idle_since is None:
        return False
    return now - slot.environment.idle_since >= slot.lifetime
