"""Discord's side of the `Adapter` port.

Only what is truly Discord's: the shape of its calls, threads that are opened by their first
message, interactions that are answered in place. How events come in is told in `feed`, what a
failed call means in `wire`.

A slash command is deferred as soon as the inbox has it. The first thing that is said about it
takes the place of "is thinking…"; everything else, and everything after a quarter of an hour, is
an ordinary message. A send carries its key as a nonce, so that Discord shows it once.
"""

import asyncio
import hashlib
import logging
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hermes.domain.inbound import ChatKind
from hermes.domain.outbound import Target
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.platform import (
    NOTED,
    AdapterRequest,
    Button,
    ButtonPress,
    FailureAction,
    InboundSink,
    MenuCommand,
    Outgoing,
    PlatformFailure,
    Sent,
)
from hermes.domain.wording import clean_text, one_line
from hermes.entry.chat.discord.feed import SKEW, DiscordFeed
from hermes.entry.chat.discord.inbound import (
    InteractionWire,
    MessageWire,
    Note,
    number,
    read_note,
)
from hermes.entry.chat.discord.manifest import PLATFORM
from hermes.entry.chat.discord.settings import DiscordRules, DiscordSettings
from hermes.entry.chat.discord.wire import PASSING, SEND, DiscordApi
from hermes.entry.chat.kit.decode import decode_leniently
from hermes.entry.chat.kit.http import HttpClient, HttpRequest, Upload, check_size, read_file
from hermes.entry.chat.kit.intake import HandOver, Heard, MessageIntake, Recent, menu_names
from hermes.entry.chat.kit.settings import live_settings

