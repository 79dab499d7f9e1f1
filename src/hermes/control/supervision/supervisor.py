"""The adapter supervisor: every adapter on its own, for as long as the gateway runs.

    connecting -> connected -> retrying | fatal -> connecting ...

Whatever goes wrong in an adapter ends here. A lost or deaf connection is made
again with growing, jittered pauses; the count of failures goes back to zero
only after a connection has held for a while, so a connection that dies at once
cannot look healthy. An account that is refused (`fatal`) is tried again, too, but
seldom: a proxy may have spoken. A changed configuration is tried at once, also in
place of a connection that works if the credential is another one. An adapter that
still sends while its polls fail is `retrying`, and says why.
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from enum import StrEnum
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from hermes.domain.errors import ConfigError, HermesError, MissingExtra
from hermes.domain.inbound import InboundMessage
from hermes.domain.platforms import ChatPlatform
from hermes.domain.ports.clock import Clock, wait_at_most
from hermes.domain.ports.platform import (
    Adapter,
    ButtonPress,
    FailureAction,
    InboundSink,
    PlatformFailure,
)

log = logging.getLogger(__name__)

CLOSE_SECONDS = 5.0
CONFLICT = 409
RIVAL_SECONDS = 30.0
NO_ERROR = {"error": "", "error_code": "", "hint": ""}


class AdapterState(StrEnum):
    """Where an adapter stands."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    RETRYING = "retrying"
    FATAL = "fatal"
    """It cannot work as configured; it is tried again seldom, or when a setting changes."""
    STOPPED = "stopped"


class AdapterHealth(Struct, frozen=True, kw_only=True):
    """How one adapter does. Times are seconds since the epoch."""

    name: str
    state: AdapterState = AdapterState.STOPPED
    since: float = 0.0
    account: str = ""
    error: str = ""
    error_code: str = ""
    hint: str = ""
    last_alive: float | None = None
    last_in: float | None = None
    last_out: float | None = None
    next_try: float | None = None
    attempts: int = 0
    """Failures in a row."""
    restarts: int = 0
    """How often it lost its connection or went deaf since the gateway started."""


class SupervisorSettings(Struct, frozen=True, kw_only=True):
    connect_timeout: float = 30.0
    first_pauses: tuple[float, ...] = (1.0, 3.0, *[10.0] * 12)
    """Before the first further attempts: most outages are over within two minutes."""
    pause: float = 30.0
    """Then this, doubled each time."""
    longest_pause: float = 300.0
    jitter: float = 0.2
    """Up to this share is added or taken away."""
    settled_after: float = 60.0
    """A connection that held this long clears the count of failures."""
    deaf_after: float = 150.0
    """Silence of the platform after which the connection counts as dead."""
    fatal_limit: int = 3
    """How often in a row an account that once worked may be refused."""


class ChatAccount(Protocol):
    """One account on a platform that is switched on."""

    @property
    def name(self) -> str:
        """`telegram`, or `telegram:work` where a platform has several."""
        ...

    @property
    def platform(self) -> ChatPlatform: ...

    @property
    def account(self) -> str:
        """What it is called in the configuration; empty where a platform has one."""
        ...

    @property
    def agent(self) -> str:
        """The agent that it is the own account of; empty: routes decide."""
        ...

    @property
    def credential(self) -> str:
        """The secrets that it would connect with now."""
        ...

    def make(self) -> Adapter:
        """Return an adapter that is not connected yet; one for each connection."""
        ...

    def hold(self) -> AbstractContextManager[object]:
        """Return what keeps other gateways from using the same credential."""
        ...


MakeSink = Callable[[str, Adapter], Awaitable[InboundSink]]
"""Called with the platform and an adapter that is connected: what it receives goes there."""


class Deaf(PlatformFailure):
    """The connection looks healthy, but nothing comes through it."""

    code = "deaf"


class _Asked(Exception):
    """The connection is to be made again, with the settings as they are now."""


class _WatchedSink:
    """A sink that notes when something comes in."""

    def __init__(
        self,
        inner: InboundSink,
        heard: Callable[..., None],
        failing: Callable[[PlatformFailure, float], None],
    ) -> None:
        self._inner = inner
        self._heard = heard
        self.failing = failing
        self.overheard = inner.overheard
        self.cursor = inner.cursor
        self.save_cursor = inner.save_cursor

    async def message(self, message: InboundMessage) -> bool:
        self._heard(received=True)
        taken = await self._inner.message(message)
        # Admission may have waited for the disk; the platform is not to blame for that.
        self._heard()
        return taken

    async def press(self, press: ButtonPress) -> str:
        self._heard(received=True)
        return await self._inner.press(press)

    def alive(self) -> None:
        self._heard()
        self._inner.alive()


