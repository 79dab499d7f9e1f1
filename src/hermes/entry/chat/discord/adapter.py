"""Discord's side of the `Adapter` port: what it says, without gaps, and what is said to it.

Discord confirms nothing. The cursor has the gateway session with its last event that the inbox
has, which the next process resumes; beside that, channels are read up (`kit.history`), those we
know when a session begins, any other before its first event counts. Interactions wait for no
history: they must be answered within three seconds. A slash command is deferred when the inbox has
it. The first thing that is said about it takes the place of "is thinking…"; everything else, and
what comes after a quarter of an hour, is an ordinary message.
"""

import asyncio
import hashlib
import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from hermes.domain.inbound import ChatKind, InboundMessage
from hermes.domain.outbound import Target
from hermes.domain.ports import platform as port
from hermes.domain.ports.platform import FailureAction, Outgoing, PlatformFailure, Sent
from hermes.domain.wording import clean_text, one_line
from hermes.entry.chat.discord import inbound, wire
from hermes.entry.chat.discord.inbound import ChannelWire, PostWire
from hermes.entry.chat.discord.settings import DiscordSettings
from hermes.entry.chat.kit import intake
from hermes.entry.chat.kit.base import ChatAdapter
from hermes.entry.chat.kit.decode import read_leniently
from hermes.entry.chat.kit.history import SKEW, CatchUp, Marks, number
from hermes.entry.chat.kit.http import HttpClient, HttpRequest, Upload, check_size, read_upload
from hermes.entry.chat.kit.intake import HandOver, Heard
from hermes.entry.chat.kit.receiver import Patience

_LOG = logging.getLogger(__name__)
_MOST_CHATS, _MOST_PEOPLE = 500, 50
"""Private chats that are read up, and those that are opened to look whether there is anything."""
_READABLE = frozenset({0, 5, 10, 11, 12})
_MAX_UPLOAD = 500_000_000
"""Discord's own limit depends on the server; it says so itself."""
_THREAD = {"auto_archive_duration": 1440}
_STYLES = {"primary": 3, "danger": 4}
_EPHEMERAL, _LOADING, _SILENT = 1 << 6, 1 << 7, 1 << 12
_CALLBACK = "POST /interactions/{webhook_id}/{webhook_token}/callback"
_ORIGINAL = "/webhooks/{webhook_id}/{webhook_token}/messages/@original"
_MESSAGE = "/channels/{channel_id}/messages/{message_id}"
_MESSAGES = "GET /channels/{channel_id}/messages"
Meanings = list[tuple[PostWire, Heard | None]]


class Cursor(Marks, kw_only=True):
    people: dict[str, str] = field(default_factory=dict)
    """Person -> their private chat."""
    session: wire.GatewaySession = wire.GatewaySession()


class _Interaction(Struct):
    token: str
    deferred: asyncio.Event
    key: str | None = None  # of the piece that has its place; empty: none can have it any more


