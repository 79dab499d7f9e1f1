"""Receiving: polls, and webhooks on the shared listener."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar

from hermes.domain.errors import HermesError
from hermes.domain.platforms import ChatPlatform
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.platform import (
    FailureAction,
    HttpListener,
    InboundSink,
    ListenerCall,
    ListenerHandler,
    ListenerReply,
    PlatformFailure,
)
from hermes.entry.chat.kit.settings import WebhookAddress

_LOG = logging.getLogger(__name__)
_FAILING_SECONDS = 90.0
"""After so long without success the whole connection is made again by its supervisor."""
_LONGEST_PAUSE = 5.0
"""Whoever waits for an answer when an outage is over does not wait for the next poll as well."""
_CONFLICT_STEP = 10.0
_CONFLICTS = 4
_CONFLICT_WINDOW = 300.0
_TOO_QUICK = 0.2
"""A server that answers empty polls at once does not hold them; it is not hammered."""
_CHECK_SECONDS = 60.0
_CHECKS = 5
Check = Callable[[], Awaitable[None]]
T = TypeVar("T")


class Patience:
    """Tries a failing way of receiving again for a while, before its supervisor begins anew."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures = 0
        self._since = 0.0
        self._random = random.Random()  # noqa: S311 - spreads retries, guards nothing

    def worked(self) -> None:
        self._failures = 0

    async def overcome(
        self, failure: PlatformFailure, sink: InboundSink, pause: float | None = None
    ) -> None:
        """Return when it is time for another try; raise `failure` if that is pointless."""
        if pause is None and failure.action is FailureAction.RETRY:
            now = self._clock.monotonic()
            self._since = self._since if self._failures else now
            self._failures += 1
            if now - self._since >= _FAILING_SECONDS:
                raise failure
            pause = min(_LONGEST_PAUSE, 2.0 ** min(self._failures - 1, 10))
            pause *= self._random.uniform(0.5, 1.0)
        elif pause is None:
            if failure.action is not FailureAction.WAIT:
                raise failure
            pause = failure.retry_after
        _LOG.warning("Receiving failed: %s Trying again in %.1f s", failure.message, pause)
        sink.failing(failure, pause)
        await self._clock.sleep(pause)

    async def until_answered(self, ask: Callable[[], Awaitable[T]], sink: InboundSink) -> T:
        """Ask until there is an answer; raise the failure that is one."""
        while True:
            try:
                return await ask()
            except PlatformFailure as failure:
                await self.overcome(failure, sink)


class Polling:
    """Asks for updates again and again, from where the last answer ended.

    A connection that fails is tried again for a while, as the failure asks for. A poll that is
    refused because somebody else receives (HTTP 409) gives the other one time to go away.
    """

    def __init__(self, label: str, clock: Clock) -> None:
        self._label = label
        self._clock = clock
        self._patience = Patience(clock)
        self._conflicts: list[float] = []
        self.behind = True
        """There may be something that was said before: the next poll need not wait for more."""

    async def run(
        self,
        sink: InboundSink,
        ask: Callable[[int | None], Awaitable[Sequence[T]]],
        take: Callable[[Sequence[T]], Awaitable[int | None]],
        *,
        offset_life: float,
    ) -> None:
        """Poll until cancelled; raise the failure that cannot be overcome.

        `ask` confirms everything before the offset it is given. `take` hands a batch over and
        returns the next offset, so that a crash in between brings the batch again. An offset
        older than `offset_life` is not used.
        """
        loop = asyncio.get_running_loop()
        offset, at = _restored(await sink.cursor())
        while True:
            asked_at = loop.time()
            try:
                found = await ask(offset if self._clock.now() - at < offset_life else None)
            except PlatformFailure as failure:
                self.behind = True
                await self._overcome(failure, sink)
                continue
            self._patience.worked()
            sink.alive()
            if not found:
                if loop.time() - asked_at < _TOO_QUICK and not self.behind:
                    await self._clock.sleep(1.0)
                self.behind = False
                continue
            following = await take(found)
            if following is None:
                message = f"{self._label} sent updates without numbers."
                await self._overcome(PlatformFailure(FailureAction.RETRY, message), sink)
                continue
            offset, at = following, self._clock.now()
            await sink.save_cursor({"offset": offset, "at": at})

    async def _overcome(self, failure: PlatformFailure, sink: InboundSink) -> None:
        pause = None
        if failure.status == 409:
            failure, pause = self._conflict(self._clock.monotonic())
        await self._patience.overcome(failure, sink, pause)

    def _conflict(self, now: float) -> tuple[PlatformFailure, float]:
        """Give another receiver time to go away, longer each time; its owner is told.

        Success in between does not reset the count: two receivers that displace each other
        both succeed now and then.
        """
        recent = [at for at in self._conflicts if now - at < _CONFLICT_WINDOW]
        self._conflicts = [*recent, now]
        failure = PlatformFailure(
            FailureAction.RETRY,
            f"Another process receives the messages of this {self._label} bot.",
            hint="Stop the other gateway that uses this token, or give each its own bot.",
            status=409,
        )
        return failure, _CONFLICT_STEP * min(len(self._conflicts), _CONFLICTS)


def _restored(saved: Any) -> tuple[int | None, float]:
    """Read what was saved; anything else is no cursor, and the inbox knows duplicates."""
    if isinstance(saved, dict):
        offset, at = saved.get("offset"), saved.get("at")
        if isinstance(offset, int) and isinstance(at, int | float):
            return offset, float(at)
    return None, 0.0


async def keep_checking(clock: Clock, alive: Callable[[], None], check: Check) -> None:
    """Ask a platform that calls us now and then whether it still does; raise when it does not."""
    failures = 0
    while True:
        await clock.sleep(_CHECK_SECONDS)
        try:
            await check()
        except PlatformFailure as failure:
            failures += 1
            lost = failure.action not in {FailureAction.RETRY, FailureAction.WAIT}
            if lost or failures >= _CHECKS:
                raise
        else:
            failures = 0
            alive()


@asynccontextmanager
async def called_at(
    listener: HttpListener,
    platform: ChatPlatform,
    at: WebhookAddress,
    path: str,
    handler: ListenerHandler,
) -> AsyncIterator[int]:
    """Have the platform's calls answered for the length of the body.

    They are handled one after the other, so that the order within a chat holds. What cannot be
    taken is answered with 500, and the platform delivers it again.
    """
    turn = asyncio.Lock()

    async def handled(call: ListenerCall) -> ListenerReply:
        try:
            async with turn:
                return await handler(call)
        except HermesError as error:
            _LOG.error("An update could not be taken and will be sent again: %s", error)
            return ListenerReply(status=500)

    async with AsyncExitStack() as stack:
        serving = listener.serve(at.host, at.port, path, handled)
        try:
            port = await stack.enter_async_context(serving)
        except HermesError as error:
            raise PlatformFailure(
                FailureAction.RETRY,
                f"The {platform.label} webhook cannot listen on {at.host}:{at.port}. "
                f"{error.message}",
                hint=f"Set {platform.prefix}_WEBHOOK_PORT to a free port.",
            ) from None
        yield port