_LOG = logging.getLogger(__name__)
_SEEN = "👀"
_COMMANDS, _COMMAND_TEXT = 100, 100
_MAX_UPLOAD = 500_000_000
"""Discord's own limit depends on the server; it says so itself."""
_THREAD = {"auto_archive_duration": 1440}
_FORUMS = frozenset({15, 16})
_STYLES = {"primary": 3, "danger": 4}
_NO_EMBEDS, _EPHEMERAL, _LOADING, _SILENT = 1 << 2, 1 << 6, 1 << 7, 1 << 12
_ORIGINAL = "/webhooks/{}/{}/messages/@original"
_MESSAGE = "/channels/{}/messages/{}"
_NOT_HERE = "You cannot use this here."


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
        self._api = DiscordApi(settings, clock)
        intake = MessageIntake(self._rules, self._answer)
        self._feed = DiscordFeed(self._api, self._rules, clock, intake, self._take)
        self._files = HttpClient("Discord", settings.base_url, proxy=settings.proxy)
        self._interactions: Recent[_Interaction] = Recent()

    @classmethod
    def configured(cls, request: AdapterRequest) -> "DiscordAdapter":
        rules = live_settings(PLATFORM, DiscordSettings, request.places)
        return cls(rules(), clock=request.clock, rules=rules)

    @property
    def account(self) -> str:
        return self._api.user_id

    async def connect(self) -> None:
        await self._api.open()
        self._feed.bot.id = self._api.user_id

    async def close(self) -> None:
        await self._api.close()
        await self._files.close()

    async def receive(self, sink: InboundSink) -> None:
        await self._feed.receive(sink)

    # -- interactions --------------------------------------------------------------------

    async def _take(
        self, wire: InteractionWire, item: Heard | ButtonPress, hand_over: HandOver
    ) -> None:
        if wire.id in self._interactions:
            return
        mine = self._interactions[wire.id] = _Interaction(wire.token, asyncio.Event())
        taken = await hand_over([item])
        if isinstance(item, ButtonPress):
            return
        try:
            await self._reply(wire.id, wire.token, {"type": 5} if taken else _privately(_NOT_HERE))
        except PlatformFailure as failure:
            _LOG.info("A slash command could not be deferred: %s", failure.message)
            mine.key = ""
        finally:
            mine.deferred.set()

    async def _answer(self, press: ButtonPress, text: str) -> None:
        """Let go of a pressed button; that it counts is shown in its message."""
        token = self._interactions[press.native_id].token
        answer = {"type": 6} if text == NOTED else _privately(text)
        await self._reply(press.native_id, token, answer)

    async def _reply(self, interaction: str, token: str, answer: dict[str, Any]) -> None:
        method = "POST /interactions/{}/{}/callback"
        await self._api.call(method, interaction, token, body=answer)

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
        channel = await self._channel(outgoing.target, note)
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
            channel = await self._channel(target, read_note(target.context))
            await self._api.call("POST /channels/{}/typing", channel)

    async def react(
        self,
        target: Target,  # noqa: ARG002 - the message is named by its id
        native_id: str,
        emoji: str,
    ) -> None:
        channel, _, message = native_id.partition(":")
        if not number(channel) or not self._rules().reactions:
            return
        own = f"{_MESSAGE}/reactions/{{}}/@me"
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
        for data in reversed(await self._api.call("GET /channels/{}/messages", channel, limit=100)):
            message = decode_leniently(msgspec.json.encode(data), MessageWire)
            if message is not None and message.author.id == self.account:
                ours = message.nonce == nonce or (text and message.content == text)
                if ours and message.sent_at >= since - SKEW:
                    return Sent(native_id=message.name)
        return None

    async def publish_commands(self, commands: Sequence[MenuCommand]) -> None:
        """Set the slash commands; a bot that may not have any works without."""
        named = menu_names(commands)
        self._feed.bot.commands = {short: each.name for short, each in named.items()}
        if self._rules().command_sync_policy == "off":
            return
        menu, own = [_slash(*each) for each in named.items()], self._api.application_id
        try:
            await self._api.call("PUT /applications/{}/commands", own, body=menu[:_COMMANDS])
        except PlatformFailure as failure:
            if failure.action is FailureAction.FATAL:
                raise
            _LOG.warning("The slash commands of Discord stay as they were: %s", failure.message)

    # -- threads ---------------------------------------------------------------------------

    async def _channel(self, target: Target, note: Note) -> str:
        """Return the channel to write to; the thread that an answer opens is made now."""
        thread = target.thread_id
        if thread is None or not note.thread or thread in self._feed.channels:
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
        parent = self._feed.channels.get(target.chat_id)
        self._feed.know(made, parent.guild_id if parent is not None else None)
        return thread

    async def create_handoff_thread(self, target: Target, title: str) -> Target:
        """Open a thread in a channel; a private chat has none and is itself the address."""
        found = await self._api.call("GET /channels/{}", target.chat_id)
        if not found.get("guild_id"):
            return target
        name = one_line(clean_text(title), 100) or "Hermes"
        opening = {"message": {"content": name}} if found.get("type") in _FORUMS else {"type": 11}
        body = {"name": name, **_THREAD, **opening}
        made = await self._api.call("POST /channels/{}/threads", target.chat_id, body=body)
        self._feed.know(made, found["guild_id"])
        place = {"thread_id": str(made["id"]), "chat_kind": ChatKind.THREAD}
        return replace(target, **place, reply_to=None, context="")

    # -- files -------------------------------------------------------------------------------

    async def fetch(self, remote: str, target: Path) -> int:
        place, _, url = remote.partition(" ")
        channel, message, file, size = place.split(":")
        limit = self._rules().max_attachment_bytes
        check_size(number(size), limit)
        try:
            return await self._files.download(HttpRequest(name="a file", url=url), target, limit)
        except PlatformFailure as failure:
            if failure.action is FailureAction.GIVE_UP:
                raise
        # The address may have run out; Discord gives a new one.
        found = await self._api.call(f"GET {_MESSAGE}", channel, message)
        urls = [each["url"] for each in found.get("attachments", ()) if each["id"] == file]
        again = HttpRequest(name="a file", url=(*urls, url)[0])
        return await self._files.download(again, target, limit)

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


def _button(button: Button) -> dict[str, Any]:
    shown = {"type": 2, "label": one_line(clean_text(button.label), 80)}
    if button.url:
        return shown | {"style": 5, "url": button.url}
    return shown | {"style": _STYLES.get(button.style, 2), "custom_id": button.data}


def _slash(name: str, command: MenuCommand) -> dict[str, Any]:
    described = {"name": name, "type": 1, "description": command.help[:_COMMAND_TEXT] or name}
    option = {"type": 3, "name": "text", "description": command.args[:_COMMAND_TEXT]}
    return described | ({"options": [option]} if command.args else {})
