"""Discord's side of the `Adapter` port: what it says, without gaps, and what is said to it.

Discord confirms nothing. The cursor has the gateway session with the number of its last event
that the inbox has, and the next process resumes it; beside that, channels are read up
(`kit.history`): those of the servers and the private chats of people we know when a session begins,
any other before its first event counts.

Interactions must be answered within three seconds, so they wait for no history. A slash command is
deferred as soon as the inbox has it. The first thing that is said about it takes the place of "is
thinking…"; everything else, and everything after a quarter of an hour, is an ordinary message. A
send carries its key as a nonce, so that Discord shows it once.
"""

import asyncio
import hashlib
import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from hermes.domain.inbound import ChatKind
from hermes.domain.outbound import Target
from hermes.domain.ports import platform as port
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.platform import FailureAction, Outgoing, PlatformFailure, Sent
from hermes.domain.wording import clean_text, one_line
from hermes.entry.chat.discord import inbound
from hermes.entry.chat.discord.inbound import ChannelWire, MessageWire, Note, read_note
from hermes.entry.chat.discord.manifest import PLATFORM
from hermes.entry.chat.discord.settings import DiscordRules, DiscordSettings
from hermes.entry.chat.discord.wire import (
    PASSING,
    PLACES,
    SEND,
    DiscordApi,
    GatewaySession,
    Received,
)
from hermes.entry.chat.kit.decode import decode_leniently
from hermes.entry.chat.kit.history import SKEW, CatchUp, Marks, number
from hermes.entry.chat.kit.http import HttpClient, HttpRequest, Upload, check_size, read_file
from hermes.entry.chat.kit.intake import (
    HandOver,
    Heard,
    MessageIntake,
    Recent,
    batches,
    judge,
    menu_names,
    together,
)
from hermes.entry.chat.kit.receiver import Patience
from hermes.entry.chat.kit.settings import live_settings

_LOG = logging.getLogger(__name__)
_MOST_PEOPLE = 50
"""Private chats that are opened to look whether anything was said."""
_SAVE_SECONDS = 30.0
_READABLE = frozenset({0, 5, 10, 11, 12})
_SEEN = "👀"
_COMMANDS, _COMMAND_TEXT = 100, 100
_MAX_UPLOAD = 500_000_000
"""Discord's own limit depends on the server; it says so itself."""
_THREAD = {"auto_archive_duration": 1440}
_FORUMS = frozenset({15, 16})
_STYLES = {"primary": 3, "danger": 4}
_NO_EMBEDS, _EPHEMERAL, _LOADING, _SILENT = 1 << 2, 1 << 6, 1 << 7, 1 << 12
_ORIGINAL = "/webhooks/{webhook_id}/{webhook_token}/messages/@original"
_MESSAGE = "/channels/{channel_id}/messages/{message_id}"
_NOT_HERE = "You cannot use this here."
Meanings = list[tuple[MessageWire, Heard | None]]
S = TypeVar("S", bound=Struct)


class Cursor(Marks, kw_only=True):
    people: dict[str, str] = field(default_factory=dict)
    """Person -> their private chat."""
    session: GatewaySession = GatewaySession()


class _Interaction(Struct):
    token: str
    deferred: asyncio.Event
    key: str | None = None
    """Of the piece that has its place; empty: none can have it any more."""


