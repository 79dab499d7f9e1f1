"""One batch of updates on its way to the inbox.

Chats do not wait for each other (a slow download holds up only its own chat's
messages of the batch); within a chat the order is kept. When `take` returns,
every update of the batch is in the inbox or deliberately left out, and the
caller may tell Telegram so.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

import msgspec

from hermes.domain.ports.platform import FailureAction, InboundSink, PlatformFailure
from hermes.entry.chat.telegram.api import BotApi
from hermes.entry.chat.telegram.decode import decode_update, update_number
from hermes.entry.chat.telegram.media import MediaStore
from hermes.entry.chat.telegram.mention import judge
from hermes.entry.chat.telegram.observed import Observed
from hermes.entry.chat.telegram.parse import Bot, Heard, Ignored, Pressed, parse
from hermes.entry.chat.telegram.settings import TelegramSettings

__all__ = ["Intake"]

_LOG = logging.getLogger(__name__)
_TOAST_LENGTH = 200


class Intake:
    """Decodes, filters, fetches and hands over."""

    def __init__(
        self, api: BotApi, settings: TelegramSettings, media: MediaStore, bot: Callable[[], Bot]
    ) -> None:
        self._api = api
        self._settings = settings
        self._media = media
        self._bot = bot
        self._observed = Observed()

    async def take(
        self, raws: Sequence[bytes], sink: InboundSink, answers: asyncio.TaskGroup
    ) -> int | None:
        """Hand a batch over; return the number after its last update."""
        places: dict[str, list[Heard | Pressed]] = {}
        numbers: list[int] = []
        for raw in raws:
            number = update_number(raw)
            if number is not None:
                numbers.append(number)
            understood = self._understand(raw, number)
            if isinstance(understood, Heard):
                places.setdefault(understood.message.chat.id, []).append(understood)
            elif isinstance(understood, Pressed):
                places.setdefault(understood.press.chat_id, []).append(understood)
        if len(places) == 1:
            await self._place(next(iter(places.values())), sink, answers)
        elif places:
            await self._all(places, sink, answers)
        return max(numbers) + 1 if numbers else None

    async def _all(
        self,
        places: dict[str, list[Heard | Pressed]],
        sink: InboundSink,
        answers: asyncio.TaskGroup,
    ) -> None:
        try:
            async with asyncio.TaskGroup() as chats:
                for items in places.values():
                    chats.create_task(self._place(items, sink, answers))
        except BaseExceptionGroup as group:
            # One reason is enough: the batch is not confirmed and will come again.
            raise group.exceptions[0] from None

    async def _place(
        self, items: list[Heard | Pressed], sink: InboundSink, answers: asyncio.TaskGroup
    ) -> None:
        for item in items:
            if isinstance(item, Heard):
                await sink.message(await self._media.fetch(item.message, item.files))
            else:
                text = await sink.press(item.press)
                answers.create_task(self._answer(item.press.native_id, text))

    def _understand(self, raw: bytes, number: int | None) -> Heard | Pressed | None:
        update = decode_update(raw)
        if update is None:
            _LOG.warning("Skipped an update that makes no sense (number %s)", number)
            return None
        understood = parse(update, self._bot())
        if isinstance(understood, Ignored):
            _LOG.debug("Ignored update %s: %s", number, understood.reason)
            return None
        if isinstance(understood, Pressed):
            return understood
        verdict = judge(understood.spoken, self._settings)
        observing = self._settings.observe_unmentioned_group_messages
        if not verdict.heard:
            _LOG.debug("Ignored update %s: %s", number, verdict.reason)
            if verdict.observed and observing:
                self._observed.add(understood.message)
            return None
        if observing:
            context = self._observed.take(understood.message)
            message = msgspec.structs.replace(understood.message, context=context)
            return msgspec.structs.replace(understood, message=message)
        return understood

    async def _answer(self, query_id: str, text: str) -> None:
        try:
            await self._api.answer_callback_query(query_id, text[:_TOAST_LENGTH])
        except PlatformFailure as failure:
            if failure.action is not FailureAction.WAIT:
                _LOG.warning("A button press could not be answered: %s", failure)