class DiscordAdapter(ChatAdapter[DiscordSettings]):
    def __init__(self, rules: Callable[[], DiscordSettings], request: port.AdapterRequest) -> None:
        super().__init__(rules, request)
        settings, clock, self.account = rules(), request.clock, ""
        self._api = wire.DiscordApi(settings, clock)
        self._files = HttpClient("Discord", settings.base_url, proxy=settings.proxy)
        self._marks = Cursor(since=clock.now())
        self._history = CatchUp(self._marks, self._page, self._meaning, self._rules)
        self._bot = inbound.DiscordBot(id="")
        self._channels: dict[str, ChannelWire] = {}
        self._interactions: intake.Recent[_Interaction] = intake.Recent()
        self._unopened: intake.Recent[str] = intake.Recent()  # threads, and why
        self._begun, self._live = False, 0
        """The message that is just coming in: what is older was missed; 0: all of it was."""
        self._sink: port.InboundSink
        self._hand_over: HandOver

    async def connect(self) -> None:
        await self._api.open()
        self.account = self._bot.id = self._api.user_id

    async def close(self) -> None:
        await self._api.close()
        await self._files.close()

    async def receive(self, sink: port.InboundSink) -> None:
        events: asyncio.Queue[wire.Received] = asyncio.Queue()
        if (saved := await sink.cursor()) is not None:
            self._marks = self._history.marks = msgspec.convert(saved, Cursor)
        self._sink = sink
        async with self._intake.into(sink) as self._hand_over, intake.together() as group:

            def arrived(event: wire.Received) -> None:
                if event.name == "INTERACTION_CREATE":
                    group.create_task(self._interaction(event.data))
                else:
                    events.put_nowait(event)

            group.create_task(self._consume(events))
            await self._api.listen(sink, arrived, self._marks.session)

    async def _consume(self, events: asyncio.Queue[wire.Received]) -> None:
        saved_at = 0.0
        async for batch in intake.batches(events):
            meanings = [each for event in batch for each in await self._take(event)]
            await self._history.commit(meanings, self._hand_over)
            self._marks.session, now = batch[-1].session, self._clock.monotonic()
            if self._history.moved or batch[0].name == "READY" or now - saved_at > 30.0:
                await self._sink.save_cursor(msgspec.to_builtins(self._marks))
                saved_at, self._history.moved = now, False

    async def _take(self, event: wire.Received) -> Meanings:
        """Handle an event; return what it means if it is a message."""
        self._live = 0
        if event.name in wire.PLACES:
            self._know(event.data)
        elif event.name == "GUILD_CREATE":
            await self._enter(event.data)
        elif event.name != "MESSAGE_CREATE":
            await self._begin(event)
        elif (message := read_leniently(event.data, PostWire)) is not None:
            await self._channel(message.channel_id, event.data.get("guild_id"))
            self._live = 0 if event.missed else number(message.id)
            await self._history.read([message.channel_id], self._hand_over)
            return await self._meaning(message.channel_id, [message])
        return []

    async def _meaning(self, place: str, messages: Sequence[PostWire]) -> Meanings:
        """Say what the messages of a channel mean that were not seen yet."""
        found: Meanings = []
        channel, rules = self._channels[place], self._rules()
        ours = channel.owner_id == self._bot.id or channel.member is not None
        joined = channel.is_thread and (ours or place in self._marks.last)
        for message in messages:
            if self._intake.has_seen(message.name):
                continue
            self._intake.seen(message.name)
            item = inbound.read_message(message, channel, self._bot, rules, joined=joined)
            if isinstance(item, str):
                _LOG.debug("Ignored message %s: %s", message.name, item)
            elif channel.type == inbound.PRIVATE:
                self._marks.people.pop(message.author.id, None)
                self._marks.people[message.author.id] = place
            elif not (message.member or message.webhook_id or intake.judge(item, rules)):
                # A history does not tell what roles people have.
                names = (channel.guild_id or "", message.author.id)
                told = await self._asked("GET /guilds/{guild_id}/members/{user_id}", *names)
                member = read_leniently(told, inbound.MemberWire) or inbound.MemberWire()
                sender = replace(item.message.sender, roles=member.roles)
                item = replace(item, message=replace(item.message, sender=sender))
            late = not 0 < self._live <= number(message.id)
            found.append((message, replace(item, missed=late) if isinstance(item, Heard) else None))
        return found

    def _know(self, data: Any, guild_id: str | None = None) -> ChannelWire | None:
        """Remember a channel or thread as Discord describes it."""
        channel = read_leniently(data, ChannelWire)
        if channel is not None:
            before = self._channels.get(channel.id, channel)
            guild = channel.guild_id or guild_id or before.guild_id
            channel = replace(channel, guild_id=guild, member=channel.member or before.member)
            self._channels[channel.id] = channel
        return channel

    async def _channel(self, channel_id: str, guild_id: str | None) -> ChannelWire:
        """Return a channel; one of a server that nothing is known of is asked for."""
        if channel_id not in self._channels:
            told = guild_id and await self._asked("GET /channels/{channel_id}", channel_id)
            usual = {"id": channel_id, "type": 0 if guild_id else inbound.PRIVATE}
            _ = self._know(told or None, guild_id) or self._know(usual, guild_id)
        return self._channels[channel_id]

    async def _asked(self, method: str, *ids: str, **more: Any) -> Any:
        """Ask for something until there is an answer; None if it cannot be had."""
        ask = partial(self._api.call, method, *ids, **more)
        try:
            return await Patience(self._clock).until_answered(ask, self._sink)
        except PlatformFailure as failure:
            if failure.action in wire.PASSING:
                raise
            return None

    async def _begin(self, event: wire.Received) -> None:
        """Read up what was missed before a session; a resumed one brings its events itself."""
        if self._begun and event.name == "RESUMED":
            return
        marks, self._begun = self._marks, True
        self._history.current.clear()
        people = sorted(self._rules().allowed_users - marks.people.keys())
        for person in [each for each in people if number(each)][:_MOST_PEOPLE]:
            opened = await self._asked("POST /users/@me/channels", body={"recipient_id": person})
            marks.people |= {person: str(opened["id"])} if opened else {}
        marks.people = dict([*marks.people.items()][-_MOST_CHATS:])
        places = [await self._channel(each, None) for each in marks.people.values()]
        # The servers are told after READY; a session that another process began tells nothing.
        for each in [] if event.name == "READY" else marks.last.keys() - self._channels.keys():
            found = self._know(await self._asked("GET /channels/{channel_id}", each))
            places += [found] if found else []
        await self._history.read([each.id for each in places], self._hand_over)

    async def _enter(self, guild: Mapping[str, Any]) -> None:
        for each in guild.get("members") or ():
            if (each.get("user") or {}).get("id") == self._bot.id:
                self._bot.roles.update(each.get("roles") or ())
        told = [*(guild.get("channels") or ()), *(guild.get("threads") or ())]
        for data in told:
            self._know(data, str(guild.get("id")))
        worth = [str(each.get("id")) for each in told if self._worth_reading(each)]
        await self._history.read(worth, self._hand_over)

    def _worth_reading(self, channel: Mapping[str, Any]) -> bool:
        newest = channel.get("last_message_id")
        lately = not newest or inbound.time_of(newest) > self._marks.since - SKEW
        return channel.get("id") in self._marks.last or (
            lately and channel.get("type") in _READABLE
        )

    async def _page(self, channel: str, after: str | None) -> list[PostWire]:
        if not self._rules().missed_message_backfill:
            return []
        query = {"limit": 100} | ({"after": after} if after else {})
        return _posts(await self._asked(_MESSAGES, channel, **query))

    async def said_before(self, message: InboundMessage) -> list[str]:
        channel, _, name = message.native_id.partition(":")
        most = min(self._rules().history_backfill, 100)
        if most < 1 or not number(channel):
            return []
        page = _posts(await self._api.call(_MESSAGES, channel, before=name, limit=most))
        return intake.surroundings(inbound.utterance(each, self._bot) for each in reversed(page))

    async def _interaction(self, data: Mapping[str, Any]) -> None:
        told = read_leniently(data, inbound.InteractionWire)
        if told is None or told.id in self._interactions:
            return
        channel = await self._channel(told.channel_id, told.guild_id)
        item = inbound.read_interaction(told, channel, self._bot, self._clock.now())
        mine = self._interactions[told.id] = _Interaction(told.token, asyncio.Event())
        taken = await self._hand_over([item] if item is not None else [])
        if not isinstance(item, Heard):
            return
        try:
            if taken:
                await self._reply(told.id, {"type": 5})
        except PlatformFailure as failure:
            _LOG.info("A slash command could not be deferred: %s", failure.message)
            mine.key = ""
        finally:
            mine.deferred.set()

    async def _answer(self, asked: port.ButtonPress | InboundMessage, text: str) -> None:
        """Let go of a pressed button; that it counts is shown in its message."""
        number = asked.native_id.removeprefix("interaction:")
        privately = {"type": 4, "data": {"content": text, "flags": _EPHEMERAL}}
        await self._reply(number, {"type": 6} if text == port.NOTED else privately)

    async def _reply(self, interaction: str, answer: dict[str, Any]) -> None:
        token = self._interactions[interaction].token
        await self._api.call(_CALLBACK, interaction, token, body=answer)

    async def _in_place(
        self, outgoing: Outgoing, body: dict[str, Any], upload: Upload | None
    ) -> Sent | None:
        """Say something in the place of "is thinking…"; None if that is taken or over."""
        _, interaction, token = outgoing.target.context.split(" ")
        key, names = outgoing.key, (self._api.application_id, token)
        try:
            if (mine := self._interactions.get(interaction)) is not None:
                await mine.deferred.wait()
                mine.key = key if mine.key is None else mine.key
                free = mine.key == key
            else:
                # It came to an earlier process, which may have said this already.
                now = await self._api.call(f"GET {_ORIGINAL}", *names)
                free = now.get("flags", 0) & _LOADING or now.get("content") == body.get("content")
            if not free:
                return None
            data = await self._api.call(f"PATCH {_ORIGINAL}", *names, body=body, upload=upload)
        except PlatformFailure as failure:
            if failure.action in wire.PASSING:
                raise
            return None
        return Sent(native_id=f"{data['channel_id']}:{data['id']}")

    async def send(self, outgoing: Outgoing) -> Sent:
        body, rules, upload = _content(outgoing), self._rules(), None
        if outgoing.attachment is not None:
            upload = await read_upload(outgoing.attachment, _MAX_UPLOAD, "files[0]")
        if outgoing.key and outgoing.target.context.startswith(inbound.INTERACTION):
            sent = await self._in_place(outgoing, body, upload)
            if sent is not None:
                return sent
        channel = await self._place(outgoing.target)
        body |= {"nonce": _nonce(outgoing.key), "enforce_nonce": True}
        replied_channel, _, replied = (rules.replied_to(outgoing) or "").partition(":")
        if replied_channel == channel:
            body["message_reference"] = {"message_id": replied, "fail_if_not_exists": False}
        if rules.silent(outgoing):
            body["flags"] = _SILENT
        data = await self._api.call(wire.SEND, channel, body=body, upload=upload)
        return Sent(native_id=f"{channel}:{data['id']}")

    async def edit(self, native_id: str, outgoing: Outgoing) -> None:
        """Make a message look like `outgoing`; without buttons there are none afterwards."""
        body = {"components": []} | _content(outgoing)
        await self._api.call(f"PATCH {_MESSAGE}", *native_id.split(":"), body=body)

    async def delete(self, target: Target, native_id: str) -> None:  # noqa: ARG002 - named by id
        await self._remove(_MESSAGE, *native_id.split(":"))

    async def _remove(self, what: str, *names: str) -> None:
        try:
            await self._api.call(f"DELETE {what}", *names)
        except PlatformFailure as failure:
            if failure.status != 404 and failure.action is not FailureAction.SEND_NEW:
                raise

    async def typing(self, target: Target) -> None:
        if self._rules().typing_indicator:
            lost = target.thread_id in self._unopened
            place = target.chat_id if lost else await self._place(target)
            await self._api.call("POST /channels/{channel_id}/typing", place)

    async def _react(self, target: Target, native_id: str, emoji: str, *, there: bool) -> None:  # noqa: ARG002
        channel, _, message = native_id.partition(":")
        own = f"{_MESSAGE}/reactions/{{emoji}}/@me"
        if number(channel) and there:
            await self._api.call(f"PUT {own}", channel, message, emoji)
        elif number(channel):
            await self._remove(own, channel, message, emoji)

    async def find_sent(self, outgoing: Outgoing, since: float) -> Sent | None:
        channel = outgoing.target.thread_id or outgoing.target.chat_id
        nonce, text = _nonce(outgoing.key), _content(outgoing).get("content")
        for message in reversed(_posts(await self._api.call(_MESSAGES, channel, limit=100))):
            ours = message.nonce == nonce or (text and message.content == text)
            if ours and message.author.id == self.account and message.sent_at >= since - SKEW:
                return Sent(native_id=message.name)
        return None

    async def publish_commands(self, commands: Sequence[port.MenuCommand]) -> None:
        """Set the slash commands; a bot that may not have any works without."""
        named = intake.menu_names(commands)
        self._bot.commands = {short: each.name for short, each in named.items()}
        if self._rules().command_sync_policy == "off":
            return
        menu = [_slash(*each) for each in named.items()][:100]
        method = "PUT /applications/{application_id}/commands"
        try:
            await self._api.call(method, self._api.application_id, body=menu)
        except PlatformFailure as failure:
            if failure.action is FailureAction.FATAL:
                raise
            _LOG.warning("The slash commands of Discord stay as they were: %s", failure.message)

    async def _place(self, target: Target) -> str:
        """Return the channel to write to; the thread that an answer opens is made now."""
        thread, (kind, _, name) = target.thread_id, target.context.partition(" ")
        if thread is None or kind != inbound.THREAD or thread in self._channels:
            return thread or target.chat_id
        if thread in self._unopened:
            raise PlatformFailure(FailureAction.DROP_THREAD, self._unopened[thread])
        parent = self._channels.get(target.chat_id, ChannelWire(id=""))
        made: Any = {"id": thread, "type": 11, "parent_id": target.chat_id}
        body, place = {"name": clean_text(name), **_THREAD}, (target.chat_id, thread)
        try:
            made |= await self._api.call(f"POST {_MESSAGE}/threads", *place, body=body)
        except PlatformFailure as failure:
            if failure.action in wire.PASSING:
                raise
            # 160004: it is there already.
            if not failure.description.startswith("160004"):
                _LOG.warning("No thread can be opened, so the channel is used: %s", failure)
                self._unopened[thread] = failure.message
                raise PlatformFailure(FailureAction.DROP_THREAD, failure.message) from None
        self._know(made, parent.guild_id)
        return thread

    async def create_handoff_thread(self, target: Target, title: str) -> Target:
        """Open a thread in a channel; a private chat has none and is itself the address."""
        found = await self._api.call("GET /channels/{channel_id}", target.chat_id)
        if not found.get("guild_id"):
            return target
        name = intake.thread_title(title)
        opening = {"message": {"content": name}} if found["type"] in (15, 16) else {"type": 11}
        body, method = {"name": name, **_THREAD, **opening}, "POST /channels/{channel_id}/threads"
        made = await self._api.call(method, target.chat_id, body=body)
        place = {"thread_id": str(made["id"]), "chat_kind": ChatKind.THREAD}
        return replace(target, **place, reply_to=None, context="")

    async def fetch(self, remote: str, target: Path) -> int:
        size, _, url = remote.partition(" ")
        limit = self._rules().max_attachment_bytes
        check_size(number(size), limit)
        return await self._files.download(HttpRequest(name="a file", url=url), target, limit)


def _posts(page: Any) -> list[PostWire]:
    return [message for each in page or () if (message := read_leniently(each, PostWire))]


def _nonce(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:25] if key else secrets.token_hex(12)


def _content(outgoing: Outgoing) -> dict[str, Any]:
    """Return what a message shows; nobody is called by it but whom it answers."""
    body: dict[str, Any] = {"allowed_mentions": {"parse": [], "replied_user": True}}
    if outgoing.attachment is None:
        body["content"] = clean_text(outgoing.text or outgoing.plain)
    if outgoing.buttons:
        rows = [[_button(each) for each in row] for row in outgoing.buttons]
        body["components"] = [{"type": 1, "components": row} for row in rows]
    return body


def _button(button: port.Button) -> dict[str, Any]:
    shown = {"type": 2, "label": one_line(clean_text(button.label), 80)}
    if button.url:
        return shown | {"style": 5, "url": button.url}
    return shown | {"style": _STYLES.get(button.style, 2), "custom_id": button.data}


def _slash(name: str, command: port.MenuCommand) -> dict[str, Any]:
    described = {"name": name, "type": 1, "description": command.help[:100] or name}
    option = {"type": 3, "name": "text", "description": command.args[:100]}
    return described | ({"options": [option]} if command.args else {})
