"""Catching up on a platform that confirms and repeats nothing, from what it keeps itself.

The cursor says how far was heard: for each place where somebody spoke to us the last message,
for all others a time. It moves only when the inbox has what came before. A place is read from
there once in each connection, before its first event counts, so that the order holds; what is
read twice is known to the inbox. Ids are numbers that grow.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Generic, Protocol, TypeVar

from msgspec import Struct, field

from hermes.entry.chat.kit.intake import HandOver, Heard, judge, together
from hermes.entry.chat.kit.settings import ChatSettings

_MOST_PLACES = 1000
_AT_ONCE = 8
SKEW = 10.0
"""Seconds by which clocks may differ."""


class Told(Protocol):
    """A message as a history tells it."""

    @property
    def id(self) -> str: ...

    @property
    def channel_id(self) -> str: ...

    @property
    def sent_at(self) -> float: ...


M = TypeVar("M", bound=Told)


def number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() else 0


class Marks(Struct, kw_only=True):
    """How far everything was heard."""

    since: float
    last: dict[str, str] = field(default_factory=dict)
    """Place -> the last message, where somebody spoke to us."""

    def heard(self, message: Told, *, addressed: bool) -> None:
        self.since, place = max(self.since, message.sent_at), message.channel_id
        if addressed or place in self.last:
            self.last[place] = max(message.id, self.last.pop(place, "0"), key=number)
            while len(self.last) > _MOST_PLACES:
                del self.last[next(iter(self.last))]


Meanings = Sequence[tuple[M, Heard | None]]
"""Messages, and what those say that we may have to answer."""


class CatchUp(Generic[M]):
    def __init__(
        self,
        marks: Marks,
        page: Callable[[str, str | None], Awaitable[Iterable[M]]],
        meaning: Callable[[str, Sequence[M]], Awaitable[Meanings[M]]],
        rules: Callable[[], ChatSettings],
        *,
        size: int = 100,
        most: int = 1000,
    ) -> None:
        self.marks = marks
        self._page = page
        """(place, message) -> the next messages after it, or the newest ones of all."""
        self._meaning = meaning
        self._rules = rules
        self._size = size
        """How many are on a full page."""
        self._most = most
        self.current: set[str] = set()
        """Places of which nothing is missing."""
        self.moved = False
        """Whether anything for us came since the marks were saved."""

    async def commit(self, meanings: Meanings[M], hand_over: HandOver) -> None:
        """Have messages taken, then note how far we are."""
        await hand_over([item for _, item in meanings if item is not None])
        rules = self._rules()
        for message, item in meanings:
            addressed = item is not None and not judge(item, rules)
            self.marks.heard(message, addressed=addressed)
            self.moved = self.moved or addressed
            if item is not None and addressed and item.message.thread_id is not None:
                # From here on its thread is one that we take part in.
                self.marks.last.setdefault(item.message.thread_id, message.id)

    async def read(self, places: Iterable[str], hand_over: HandOver) -> None:
        """Have taken what was missed in places, each once in a connection; oldest first."""
        wanted = [each for each in dict.fromkeys(places) if each not in self.current]
        self.current.update(wanted)
        slots = asyncio.Semaphore(_AT_ONCE)

        async def read(place: str) -> None:
            async with slots:
                meanings = await self._meaning(place, await self._missed(place))
                await self.commit(meanings, hand_over)

        async with together() as group:
            for each in wanted:
                group.create_task(read(each))

    async def _missed(self, place: str) -> list[M]:
        after, found = self.marks.last.get(place), list[M]()
        while True:
            page = sorted(await self._page(place, after), key=lambda each: number(each.id))
            if after is None:
                return [each for each in page if each.sent_at >= self.marks.since - SKEW]
            found += (fresh := [each for each in page if number(each.id) > number(after)])
            if len(fresh) < self._size or len(found) >= self._most:
                return found
            after = fresh[-1].id