class DiscordAdapter:
    def __init__(
        self,
        settings: DiscordSettings,
        *,
        clock: Clock,
        rules: Callable[[], DiscordRules] | None = None,
    ) -> None:
        self._rules = rules or (lambda: settings)
        """Settings that may change while connected."""
        self._clock = clock
        self._api = DiscordApi(settings, clock)
        self._files = HttpClient("Discord", settings.base_url, proxy=settings.proxy)
        self._intake = MessageIntake(self._rules, self._answer)
        self._marks = Cursor(since=clock.now())
        self._history = CatchUp(self._marks, self._page, self._meaning, self._rules)
        self._bot = inbound.Bot(id="")
        self._channels: dict[str, ChannelWire] = {}
        self._interactions: Recent[_Interaction] = Recent()
        self._begun = False
        self._sink: port.InboundSink
        self._hand_over: HandOver

    @classmethod
    def configured(cls, request: port.AdapterRequest) -> "DiscordAdapter":
        rules = live_settings(PLATFORM, DiscordSettings, request.places)
        return cls(rules(), clock=request.clock, rules=rules)

    @property
    def account(self) -> str:
        return self._api.user_id

    async def connect(self) -> None:
        await self._api.open()
        self._bot.id = self._api.user_id

    async def close(self) -> None:
        await self._api.close()
        await self._files.close()

    # -- receiving -----------------------------------------------------------------------

    async def receive(self, sink: port.InboundSink) -> None:
        events: asyncio.Queue[Received] = asyncio.Queue()
        if (saved := await sink.cursor()) is not None:
            self._marks = self._history.marks = msgspec.convert(saved, Cursor)
        self._sink = sink
        async with self._intake.into(sink) as self._hand_over, together() as group:

            def arrived(event: Received) -> None:
                if event.name == "INTERACTION_CREATE":
                    group.create_task(self._interaction(event.data))
                else:
                    events.put_nowait(event)

            group.create_task(self._consume(events))
            await self._api.listen(sink, arrived, self._marks.session)

    async def _consume(self, events: asyncio.Queue[Received]) -> None:
        saved_at = 0.0
        async for batch in batches(events):
            meanings = [each for event in batch for each in await self._take(event)]
            addressed = await self._history.commit(meanings, self._hand_over)
            self._marks.session, now = batch[-1].session, self._clock.monotonic()
            if addressed or batch[0].name == "READY" or now - saved_at > _SAVE_SECONDS:
                await self._sink.save_cursor(msgspec.to_builtins(self._marks))
                saved_at = now

    async def _take(self, event: Received) -> Meanings:
        """Handle an event; return what it means if it is a message."""
        if event.name in PLACES:
            self._know(event.data)
        elif event.name == "GUILD_CREATE":
            await self._enter(event.data)
        elif event.name != "MESSAGE_CREATE":
            await self._begin(event)
        elif (message := _read(event.data, MessageWire)) is not None:
            await self._channel(message.channel_id, message.guild_id)
            await self._catch_up([message.channel_id])
            return await self._meaning(message.channel_id, [message])
        return []

    async def _meaning(self, place: str, messages: Sequence[MessageWire]) -> Meanings:
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
            elif channel.guild_id is None:
                self._marks.people[message.author.id] = place
            elif message.member is None and not message.webhook_id and not judge(item, rules):
                # A history does not tell what roles people have.
                names = (channel.guild_id, message.author.id)
                told = await self._asked("GET /guilds/{guild_id}/members/{user_id}", *names)
                member = _read(told, inbound.MemberWire) or inbound.MemberWire()
                sender = replace(item.message.sender, roles=member.roles)
                item = replace(item, message=replace(item.message, sender=sender))
            found.append((message, item if isinstance(item, Heard) else None))
        return found

    def _know(self, data: Any, guild_id: str | None = None) -> ChannelWire | None:
        """Remember a channel or thread as Discord describes it."""
        channel = _read(data, ChannelWire)
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
            self._know(told or {"id": channel_id, "type": 0 if guild_id else 1}, guild_id)
        return self._channels[channel_id]

    async def _asked(self, method: str, *ids: str, **more: Any) -> Any:
        """Ask for something until there is an answer; None if it cannot be had."""
        ask = partial(self._api.call, method, *ids, **more)
        try:
            return await Patience(self._clock).until_answered(ask, self._sink)
        except PlatformFailure as failure:
            if failure.action in PASSING:
                raise
            _LOG.info("%s", failure.message)
            return None

    async def _begin(self, event: Received) -> None:
        """Read up what was missed before a session; a resumed one brings its events itself."""
        first, self._begun = not self._begun, True
        if event.name == "READY":
            self._history.current.clear()
        elif not first:
            return
        marks, told = self._marks, event.data.get("private_channels") or ()
        people = sorted(self._rules().allowed_users - marks.people.keys())
        for person in [each for each in people if number(each)][:_MOST_PEOPLE]:
            opened = await self._asked("POST /users/@me/channels", body={"recipient_id": person})
            marks.people |= {person: str(opened["id"])} if opened else {}
        private = [*marks.people.values(), *(str(each["id"]) for each in told)]
        places = [await self._channel(each, None) for each in private]
        # The servers are told after READY; a session that another process began tells nothing.
        others = [] if event.name == "READY" else [e for e in marks.last if e not in self._channels]
        known = [
            self._know(await self._asked("GET /channels/{channel_id}", each)) for each in others
        ]
        await self._catch_up([each.id for each in (*places, *known) if each is not None])

    async def _enter(self, guild: Mapping[str, Any]) -> None:
        for each in guild.get("members") or ():
            member = _read(each, inbound.MemberWire)
            if member is not None and member.user is not None and member.user.id == self._bot.id:
                self._bot.roles.update(member.roles)
        told = [*(guild.get("channels") or ()), *(guild.get("threads") or ())]
        known = [self._know(data, str(guild.get("id"))) for data in told]
        await self._catch_up([e.id for e in known if e is not None and self._worth_reading(e)])

    def _worth_reading(self, channel: ChannelWire) -> bool:
        newest, since = channel.last_message_id, self._marks.since - SKEW
        lately = newest is None or inbound.time_of(newest) > since
        return channel.id in self._marks.last or (channel.type in _READABLE and lately)

    async def _catch_up(self, places: Sequence[str]) -> None:
        if self._rules().missed_message_backfill:
            await self._history.read(places, self._hand_over)

    async def _page(self, channel: str, after: str | None) -> list[MessageWire]:
        query = {"limit": 100} | ({"after": after} if after else {})
        page = await self._asked("GET /channels/{channel_id}/messages", channel, **query)
        return [message for each in page or () if (message := _read(each, MessageWire))]

    # -- interactions --------------------------------------------------------------------

    async def _interaction(self, data: Mapping[str, Any]) -> None:
        wire = _read(data, inbound.InteractionWire)
        if wire is None or wire.id in self._interactions:
            return
        channel = await self._channel(wire.channel_id, wire.guild_id)
        item = inbound.read_interaction(wire, channel, self._bot, self._clock.now())
        if isinstance(item, str):
            return
        mine = self._interactions[wire.id] = _Interaction(wire.token, asyncio.Event())
        taken = await self._hand_over([item])
        if isinstance(item, port.ButtonPress):
            return
        try:
            await self._reply(wire.id, {"type": 5} if taken else _privately(_NOT_HERE))
        except PlatformFailure as failure:
            _LOG.info("A slash command could not be deferred: %s", failure.message)
            mine.key = ""
        finally:
            mine.deferred.set()

    async def _answer(self, press: port.ButtonPress, text: str) -> None:
        """Let go of a pressed button; that it counts is shown in its message."""
        await self._reply(press.native_id, {"type": 6} if text == port.NOTED else _privately(text))

    async def _reply(self, interaction: str, answer: dict[str, Any]) -> None:
        names = (interaction, self._interactions[interaction].token)
        await self._api.call(
            "POST /interactions/{webhook_id}/{webhook_token}/callback", *names, body=answer
        )

    async def _in_place(
        self, note: Note, key: str, body: dict[str, Any], upload: Upload | None
    ) -> Sent | None:
        """Say something in the place of "is thinking…"; None if that is taken or over."""
        names, mine = (
            (self._api.application_id, note.token),
            self._interactions.get(note.interaction),
        )
        try:
            if mine is None:
                # It came to an earlier process, which may have said this already.
                now = await self._api.call(f"GET {_ORIGINAL}", *names)
                free = now.get("flags", 0) & _LOADING or now.get("content") == body.get("content")
                mine = _Interaction(note.token, asyncio.Event(), key if free else "")
                mine.deferred.set()
                self._interactions[note.interaction] = mine
            await mine.deferred.wait()
            mine.key = key if mine.key is None else mine.key
            if mine.key != key:
                return None
            data = await self._api.call(f"PATCH {_ORIGINAL}", *names, body=body, upload=upload)
        except PlatformFailure as failure:
            if failure.action in PASSING:
                raise
            return None
        return Sent(native_id=f"{data['channel_id']}:{data['id']}")

    # -- messages ------------------------------------------------------------------------

    async def send(self, outgoing: Outgoing) -> Sent:
        note, rules = read_note(outgoing.target.context), self._rules()
        body, upload = _content(outgoing), await self._upload(outgoing)
        if note.interaction and outgoing.key:
            sent = await self._in_place(note, outgoing.key, body, upload)
            if sent is not None:
                return sent
        channel = await self._place(outgoing.target, note)
        body |= {"nonce": _nonce(outgoing.key), "enforce_nonce": True}
        replied_channel, _, replied = (rules.replied_to(outgoing) or "").partition(":")
        if replied_channel == channel:
            body["message_reference"] = {"message_id": replied, "fail_if_not_exists": False}
        flags = _SILENT if rules.silent(outgoing) else 0
        flags |= _NO_EMBEDS if rules.disable_link_previews else 0
        body |= {"flags": flags} if flags else {}
        data = await self._api.call(SEND, channel, body=body, upload=upload)
        return Sent(native_id=f"{channel}:{data['id']}")

    async def edit(self, native_id: str, outgoing: Outgoing) -> None:
        """Make a message look like `outgoing`; without buttons there are none afterwards."""
        body = {"components": []} | _content(outgoing)
        await self._api.call(f"PATCH {_MESSAGE}", *native_id.split(":"), body=body)

    async def delete(self, target: Target, native_id: str) -> None:  # noqa: ARG002 - named by id
        try:
            await self._api.call(f"DELETE {_MESSAGE}", *native_id.split(":"))
        except PlatformFailure as failure:
            if failure.action is not FailureAction.SEND_NEW:
                raise

    async def typing(self, target: Target) -> None:
        """Show for ten seconds that something is being done."""
        if self._rules().typing_indicator:
            channel = await self._place(target, read_note(target.context))
            await self._api.call("POST /channels/{channel_id}/typing", channel)

    async def react(
        self,
        target: Target,  # noqa: ARG002 - the message is named by its id
        native_id: str,
        emoji: str,
    ) -> None:
        channel, _, message = native_id.partition(":")
        if not number(channel) or not self._rules().reactions:
            return
        own = f"{_MESSAGE}/reactions/{{emoji}}/@me"
        if emoji != _SEEN:
            # One reaction at a time: what was seen is done now.
            try:
                await self._api.call(f"DELETE {own}", channel, message, _SEEN)
            except PlatformFailure as failure:
                if failure.status != 404:
                    raise
        if emoji:
            await self._api.call(f"PUT {own}", channel, message, emoji)

    async def find_sent(self, outgoing: Outgoing, since: float) -> Sent | None:
        channel = outgoing.target.thread_id or outgoing.target.chat_id
        nonce, text = _nonce(outgoing.key), _content(outgoing).get("content")
        for data in reversed(
            await self._api.call("GET /channels/{channel_id}/messages", channel, limit=100)
        ):
            message = _read(data, MessageWire)
            if message is not None and message.author.id == self.account:
                ours = message.nonce == nonce or (text and message.content == text)
                if ours and message.sent_at >= since - SKEW:
                    return Sent(native_id=message.name)
        return None

    async def publish_commands(self, commands: Sequence[port.MenuCommand]) -> None:
        """Set the slash commands; a bot that may not have any works without."""
        named = menu_names(commands)
        self._bot.commands = {short: each.name for short, each in named.items()}
        if self._rules().command_sync_policy == "off":
            return
        menu, own = [_slash(*each) for each in named.items()], self._api.application_id
        try:
            await self._api.call(
                "PUT /applications/{application_id}/commands", own, body=menu[:_COMMANDS]
            )
        except PlatformFailure as failure:
            if failure.action is FailureAction.FATAL:
                raise
            _LOG.warning("The slash commands of Discord stay as they were: %s", failure.message)

    # -- threads ---------------------------------------------------------------------------

    async def _place(self, target: Target, note: Note) -> str:
        """Return the channel to write to; the thread that an answer opens is made now."""
        thread = target.thread_id
        if thread is None or not note.thread or thread in self._channels:
            return thread or target.chat_id
        body, place = {"name": clean_text(note.thread), **_THREAD}, (target.chat_id, thread)
        made: Any = {"id": thread, "type": 11, "parent_id": target.chat_id}
        try:
            made |= await self._api.call(f"POST {_MESSAGE}/threads", *place, body=body)
        except PlatformFailure as failure:
            if failure.action in PASSING:
                raise
            # 160004: it is there already.
            if not failure.description.startswith("160004"):
                _LOG.warning("No thread can be opened, so the channel is used: %s", failure)
                raise PlatformFailure(FailureAction.DROP_THREAD, failure.message) from None
        parent = self._channels.get(target.chat_id)
        self._know(made, parent.guild_id if parent is not None else None)
        return thread

    async def create_handoff_thread(self, target: Target, title: str) -> Target:
        """Open a thread in a channel; a private chat has none and is itself the address."""
        found = await self._api.call("GET /channels/{channel_id}", target.chat_id)
        if not found.get("guild_id"):
            return target
        name = one_line(clean_text(title), 100) or "Hermes"
        opening = {"message": {"content": name}} if found.get("type") in _FORUMS else {"type": 11}
        body = {"name": name, **_THREAD, **opening}
        made = await self._api.call(
            "POST /channels/{channel_id}/threads", target.chat_id, body=body
        )
        self._know(made, found["guild_id"])
        place = {"thread_id": str(made["id"]), "chat_kind": ChatKind.THREAD}
        return replace(target, **place, reply_to=None, context="")

    # -- files -------------------------------------------------------------------------------

    async def fetch(self, remote: str, target: Path) -> int:
        size, _, url = remote.partition(" ")
        limit = self._rules().max_attachment_bytes
        check_size(number(size), limit)
        return await self._files.download(HttpRequest(name="a file", url=url), target, limit)

    async def _upload(self, outgoing: Outgoing) -> Upload | None:
        if outgoing.attachment is None:
            return None
        path = Path(outgoing.attachment)
        content = await read_file(path, _MAX_UPLOAD)
        return Upload(field="files[0]", name=clean_text(path.name), content=content)


def _nonce(key: str) -> str:
    """Return what Discord knows a send by: at most 25 characters."""
    return hashlib.sha256(key.encode()).hexdigest()[:25] if key else secrets.token_hex(12)


def _privately(text: str) -> dict[str, Any]:
    return {"type": 4, "data": {"content": text, "flags": _EPHEMERAL}}


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
    described = {"name": name, "type": 1, "description": command.help[:_COMMAND_TEXT] or name}
    option = {"type": 3, "name": "text", "description": command.args[:_COMMAND_TEXT]}
    return described | ({"options": [option]} if command.args else {})


def _read(data: Any, wanted: type[S]) -> S | None:
    return None if data is None else decode_leniently(msgspec.json.encode(data), wanted)
