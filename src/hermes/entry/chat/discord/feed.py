"""What Discord says, without gaps: events in order, and the history of what was missed.

Discord confirms nothing and repeats nothing of its own accord. So three things are kept in the
cursor, each written only after the inbox has what came before it: the gateway session with the
number of its last event, which also the next process resumes; for each channel where somebody
spoke to us the last message; and the time up to which everything else was heard. A channel is
read up from there before its first event counts, and when a session begins, all that are known:
those of the servers, and the private chats of people. What comes twice is recognised here or by
the inbox. Interactions must be answered within three seconds, so they wait for no history.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from hermes.domain.ports.clock import Clock
from hermes.domain.ports.platform import ButtonPress, InboundSink, PlatformFailure
from hermes.entry.chat.discord.inbound import (
    Bot,
    ChannelWire,
    InteractionWire,
    MemberWire,
    MessageWire,
    number,
    read_interaction,
    read_message,
    time_of,
)
from hermes.entry.chat.discord.settings import DiscordRules
from hermes.entry.chat.discord.wire import PASSING, PLACES, DiscordApi, GatewaySession, Received
from hermes.entry.chat.kit.decode import decode_leniently
from hermes.entry.chat.kit.intake import HandOver, Heard, MessageIntake, judge, together
from hermes.entry.chat.kit.receiver import Patience

_LOG = logging.getLogger(__name__)
_PAGE, _MOST = 100, 1000
"""Messages that are asked for at once, and of one channel after an absence."""
_AT_ONCE = 8
_MOST_PLACES = 1000
_MOST_PEOPLE = 50
"""Private chats that are opened to look whether anything was said."""
SKEW = 10.0
"""How far clocks may differ."""
_SAVE_SECONDS = 30.0
_READABLE = frozenset({0, 5, 10, 11, 12})
Interact = Callable[[InteractionWire, Heard | ButtonPress, HandOver], Awaitable[None]]
S = TypeVar("S", bound=Struct)


class Marks(Struct, kw_only=True):
    """How far everything was heard: the cursor."""

    since: float
    last: dict[str, str] = field(default_factory=dict)
    """Channel -> the last message, where somebody spoke to us."""
    people: dict[str, str] = field(default_factory=dict)
    """Person -> their private chat."""
    session: GatewaySession = GatewaySession()

    def heard(self, message: MessageWire, *, addressed: bool) -> None:
        self.since = max(self.since, message.sent_at)
        if addressed or message.channel_id in self.last:
            before = self.last.pop(message.channel_id, None)
            self.last[message.channel_id] = max(message.id, before or "0", key=number)
            while len(self.last) > _MOST_PLACES:
                del self.last[next(iter(self.last))]


class DiscordFeed:
    def __init__(
        self,
        api: DiscordApi,
        rules: Callable[[], DiscordRules],
        clock: Clock,
        intake: MessageIntake,
        interact: Interact,
    ) -> None:
        self._api = api
        self._rules = rules
        self._clock = clock
        self._intake = intake
        self._interact = interact
        """Has a slash command or a press taken, and answers it."""
        self.bot = Bot(id="")
        self.marks = Marks(since=clock.now())
        self.channels: dict[str, ChannelWire] = {}
        self._current: set[str] = set()
        """Channels of which nothing is missing."""
        self._begun = False
        self._sink: InboundSink
        self._saved_at = 0.0

    async def receive(self, sink: InboundSink) -> None:
        self._sink = sink
        if (saved := await sink.cursor()) is not None:
            self.marks = msgspec.convert(saved, Marks)
        events: asyncio.Queue[Received] = asyncio.Queue()
        async with self._intake.into(sink) as hand_over, together() as group:

            def arrived(event: Received) -> None:
                if event.name == "INTERACTION_CREATE":
                    group.create_task(self._interaction(event.data, hand_over))
                else:
                    events.put_nowait(event)

            group.create_task(self._consume(events, sink, hand_over))
            await self._api.listen(sink, arrived, self.marks.session)

    async def _consume(
        self, events: asyncio.Queue[Received], sink: InboundSink, hand_over: HandOver
    ) -> None:
        while True:
            batch = [await events.get()]
            while not events.empty():
                batch.append(events.get_nowait())
            addressed = await self._take(batch, hand_over)
            self.marks.session = batch[-1].session
            now, beginning = self._clock.monotonic(), any(e.name == "READY" for e in batch)
            if addressed or beginning or now - self._saved_at > _SAVE_SECONDS:
                await sink.save_cursor(msgspec.to_builtins(self.marks))
                self._saved_at = now

    async def _take(self, batch: Sequence[Received], hand_over: HandOver) -> bool:
        """Handle events in order; return whether any was for us."""
        messages: list[tuple[MessageWire, Heard | None]] = []
        for event in batch:
            if event.name == "MESSAGE_CREATE":
                if (message := _read(event.data, MessageWire)) is not None:
                    channel = await self._channel(message.channel_id, message.guild_id)
                    await self._catch_up([channel], hand_over)
                    messages += await self._heard([message], channel)
            elif event.name in PLACES:
                self.know(event.data)
            elif event.name == "GUILD_CREATE":
                await self._enter(event.data, hand_over)
            else:
                await self._begin(event, hand_over)
        return await self._hand_over(messages, hand_over)

    # -- messages ------------------------------------------------------------------------

    async def _heard(
        self, messages: Sequence[MessageWire], channel: ChannelWire
    ) -> list[tuple[MessageWire, Heard | None]]:
        """Say what the messages mean that were not seen yet."""
        found: list[tuple[MessageWire, Heard | None]] = []
        for message in messages:
            if self._intake.has_seen(message.name):
                continue
            self._intake.seen(message.name)
            ours = channel.owner_id == self.bot.id or channel.member is not None
            joined = channel.is_thread and (ours or channel.id in self.marks.last)
            item = read_message(message, channel, self.bot, self._rules(), joined=joined)
            if isinstance(item, str):
                _LOG.debug("Ignored message %s: %s", message.name, item)
                found.append((message, None))
            elif channel.guild_id is None:
                self.marks.people[message.author.id] = channel.id
                found.append((message, item))
            else:
                found.append((message, await self._with_roles(item, message, channel)))
        return found

    async def _with_roles(self, item: Heard, message: MessageWire, channel: ChannelWire) -> Heard:
        """A history does not tell what roles people have."""
        if message.member is not None or message.webhook_id or judge(item, self._rules()):
            return item
        names = (channel.guild_id or "", message.author.id)
        member = _read(await self._asked("GET /guilds/{}/members/{}", *names), MemberWire)
        sender = replace(item.message.sender, roles=member.roles if member else ())
        return replace(item, message=replace(item.message, sender=sender))

    async def _hand_over(
        self, messages: Sequence[tuple[MessageWire, Heard | None]], hand_over: HandOver
    ) -> bool:
        """Have messages taken, then note how far we are; return whether any was for us."""
        heard = [item for _, item in messages if item is not None]
        if heard:
            await hand_over(heard)
        some, rules = False, self._rules()
        for message, item in messages:
            addressed = item is not None and not judge(item, rules)
            self.marks.heard(message, addressed=addressed)
            if item is not None and addressed:
                some = True
                # From here on its thread is one that we take part in.
                if (thread := item.message.thread_id) is not None:
                    self.marks.last.setdefault(thread, message.id)
        return some

    async def _interaction(self, data: Mapping[str, Any], hand_over: HandOver) -> None:
        interaction = _read(data, InteractionWire)
        if interaction is None or interaction.channel_id is None:
            return
        channel = await self._channel(interaction.channel_id, interaction.guild_id)
        item = read_interaction(interaction, channel, self.bot, self._clock.now())
        if isinstance(item, str):
            _LOG.debug("Ignored interaction %s: %s", interaction.id, item)
        else:
            await self._interact(interaction, item, hand_over)

    # -- places ----------------------------------------------------------------------------

    def know(self, data: Any, guild_id: str | None = None) -> ChannelWire | None:
        """Remember a channel or thread as Discord describes it."""
        channel = _read(data, ChannelWire)
        if channel is not None:
            before = self.channels.get(channel.id, channel)
            guild = channel.guild_id or guild_id or before.guild_id
            channel = replace(channel, guild_id=guild, member=channel.member or before.member)
            self.channels[channel.id] = channel
        return channel

    async def _channel(self, channel_id: str, guild_id: str | None) -> ChannelWire:
        """Return a channel; one of a server that nothing is known of is asked for."""
        if channel_id not in self.channels:
            private = {"id": channel_id, "type": 1}
            asked = guild_id and await self._asked("GET /channels/{}", channel_id)
            self.know(asked or {**private, "type": 0} if guild_id else private, guild_id)
        return self.channels[channel_id]

    async def _asked(self, method: str, *ids: str, **more: Any) -> Any:
        """Ask for something until there is an answer; None if it cannot be had."""
        patience = Patience(self._clock)
        while True:
            try:
                return await self._api.call(method, *ids, **more)
            except PlatformFailure as failure:
                if failure.action not in PASSING:
                    _LOG.info("%s", failure.message)
                    return None
                await patience.overcome(failure, self._sink)

    # -- what was missed -------------------------------------------------------------------

    async def _begin(self, event: Received, hand_over: HandOver) -> None:
        """Read up what was missed before a session; a resumed one brings its events itself."""
        ready, first = event.name == "READY", not self._begun
        self._begun = True
        if not ready and not first:
            return
        if ready:
            self._current.clear()
        people = sorted(self._rules().allowed_users - self.marks.people.keys())
        for person in [each for each in people if number(each)][:_MOST_PEOPLE]:
            opened = await self._asked("POST /users/@me/channels", body={"recipient_id": person})
            if opened:
                self.marks.people[person] = str(opened["id"])
        told = [str(each["id"]) for each in event.data.get("private_channels") or ()]
        private = [await self._channel(each, None) for each in {*self.marks.people.values(), *told}]
        # The servers are told after READY; a session that another process began tells nothing.
        others = [] if ready else [each for each in self.marks.last if each not in self.channels]
        shared = [self.know(await self._asked("GET /channels/{}", each)) for each in others]
        await self._catch_up([*private, *(each for each in shared if each)], hand_over)

    async def _enter(self, guild: Mapping[str, Any], hand_over: HandOver) -> None:
        for each in guild.get("members") or ():
            member = _read(each, MemberWire)
            if member is not None and member.user is not None and member.user.id == self.bot.id:
                self.bot.roles.update(member.roles)
        told = [*(guild.get("channels") or ()), *(guild.get("threads") or ())]
        places = [self.know(data, str(guild.get("id"))) for data in told]
        worth = [each for each in places if each is not None and self._worth_reading(each)]
        await self._catch_up(worth, hand_over)

    def _worth_reading(self, channel: ChannelWire) -> bool:
        newest = channel.last_message_id
        lately = newest is None or time_of(newest) > self.marks.since - SKEW
        return channel.id in self.marks.last or (channel.type in _READABLE and lately)

    async def _catch_up(self, channels: Sequence[ChannelWire], hand_over: HandOver) -> None:
        """Read the history of channels behind what was heard, each once in a session."""
        wanted = [each for each in channels if each.id not in self._current]
        self._current.update(each.id for each in wanted)
        slots = asyncio.Semaphore(_AT_ONCE)

        async def read(channel: ChannelWire) -> None:
            async with slots:
                messages = await self._heard(await self._missed(channel), channel)
                await self._hand_over(messages, hand_over)

        async with together() as group:
            for each in wanted if self._rules().missed_message_backfill else ():
                group.create_task(read(each))

    async def _missed(self, channel: ChannelWire) -> list[MessageWire]:
        """Return the messages of a channel that were not heard, oldest first."""
        after, since = self.marks.last.get(channel.id), self.marks.since - SKEW
        found: list[MessageWire] = []
        while True:
            behind = {"after": after} if after else {}
            page = await self._asked("GET /channels/{}/messages", channel.id, limit=_PAGE, **behind)
            read = [each for data in page or () if (each := _read(data, MessageWire))]
            read.sort(key=lambda each: number(each.id))
            if not after:
                return [each for each in read if each.sent_at >= since]
            found += (fresh := [each for each in read if number(each.id) > number(after)])
            if len(fresh) < _PAGE or len(found) >= _MOST:
                return found
            after = fresh[-1].id


def _read(data: Any, wanted: type[S]) -> S | None:
    return None if data is None else decode_leniently(msgspec.json.encode(data), wanted)
