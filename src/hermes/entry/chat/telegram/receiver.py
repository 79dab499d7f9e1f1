"""Receiving from Telegram: updates are confirmed only after they are in the inbox.

Telegram forgets an update when a later poll names a higher offset. So the offset moves after
the whole batch was taken, and a crash in between means that the batch comes again and is
recognised. A poll that hangs is given up, because a dead connection looks just like a quiet
one. In webhook mode an update is answered when the inbox has it.
"""

import asyncio
import hmac
import logging
import secrets
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from hermes.domain.ports.clock import Clock
from hermes.domain.ports.platform import (
    ButtonPress,
    FailureAction,
    HttpListener,
    InboundSink,
    ListenerCall,
    ListenerReply,
    PlatformFailure,
)
from hermes.entry.chat.kit.decode import decode_leniently, loose_document
from hermes.entry.chat.kit.intake import MessageIntake
from hermes.entry.chat.kit.receiver import Patience, called_at, keep_checking
from hermes.entry.chat.kit.settings import ChatSettings, WebhookAddress
from hermes.entry.chat.telegram.inbound import Bot, parse
from hermes.entry.chat.telegram.manifest import PLATFORM
from hermes.entry.chat.telegram.settings import TelegramSettings
from hermes.entry.chat.telegram.wire import BotApi, MessageWire, UpdateWire, WebhookInfo

_LOG = logging.getLogger(__name__)
_UPDATES = ("message", "channel_post", "callback_query")
_OFFSET_LIFE = 6 * 86400.0
"""After a week of silence Telegram picks new numbers at random, perhaps lower ones."""
_TOO_QUICK = 0.2
"""A server that answers empty polls at once does not hold them; it is not hammered."""
_TOAST_LENGTH = 200
_SECRET_HEADER = "x-telegram-bot-api-secret-token"  # noqa: S105 - a header's name


