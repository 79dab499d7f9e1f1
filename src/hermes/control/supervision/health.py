"""Health of the gateway: `gateway_state.json`, for people and programs.

The file is replaced as a whole when something changed, at most every few
seconds, and touched now and then while nothing does, so that a stale file shows
a process that no longer turns.
"""

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hermes.config.atomic import write_json
from hermes.control.supervision.supervisor import AdapterHealth
from hermes.domain.errors import HermesError
from hermes.domain.outbound import UNSENT, OutboxEntry, OutboxKind, OutboxState
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.ledger import Ledger

log = logging.getLogger(__name__)

KIND = "hermes-gateway"
WRITE_EVERY_SECONDS = 2.0
TOUCH_EVERY_SECONDS = 8.0
LISTED_PIECES = 10_000
LISTED_SECONDS = 7 * 86_400.0


class GatewayPhase(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    DRAINING = "draining"
    STOPPED = "stopped"


class PlatformState(Struct, frozen=True, kw_only=True):
    state: str
    error_code: str | None = None
    error_message: str | None = None
    hint: str | None = None
    account: str = ""
    updated_at: str = ""
    last_alive_at: str | None = None
    last_in_at: str | None = None
    last_out_at: str | None = None
    next_try_at: str | None = None
    restarts: int = 0


class GatewayState(Struct, frozen=True, kw_only=True):
    kind: str = KIND
    pid: int = 0
    argv: tuple[str, ...] = ()
    start_time: float | None = None
    """Seconds since the epoch."""
    gateway_state: str = GatewayPhase.STARTING.value
    exit_reason: str | None = None
    restart_requested: bool = False
    active_agents: int = 0
    """Turns that run right now."""
    served_profiles: tuple[str, ...] = ()
    updated_at: str = ""
    platforms: Mapping[str, PlatformState] = {}
    warnings: tuple[str, ...] = ()
    """What a person should look at, e.g. a configuration that does not load."""


class StateFile:
    def __init__(
        self,
        path: Path,
        clock: Clock,
        *,
        argv: tuple[str, ...] = (),
        profiles: Callable[[], tuple[str, ...]] = tuple,
        active: Callable[[], int] = lambda: 0,
        adapters: Callable[[], Iterable[AdapterHealth]] = tuple,
    ) -> None:
        self._path = path
        self._clock = clock
        self._active = active
        self._adapters = adapters
        self._profiles = profiles
        self._warnings: dict[str, str] = {}
        self._changed = asyncio.Event()
        self._saving = threading.Lock()
        self._version = self._saved = 0
        self.state = GatewayState(
            pid=os.getpid(), argv=argv, start_time=clock.now(), served_profiles=profiles()
        )

    def phase(
        self, phase: GatewayPhase, *, exit_reason: str | None = None, restart: bool = False
    ) -> None:
        self._set(gateway_state=phase.value, exit_reason=exit_reason, restart_requested=restart)

    def changed(self, _health: AdapterHealth | None = None) -> None:
        """Have the file written soon; meant for `Supervisor`'s `on_change`."""
        self._changed.set()

    def warn(self, topic: str, text: str | None) -> None:
        """Show a warning until the same topic says something else, or nothing."""
        if self._warnings.get(topic) == text:
            return
        if text is None:
            self._warnings.pop(topic, None)
        else:
            self._warnings[topic] = text
        self._set(warnings=tuple(self._warnings.values()))

    def current(self) -> GatewayState:
        return replace(
            self.state,
            active_agents=self._active(),
            served_profiles=self._profiles(),
            platforms={health.name: _platform_state(health) for health in self._adapters()},
            updated_at=_iso(self._clock.now()),
        )

    async def run(self) -> None:
        while True:
            await self.write()
            await self._clock.sleep(WRITE_EVERY_SECONDS)
            with suppress(TimeoutError):
                async with asyncio.timeout(TOUCH_EVERY_SECONDS):
                    await self._changed.wait()

    async def write(self) -> None:
        """Write the file now; a disk that refuses is logged, not fatal."""
        self._changed.clear()
        self.state = self.current()
        self._version += 1
        try:
            await asyncio.to_thread(self._save, self._version, self.state)
        except HermesError as error:
            log.warning("the state file is not written: %s", error.message)

    def _save(self, version: int, state: GatewayState) -> None:
        # A write whose waiter was cancelled goes on in its thread; it must not come last.
        with self._saving:
            if version > self._saved:
                write_json(self._path, state)
                self._saved = version

    def _set(self, **values: Any) -> None:
        self.state = replace(self.state, **values)
        self._changed.set()


def read_gateway_state(path: Path) -> GatewayState | None:
    """Return what the file says; None if there is none that can be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=GatewayState, strict=False)
    except (OSError, msgspec.DecodeError):
        return None


async def undelivered(ledger: Ledger, now: float) -> list[OutboxEntry]:
    """Return what is not out, and what was given up in the last week."""
    states = (*UNSENT, OutboxState.UNKNOWN, OutboxState.FAILED)
    return [
        piece
        for piece in await ledger.outbox(states, limit=LISTED_PIECES)
        if piece.state in UNSENT or now - piece.updated_at < LISTED_SECONDS
        # A prompt that can be seen waits for a person.
        if piece.native_id is None or piece.kind is not OutboxKind.PROMPT
    ]


def outbox_facts(pieces: Sequence[OutboxEntry], now: float) -> dict[str, dict[str, float]]:
    """Return by platform how much is unsent, of unknown fate and given up, and the oldest age."""
    facts: dict[str, dict[str, float]] = {}
    for piece in pieces:
        nothing = {"unsent": 0, "unknown": 0, "failed": 0, "oldest_seconds": 0.0}
        known = facts.setdefault(piece.target.platform, nothing)
        known["unknown"] += piece.of_unknown_fate
        known["failed"] += piece.state is OutboxState.FAILED
        if piece.state in UNSENT:
            known["unsent"] += 1
            known["oldest_seconds"] = max(known["oldest_seconds"], now - piece.created_at)
    return facts


def _platform_state(health: AdapterHealth) -> PlatformState:
    return PlatformState(
        state=health.state.value,
        error_code=health.error_code or None,
        error_message=health.error or None,
        hint=health.hint or None,
        account=health.account,
        updated_at=_iso(health.since),
        last_alive_at=_iso_or_none(health.last_alive),
        last_in_at=_iso_or_none(health.last_in),
        last_out_at=_iso_or_none(health.last_out),
        next_try_at=_iso_or_none(health.next_try),
        restarts=health.restarts,
    )


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")


def _iso_or_none(at: float | None) -> str | None:
    return None if at is None else _iso(at)
