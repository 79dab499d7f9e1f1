"""Long polling in which an update is confirmed only after it is in the inbox.

Telegram forgets an update when a later poll names a higher offset. So the
offset moves after the whole batch was taken, and a crash in between means that
the batch comes again and is recognised. A poll that hangs is given up, because a
dead connection looks just like a quiet one.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct

from hermes.domain.ports.clock import Clock
from hermes.domain.ports.platform import FailureAction, InboundSink, PlatformFailure
from hermes.entry.chat.telegram.api import BotApi
from hermes.entry.chat.telegram.failures import ApiFailure

__all__ = ["Poller"]

_LOG = logging.getLogger(__name__)
_OFFSET_LIFE = 6 * 86400.0
"""After a week of silence Telegram picks new numbers at random, perhaps lower ones."""
_CONFLICT_STEP = 10.0
_CONFLICTS = 4
_CONFLICT_WINDOW = 300.0
_FAILING_SECONDS = 90.0
"""After so long without a poll the whole connection is made anew by whoever supervises it."""
_TOO_QUICK = 0.2
"""A server that answers empty polls at once does not hold them; it is not hammered."""
_LONGEST_BACKOFF = 30.0
Take = Callable[[list[bytes]], Awaitable[int | None]]


class _Cursor(Struct, kw_only=True):
    offset: int | None = None
    at: float = 0.0


class Poller:
    """The loop, with its patience."""

    def __init__(self, api: BotApi, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._failures = 0
        self._failing_since = 0.0
        self._conflicts: list[float] = []
        self._random = random.Random()  # noqa: S311 - spreads retries, guards nothing

    async def run(self, sink: InboundSink, take: Take) -> None:
        """Poll until cancelled; raise `PlatformFailure` when that has become pointless."""
        loop = asyncio.get_running_loop()
        cursor = _restored(await sink.cursor())
        while True:
            asked_at = loop.time()
            try:
                raws = await self._api.get_updates(self._offset(cursor))
            except ApiFailure as failure:
                await self._overcome(failure)
                continue
            self._failures = 0
            sink.alive()
            if not raws:
                if loop.time() - asked_at < _TOO_QUICK:
                    await self._clock.sleep(1.0)
                continue
            offset = await take([*raws])
            if offset is None:
                await self._overcome(_without_numbers())
                continue
            cursor = _Cursor(offset=offset, at=self._clock.now())
            await sink.save_cursor({"offset": offset, "at": cursor.at})

    def _offset(self, cursor: _Cursor) -> int | None:
        fresh = self._clock.now() - cursor.at < _OFFSET_LIFE
        return cursor.offset if fresh else None

    async def _overcome(self, failure: ApiFailure) -> None:
        """Wait as the failure asks for, or pass it on."""
        if failure.status == 409:
            await self._conflict(failure)
            return
        if failure.action is FailureAction.WAIT:
            _LOG.warning("Telegram asks to poll less: waiting %.0f s", failure.retry_after)
            await self._clock.sleep(failure.retry_after)
            return
        if failure.action is not FailureAction.RETRY:
            raise failure
        now = self._clock.monotonic()
        self._failing_since = self._failing_since if self._failures else now
        self._failures += 1
        if now - self._failing_since >= _FAILING_SECONDS:
            raise failure
        pause = min(_LONGEST_BACKOFF, 2.0 ** min(self._failures - 1, 10))
        pause *= self._random.uniform(0.5, 1.0)
        _LOG.warning("Polling failed: %s Trying again in %.1f s", failure.message, pause)
        await self._clock.sleep(pause)

    async def _conflict(self, failure: ApiFailure) -> None:
        """Give another poller time to go away, but do not take turns with it for ever.

        Polls that succeed in between do not start the count anew: two pollers
        that displace each other both succeed now and then.
        """
        now = self._clock.now()
        self._conflicts = [at for at in self._conflicts if now - at < _CONFLICT_WINDOW] + [now]
        if len(self._conflicts) > _CONFLICTS:
            self._conflicts = []
            raise PlatformFailure(
                FailureAction.RETRY,
                "Another process receives the messages of this Telegram bot.",
                hint="Stop the other gateway that uses this token, or give each its own bot.",
            ) from None
        if "webhook is active" in failure.description:
            await self._remove_webhook()
        pause = _CONFLICT_STEP * len(self._conflicts)
        _LOG.warning("Somebody else polls with this token; trying again in %.0f s", pause)
        await self._clock.sleep(pause)

    async def _remove_webhook(self) -> None:
        try:
            await self._api.delete_webhook()
        except PlatformFailure as failure:
            _LOG.warning("A webhook is in the way and could not be removed: %s", failure.message)


def _restored(saved: Any) -> _Cursor:
    """Read what was saved; anything else is no cursor, and the inbox knows duplicates."""
    if isinstance(saved, dict):
        offset, at = saved.get("offset"), saved.get("at")
        if isinstance(offset, int) and isinstance(at, int | float):
            return _Cursor(offset=offset, at=at)
    return _Cursor()


def _without_numbers() -> ApiFailure:
    return ApiFailure(FailureAction.RETRY, "Telegram sent updates without numbers.")