class Supervisor:
    """Keeps one adapter connected, and knows when it last heard, received and sent."""

    def __init__(
        self,
        account: ChatAccount,
        sink: MakeSink,
        clock: Clock,
        settings: SupervisorSettings,
        on_change: Callable[[AdapterHealth], None],
    ) -> None:
        self.name = account.name
        self.platform = account.platform.name
        self.account = account
        self._sink = sink
        self._clock = clock
        self._settings = settings
        self._on_change = on_change
        self.health = AdapterHealth(name=account.name, since=clock.now())
        self._heard_at = clock.monotonic()
        """Since when there has been silence, on the clock that never goes back."""
        self._again = asyncio.Event()
        self._ready = asyncio.Event()
        self._ever_connected = False
        self._credential = ""
        """What the last connection was made with."""
        self._rival_until = 0.0
        """Until then a rival that was met counts as there, even if a poll succeeds."""
        self.adapter: Adapter | None = None
        """The connected adapter; None while there is none."""

    def sent(self) -> None:
        """Note that something became visible; that proves nothing about hearing."""
        self.health = replace(self.health, last_out=self._clock.now())
        self._on_change(self.health)

    def _heard(self, *, received: bool = False) -> None:
        """Note that the platform answered: a poll that returned, a heartbeat, a message."""
        self._heard_at, now = self._clock.monotonic(), self._clock.now()
        last_in = now if received else self.health.last_in
        self.health = replace(self.health, last_alive=now, last_in=last_in)
        if received:
            self._on_change(self.health)
        if self.health.state is AdapterState.RETRYING and self._heard_at >= self._rival_until:
            self._enter(AdapterState.CONNECTED, **NO_ERROR)

    def _failing(self, failure: PlatformFailure, pause: float) -> None:
        """Note that nothing can be received for now, and will be tried again after a pause."""
        code = failure.code
        if failure.status == CONFLICT:
            # The platform answers, so the connection is not deaf.
            code, self._heard_at = "conflict", self._clock.monotonic()
            self._rival_until = self._heard_at + pause + RIVAL_SECONDS
        self._enter(
            AdapterState.RETRYING,
            next_try=self._clock.now() + pause,
            error=failure.message,
            error_code=code,
            hint=failure.hint,
        )

    def retry(self) -> None:
        """Connect with the settings as they are now, at once, unless that would change nothing."""
        working = self.health.state is AdapterState.CONNECTED
        if not working or self.account.credential != self._credential:
            self._again.set()

    async def settled(self) -> AdapterHealth:
        """Return once the first attempt has succeeded or failed."""
        await self._ready.wait()
        return self.health

    async def run(self) -> None:
        try:
            while True:
                # What is asked for while an attempt is made counts for the next one.
                self._again.clear()
                await self._attempt()
                self._ready.set()
                await self._pause()
        finally:
            self._enter(AdapterState.STOPPED, **NO_ERROR)
            self._ready.set()

    async def _attempt(self) -> None:
        connected_at: float | None = None
        try:
            self._enter(AdapterState.CONNECTING)
            async with self._connection() as (adapter, sink):
                connected_at = self._clock.monotonic()
                await self._receive(adapter, sink)
        except _Asked:
            log.info("adapter %s connects again with changed settings", self.name)
        except HermesError as error:
            self._failed(error, connected_at)
        except Exception as bug:  # the boundary of an adapter: it is started again
            log.exception("adapter %s stopped", self.name)
            self._failed(_unexpected(bug), connected_at)

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[tuple[Adapter, InboundSink]]:
        with self.account.hold():
            adapter, self._credential = self.account.make(), self.account.credential
            try:
                try:
                    async with asyncio.timeout(self._settings.connect_timeout):
                        await adapter.connect()
                        inner = await self._sink(self.platform, adapter)
                except TimeoutError as error:
                    raise PlatformFailure(
                        FailureAction.RETRY,
                        f"{self.name} did not answer within"
                        f" {self._settings.connect_timeout:g} seconds.",
                    ) from error
                self.adapter, self._ever_connected = adapter, True
                self._enter(AdapterState.CONNECTED, account=adapter.account, **NO_ERROR)
                self._ready.set()
                yield adapter, _WatchedSink(inner, self._heard, self._failing)
            finally:
                self.adapter = None
                await self._close(adapter)

    async def _receive(self, adapter: Adapter, sink: InboundSink) -> None:
        self._heard()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_receive_until_lost(adapter, sink, self.name))
                group.create_task(self._listen())
                group.create_task(self._until_asked())
        except BaseExceptionGroup as failures:
            # The tasks only ever end by raising; the first reason is the reason.
            raise failures.exceptions[0] from None

    async def _until_asked(self) -> None:
        await self._again.wait()
        raise _Asked

    async def _listen(self) -> None:
        """Raise when the platform has been silent for too long."""
        limit = self._settings.deaf_after
        while True:
            left = self._heard_at + limit - self._clock.monotonic()
            if left <= 0:
                raise Deaf(
                    FailureAction.RETRY, f"Nothing was heard for {limit:.0f} seconds; reconnecting."
                )
            await self._clock.sleep(left)

    async def _close(self, adapter: Adapter) -> None:
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await adapter.close()
        except Exception as error:  # noqa: BLE001 - the boundary of an adapter
            log.warning("adapter %s did not close cleanly: %r", self.name, error)

    # -- failing -----------------------------------------------------------

    def _failed(self, error: HermesError, connected_at: float | None) -> None:
        held = 0.0 if connected_at is None else self._clock.monotonic() - connected_at
        attempts = 1 if held >= self._settings.settled_after else self.health.attempts + 1
        restarts = self.health.restarts + (connected_at is not None)
        fatal = _is_fatal(error) and (
            not self._ever_connected or attempts >= self._settings.fatal_limit
        )
        pause = self._pause_before(attempts, error, fatal=fatal)
        pause = max(pause, self._settings.pause) if fatal else pause
        self._enter(
            AdapterState.FATAL if fatal else AdapterState.RETRYING,
            attempts=attempts,
            restarts=restarts,
            next_try=self._clock.now() + pause,
            error=error.message,
            error_code=error.code,
            hint=error.hint,
        )
        level = logging.ERROR if fatal else logging.WARNING
        log.log(level, "adapter %s: %s (again in %.0fs)", self.name, error.message, pause)

    def _pause_before(self, attempts: int, error: HermesError, *, fatal: bool) -> float:
        settings = self._settings
        first = settings.first_pauses[: settings.fatal_limit if fatal else None]
        if attempts <= len(first):
            pause = first[attempts - 1]
        else:
            doubled = settings.pause * 2 ** min(attempts - len(first) - 1, 16)
            pause = min(doubled, settings.longest_pause)
        pause *= 1 + random.uniform(-settings.jitter, settings.jitter)  # noqa: S311 - not a secret
        asked = error.retry_after if isinstance(error, PlatformFailure) else 0.0
        return max(pause, asked)

    async def _pause(self) -> None:
        now = self._clock.now()
        await wait_at_most(self._again, self._clock, (self.health.next_try or now) - now)
        if self._again.is_set():
            self.health = replace(self.health, attempts=0)

    def _enter(self, state: AdapterState, **changes: Any) -> None:
        now = self._clock.now()
        self.health = replace(
            self.health, **{"state": state, "since": now, "next_try": None, **changes}
        )
        self._on_change(self.health)


