"""One batch of updates on its way to the inbox.

Chats do not wait for each other (a slow download holds up only its own chat's
messages of the batch); within a chat the order is kept. When `take` returns,
every update of the batch is in the inbox or deliberately left out, and the
caller may tell Telegram so.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence

import msgspec

from hermes.domain.ports.platform import FailureAction, InboundSink, PlatformFailure
from hermes.entry.chat.telegram.api import BotApi
from hermes.entry.chat.telegram.decode import decode_update, update_number
from hermes.entry.chat.telegram.media import MediaStore
from hermes.entry.chat.telegram.mention import Verdict, judge
from hermes.entry.chat.telegram.observed import Observed
from hermes.entry.chat.telegram.parse import Bot, Heard, Ignored, Pressed, parse
from hermes.entry.chat.telegram.settings import TelegramSettings

__all__ = ["Intake"]

_LOG = logging.getLogger(__name__)
_TOAST_LENGTH = 200
_ALBUMS = 200


class Intake:
    """Decodes, filters, fetches and hands over."""

    def __init__(
        self, api: BotApi, settings: TelegramSettings, media: MediaStore, bot: Callable[[], Bot]
    ) -> None:
        self._api = api
        self._settings = settings
        self._media = media
        self._bot = bot
        self._observing = settings.observe_unmentioned_group_messages
        self._observed = Observed()
        self._albums: OrderedDict[str | None, None] = OrderedDict()

    async def take(
        self, raws: Sequence[bytes], sink: InboundSink, answers: asyncio.TaskGroup
    ) -> int | None:
        """Hand a batch over; return the number after its last update."""
        numbers = [number for raw in raws if (number := update_number(raw)) is not None]
        understood = [item for raw in raws if (item := self._understand(raw)) is not None]
        places: dict[str, list[Heard | Pressed]] = {}
        for item in self._heard(understood):
            chat_id = item.message.chat.id if isinstance(item, Heard) else item.press.chat_id
            places.setdefault(chat_id, []).append(item)
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
        deadline = asyncio.get_running_loop().time() + self._settings.download_timeout
        for item in items:
            if isinstance(item, Heard):
                await sink.message(await self._media.fetch(item.message, item.files, deadline))
            else:
                text = await sink.press(item.press)
                answers.create_task(self._answer(item.press.native_id, text))

    def _understand(self, raw: bytes) -> Heard | Pressed | None:
        update = decode_update(raw)
        if update is None:
            _LOG.warning("Skipped update %s, which makes no sense", update_number(raw))
            return None
        understood = parse(update, self._bot())
        if isinstance(understood, Ignored):
            _LOG.debug("Ignored update %s: %s", update.update_id, understood.reason)
            return None
        return understood

    def _heard(self, items: list[Heard | Pressed]) -> Iterator[Heard | Pressed]:
        """Keep what is for us; of an album, every part if one of them is."""
        verdicts = [
            judge(item.spoken, self._settings) if isinstance(item, Heard) else Verdict(heard=True)
            for item in items
        ]
        for item, verdict in zip(items, verdicts, strict=True):
            if isinstance(item, Heard) and verdict.heard and item.message.group_id:
                self._albums[item.message.group_id] = None
        while len(self._albums) > _ALBUMS:
            self._albums.popitem(last=False)
        for item, verdict in zip(items, verdicts, strict=True):
            if isinstance(item, Pressed):
                yield item
            elif verdict.heard or (verdict.observed and item.message.group_id in self._albums):
                yield self._with_context(item)
            else:
                _LOG.debug("Ignored message %s: %s", item.message.native_id, verdict.reason)
                if verdict.observed and self._observing:
                    self._observed.add(item.message)

    def _with_context(self, item: Heard) -> Heard:
        if not self._observing:
            return item
        message = msgspec.structs.replace(item.message, context=self._observed.take(item.message))
        return msgspec.structs.replace(item, message=message)

    async def _answer(self, query_id: str, text: str) -> None:
        try:
            await self._api.answer_callback_query(query_id, text[:_TOAST_LENGTH])
        except PlatformFailure as failure:
            if failure.action is not FailureAction.WAIT:
                _LOG.warning("A button press could not be answered: %s", failure)