class Receiver:
    def __init__(
        self,
        api: BotApi,
        settings: TelegramSettings,
        clock: Clock,
        bot: Callable[[], Bot],
        rules: Callable[[], ChatSettings],
    ) -> None:
        self._api = api
        self._settings = settings
        self._clock = clock
        self._bot = bot
        self._intake = MessageIntake(rules, self._answer)
        self._patience = Patience("Telegram", clock)
        self._secret = ""

    async def register(self) -> None:
        """Choose between polling and being called; what waits on the server stays."""
        webhook = self._settings.webhook
        if webhook is None:
            await self._api.call("deleteWebhook", {"drop_pending_updates": False}, bool)
            return
        self._secret = webhook.secret or self._secret or secrets.token_urlsafe(32)
        wanted = {
            "url": webhook.url,
            "secret_token": self._secret,
            # One at a time, so that updates stay in order.
            "max_connections": 1,
            "allowed_updates": _UPDATES,
            "drop_pending_updates": False,
        }
        await self._api.call("setWebhook", wanted, bool)

    async def run(self, sink: InboundSink, listener: HttpListener) -> None:
        """Receive until cancelled; raise `PlatformFailure` when that has become pointless."""
        try:
            async with asyncio.TaskGroup() as answers:
                if self._settings.webhook is None:
                    await self._poll(sink, answers)
                else:
                    await self._be_called(sink, answers, self._settings.webhook, listener)
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None

    # -- polling -------------------------------------------------------------------

    async def _poll(self, sink: InboundSink, answers: asyncio.TaskGroup) -> None:
        loop = asyncio.get_running_loop()
        offset, at = _restored(await sink.cursor())
        while True:
            asked_at = loop.time()
            fresh = self._clock.now() - at < _OFFSET_LIFE
            try:
                raws = await self._updates(offset if fresh else None)
            except PlatformFailure as failure:
                await self._overcome(failure)
                continue
            self._patience.success()
            sink.alive()
            if not raws:
                if loop.time() - asked_at < _TOO_QUICK:
                    await self._clock.sleep(1.0)
                continue
            following = await self._take(raws, sink, answers)
            if following is None:
                message = "Telegram sent updates without numbers."
                await self._overcome(PlatformFailure(FailureAction.RETRY, message))
                continue
            offset, at = following, self._clock.now()
            await sink.save_cursor({"offset": offset, "at": at})

    async def _updates(self, offset: int | None) -> list[msgspec.Raw]:
        """Wait for updates; naming an offset confirms everything before it."""
        seconds = max(1, round(self._settings.poll_timeout))
        wanted = {"timeout": seconds, "limit": 100, "allowed_updates": _UPDATES}
        confirmed = {} if offset is None else {"offset": offset}
        return await self._api.call("getUpdates", wanted | confirmed, list[msgspec.Raw])

    async def _overcome(self, failure: PlatformFailure) -> None:
        if failure.status != 409:
            await self._patience.overcome(failure)
            return
        if "webhook is active" in failure.description:
            try:
                await self.register()
            except PlatformFailure as refused:
                _LOG.warning("A webhook is in the way and cannot be removed: %s", refused.message)
        await self._patience.conflict()

    # -- being called ----------------------------------------------------------------

    async def _be_called(
        self,
        sink: InboundSink,
        answers: asyncio.TaskGroup,
        webhook: WebhookAddress,
        listener: HttpListener,
    ) -> None:
        async def handle(call: ListenerCall) -> ListenerReply:
            given = call.headers.get(_SECRET_HEADER, "").encode("latin-1", "replace")
            if call.method != "POST" or not hmac.compare_digest(given, self._secret.encode()):
                return ListenerReply(status=401)
            await self._take([call.body], sink, answers)
            sink.alive()
            return ListenerReply()

        path = urlsplit(webhook.url).path or "/"
        async with called_at(listener, PLATFORM, webhook, path, handle):
            sink.alive()
            await keep_checking(self._clock, sink.alive, self._still_called)

    async def _still_called(self) -> None:
        info = await self._api.call("getWebhookInfo", {}, WebhookInfo)
        assert self._settings.webhook is not None
        if info.url != self._settings.webhook.url:
            raise PlatformFailure(
                FailureAction.GIVE_UP,
                "Telegram sends this bot's updates to another place.",
                hint="Stop the other gateway that uses this token.",
            )
        if info.last_error_message:
            _LOG.warning("Telegram had trouble calling us: %s", info.last_error_message)

    # -- both ----------------------------------------------------------------------

    async def _take(
        self, raws: Sequence[bytes], sink: InboundSink, answers: asyncio.TaskGroup
    ) -> int | None:
        """Hand a batch over; return the number after its last update."""
        numbers: list[int] = []
        items = []
        for raw in raws:
            update = decode_leniently(raw, UpdateWire, MessageWire)
            number = loose_document(raw).get("update_id") if update is None else update.update_id
            if isinstance(number, int):
                numbers.append(number)
            if update is None:
                _LOG.warning("Skipped update %s, which makes no sense", number)
                continue
            item = parse(update, self._bot())
            if isinstance(item, str):
                _LOG.debug("Ignored update %s: %s", number, item)
            else:
                items.append(item)
        await self._intake.take(items, sink, answers)
        return max(numbers) + 1 if numbers else None

    async def _answer(self, press: ButtonPress, text: str) -> None:
        """Let go of a pressed button; too late is fine."""
        fields = {"callback_query_id": press.native_id, "text": text[:_TOAST_LENGTH]}
        try:
            await self._api.call("answerCallbackQuery", fields, bool)
        except PlatformFailure as failure:
            if failure.action is not FailureAction.GIVE_UP:
                raise


def _restored(saved: Any) -> tuple[int | None, float]:
    """Read what was saved; anything else is no cursor, and the inbox knows duplicates."""
    if isinstance(saved, dict):
        offset, at = saved.get("offset"), saved.get("at")
        if isinstance(offset, int) and isinstance(at, int | float):
            return offset, float(at)
    return None, 0.0