class Fleet:
    def __init__(self, supervisors: Sequence[Supervisor]) -> None:
        self._supervisors = supervisors
        self._start: Callable[[Supervisor], None] | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:

            def start(each: Supervisor) -> None:
                self._tasks[each.name] = group.create_task(each.run(), name=f"adapter {each.name}")

            self._start = start
            for supervisor in self._supervisors:
                start(supervisor)

    def change(self, supervisors: Sequence[Supervisor]) -> None:
        """Look after these from now on: leave those that are gone, begin with new ones."""
        before, self._supervisors = self._supervisors, supervisors
        for each in before:
            if each not in supervisors and each.name in self._tasks:
                self._tasks.pop(each.name).cancel()
        for each in supervisors:
            if each not in before and self._start is not None:
                self._start(each)

    async def settled(self) -> list[AdapterHealth]:
        """Return once every adapter has connected or failed for the first time."""
        return [await each.settled() for each in self._supervisors]

    def health(self) -> list[AdapterHealth]:
        return [each.health for each in self._supervisors]

    def of(self, platform: str, account: str) -> Supervisor | None:
        """Return who looks after an account; any account is the only one, none is the first."""
        own = self.all_of(platform)
        if len(own) < 2:
            return next(iter(own), None)
        return next(
            (each for each in own if account in ("", each.health.account, each.account.account)),
            None,
        )

    def all_of(self, platform: str) -> list[Supervisor]:
        return [each for each in self._supervisors if each.platform == platform]

    def retry(self) -> None:
        """Have every adapter that is not connected try again at once."""
        for each in self._supervisors:
            each.retry()


async def _receive_until_lost(adapter: Adapter, sink: InboundSink, name: str) -> None:
    await adapter.receive(sink)
    raise PlatformFailure(FailureAction.RETRY, f"{name} stopped receiving.")


def _is_fatal(error: HermesError) -> bool:
    if isinstance(error, PlatformFailure):
        return error.action is FailureAction.FATAL
    return isinstance(error, ConfigError | MissingExtra)


def _unexpected(bug: Exception) -> HermesError:
    return HermesError(
        f"Something unexpected happened: {type(bug).__name__}: {bug}",
        hint="The log has the details.",
    )
