"""Slack's side of the `Adapter` port: one Socket Mode connection, a client for each workspace.

The workspace of a message goes along in its `reply_context` and comes back with everything that
answers it; where only a channel is known, the workspace that has the channel is asked for.
Slack sends nothing again under the same key, so every message carries its own in its metadata,
by which a send of unknown fate is found in the history.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from hermes.domain.outbound import Target
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.platform import (
    NOTED,
    AdapterRequest,
    ButtonPress,
    FailureAction,
    InboundSink,
    MenuCommand,
    Outgoing,
    PlatformFailure,
    Sent,
)
from hermes.domain.wording import clean_text
from hermes.entry.chat.kit.http import Effect, read_file
from hermes.entry.chat.kit.intake import HandOver, Heard, MessageIntake
from hermes.entry.chat.kit.settings import live_settings
from hermes.entry.chat.slack.inbound import Known, message_name, parse
from hermes.entry.chat.slack.manifest import PLATFORM
from hermes.entry.chat.slack.settings import SlackSettings
from hermes.entry.chat.slack.socket import receive_envelopes
from hermes.entry.chat.slack.wire import Envelope, SlackApi, Workspace, look

if TYPE_CHECKING:
    from aiohttp import ClientWebSocketResponse

_LOG = logging.getLogger(__name__)
_REACTIONS = {
    "👀": "eyes",
    "✅": "white_check_mark",
    "❌": "x",
    "👍": "thumbsup",
    "👎": "thumbsdown",
}
_SEEN = "eyes"
"""The reaction that another one takes the place of, also after a restart."""
_EVENT = "hermes_piece"
_PAGE, _PAGES = 200, 5
_CLOCKS = 60.0
"""Seconds that Slack's clock and ours may be apart."""
_MOST_THREADS = 500
_NAME_SECONDS = 1.0
_NO_CHANGE = "already_reacted no_reaction too_many_reactions message_not_found file_not_found"
"""What a call may be refused with whose effect is there already."""


class SlackAdapter:
    def __init__(
        self,
        settings: SlackSettings,
        *,
        clock: Clock,
        rules: Callable[[], SlackSettings] | None = None,
    ) -> None:
        self._settings = settings
        self._rules = rules or (lambda: settings)
        """Settings that may change while connected."""
        self._clock = clock
        self._api = SlackApi(settings)
        self._intake = MessageIntake(self._rules, self._answer)
        self._workspaces: Mapping[str, Workspace] = {}
        self._sockets: list[ClientWebSocketResponse] = []
        """The first connection: it shows whether the account works."""
        self._teams: dict[str, str] = {}
        """Channel -> the workspace it was seen in."""
        self._threads: OrderedDict[str, None] = OrderedDict()
        """The threads that we take part in; saved with the cursor."""
        self._names: dict[str, str | None] = {}
        self._commands: frozenset[str] = frozenset()
        self._reactions: dict[str, str] = {}
        """Message -> our reaction to it."""

    @classmethod
    def configured(cls, request: AdapterRequest) -> "SlackAdapter":
        rules = live_settings(PLATFORM, SlackSettings, request.places)
        return cls(rules(), clock=request.clock, rules=rules)

    @property
    def account(self) -> str:
        """The first workspace and who we are there."""
        first = next(iter(self._workspaces.values()), None)
        return "" if first is None else f"{first.team_id}-{first.user_id}"

    async def connect(self) -> None:
        self._workspaces = {each.team_id: each for each in await self._api.open()}
        self._sockets = [await self._api.socket()]

    async def close(self) -> None:
        while self._sockets:
            await self._sockets.pop().close()
        await self._api.close()

    async def publish_commands(self, commands: Sequence[MenuCommand]) -> None:
        """Know our commands; Slack's own menu is part of the app (`hermes slack manifest`)."""
        self._commands = frozenset(each.name for each in commands)

    # -- receiving -----------------------------------------------------------------------

    async def receive(self, sink: InboundSink) -> None:
        saved = await sink.cursor()
        threads = saved.get("threads", ()) if isinstance(saved, dict) else ()
        self._threads = OrderedDict.fromkeys(str(each) for each in threads)
        try:
            async with self._intake.into(sink) as hand_over:
                take = partial(self._take, hand_over, sink)
                await receive_envelopes(self._socket, self._clock, sink, take)
        except BaseExceptionGroup as group:
            # One reason is enough: what was not acknowledged comes again.
            raise _first(group) from None

    async def _socket(self) -> "ClientWebSocketResponse":
        return self._sockets.pop() if self._sockets else await self._api.socket()

    async def _take(
        self, hand_over: HandOver, sink: InboundSink, envelopes: Sequence[Envelope]
    ) -> None:
        """Hand a batch over; when this returns it may be acknowledged."""
        joined = list[str]()
        known = Known(
            account=self.account,
            workspaces=self._workspaces,
            settings=self._rules(),
            commands=self._commands,
            joined=lambda place: place in self._threads or place in joined,
            now=self._clock.now(),
        )
        items = list[Heard | ButtonPress]()
        for envelope in envelopes:
            if envelope.retry_attempt:
                _LOG.debug("Slack sends %s again: %s", envelope.type, envelope.retry_reason)
            item = parse(envelope, known)
            if isinstance(item, str):
                _LOG.debug("Ignored envelope %s: %s", envelope.envelope_id, item)
            elif isinstance(item, ButtonPress):
                # The inbox does not know presses again.
                items += [] if self._intake.has_seen(item.native_id) else [item]
                self._intake.seen(item.native_id)
            else:
                items.append(item)
                chat, thread = item.message.chat, item.message.thread_id
                self._teams[chat.id] = chat.scope_id or ""
                if thread and (item.mentioned or item.command or item.joined):
                    joined.append(message_name(chat.id, thread))
        await self._learn_names(items)
        await hand_over([self._named(item) for item in items])
        if any(place not in self._threads for place in joined):
            self._threads.update(OrderedDict.fromkeys(joined))
            while len(self._threads) > _MOST_THREADS:
                self._threads.popitem(last=False)
            await sink.save_cursor({"threads": list(self._threads)})

    async def _learn_names(self, items: Sequence[Heard | ButtonPress]) -> None:
        """Ask for the names of people who are new; nobody waits long for that."""
        heard = [each.message for each in items if isinstance(each, Heard)]
        strangers = {
            each.sender.id: self._workspaces[each.chat.scope_id or ""].client
            for each in heard
            if not (each.sender.name or each.sender.is_bot or each.sender.id in self._names)
        }

        async def learn(user: str, client: Any) -> None:
            self._names[user] = None
            with suppress(PlatformFailure):
                person = (await self._api.call(client, "users_info", {"user": user})).get(
                    "user"
                ) or {}
                names = (person.get("profile") or {}).get("display_name"), person.get("real_name")
                self._names[user] = names[0] or names[1] or person.get("name")

        with suppress(TimeoutError):
            async with asyncio.timeout(_NAME_SECONDS), asyncio.TaskGroup() as group:
                for user, client in strangers.items():
                    group.create_task(learn(user, client))

    def _named(self, item: Heard | ButtonPress) -> Heard | ButtonPress:
        if isinstance(item, ButtonPress) or item.message.sender.name:
            return item
        sender = replace(item.message.sender, name=self._names.get(item.message.sender.id))
        return replace(item, message=replace(item.message, sender=sender))

    async def _answer(self, press: ButtonPress, text: str) -> None:
        """Tell whoever pressed a button, and nobody else, why that did not count."""
        if text != NOTED:
            thread = press.native_id.partition(" ")[2]
            place = {"channel": press.chat.id, "user": press.sender.id}
            fields = place | ({"thread_ts": thread} if thread else {}) | {"text": text}
            client = self._workspaces[press.chat.scope_id or ""].client
            await self._api.call(client, "chat_postEphemeral", fields)

    # -- messages ----------------------------------------------------------------------

    async def send(self, outgoing: Outgoing) -> Sent:
        if outgoing.attachment is not None:
            return (await self.send_album([outgoing]))[0]
        target, rules = outgoing.target, self._rules()
        fields = _place(target, "channel") | look(outgoing, rich=rules.rich_blocks)
        fields |= {"unfurl_links": False, "unfurl_media": False}
        first = not outgoing.continues and not outgoing.aside
        if rules.reply_broadcast and first and target.thread_id is not None:
            fields["reply_broadcast"] = True
        if outgoing.key:
            fields["metadata"] = {"event_type": _EVENT, "event_payload": {"key": outgoing.key}}
        client = (await self._workspace(target)).client
        posted = await self._api.call(client, "chat_postMessage", fields, Effect.ONCE)
        return Sent(native_id=message_name(posted.get("channel") or target.chat_id, posted["ts"]))

    async def edit(self, native_id: str, outgoing: Outgoing) -> None:
        """Make a message look like `outgoing`; without buttons there are none afterwards."""
        if outgoing.attachment is None:
            shown = {"blocks": []} | look(outgoing, rich=self._rules().rich_blocks)
            shown.pop("mrkdwn", None)
            client = (await self._workspace(outgoing.target)).client
            await self._api.call(client, "chat_update", _existing(native_id, "ts") | shown)

    async def delete(self, target: Target, native_id: str) -> None:
        fields = _existing(native_id, "ts")
        client = (await self._workspace(target)).client
        if fields["ts"].startswith("F"):
            await self._attempt(client, "files_delete", {"file": fields["ts"]})
        else:
            await self._attempt(client, "chat_delete", fields)

    async def typing(self, target: Target) -> None:
        """Show a status line, which Slack has in threads only; it goes with the answer."""
        rules = self._rules()
        if target.thread_id is not None and rules.typing_indicator:
            fields = _place(target, "channel_id") | {"status": rules.typing_status_text}
            client = (await self._workspace(target)).client
            await self._api.call(client, "assistant_threads_setStatus", fields)

    async def react(self, target: Target, native_id: str, emoji: str) -> None:
        """React to a message; Slack would keep the earlier reaction beside it."""
        if not self._rules().reactions:
            return
        fields = _existing(native_id, "timestamp")
        client = (await self._workspace(target)).client
        name, earlier = _REACTIONS.get(emoji, ""), self._reactions.pop(native_id, _SEEN)
        if earlier != name:
            await self._attempt(client, "reactions_remove", fields | {"name": earlier})
        if name:
            await self._attempt(client, "reactions_add", fields | {"name": name})
            self._reactions[native_id] = name

    async def create_handoff_thread(self, target: Target, title: str) -> Target:
        """Open a thread with a message that everything else hangs under."""
        seed = replace(target, thread_id=None, reply_to=None)
        sent = await self.send(Outgoing(target=seed, plain=title))
        return replace(seed, thread_id=_existing(sent.native_id, "ts")["ts"])

    async def _attempt(self, client: Any, method: str, fields: Mapping[str, Any]) -> None:
        """Make a call that may be refused because there is nothing left to do."""
        try:
            await self._api.call(client, method, fields)
        except PlatformFailure as failure:
            if failure.description not in _NO_CHANGE.split():
                raise

    async def _workspace(self, target: Target) -> Workspace:
        """Return the workspace of a chat: as the message said, as seen, or as Slack says."""
        every = list(self._workspaces.values())
        for team in (target.context, self._teams.get(target.chat_id, "")):
            if team in self._workspaces:
                return self._workspaces[team]
        for each in every if len(every) > 1 else ():
            try:
                await self._api.call(each.client, "conversations_info", {"channel": target.chat_id})
            except PlatformFailure as failure:
                if failure.action is not FailureAction.GIVE_UP:
                    raise
            else:
                self._teams[target.chat_id] = each.team_id
                return each
        if not every:
            raise PlatformFailure(FailureAction.RETRY, "Slack is not connected yet.")
        return every[0]

    async def find_sent(self, outgoing: Outgoing, since: float) -> Sent | None:
        """Look for a piece in its thread or channel, by the key that it carries."""
        target = outgoing.target
        workspace = await self._workspace(target)
        fields = {"channel": target.chat_id, "limit": _PAGE, "include_all_metadata": True}
        method = "conversations_history"
        if target.thread_id is not None:
            method, fields["ts"] = "conversations_replies", target.thread_id
        for _ in range(_PAGES):
            page = await self._api.call(workspace.client, method, fields)
            for message in page.get("messages") or ():
                ours = message.get("user"), message.get("bot_id")
                ours = workspace.user_id == ours[0] or workspace.bot_id == ours[1]
                if ours and _is_piece(message, outgoing, since):
                    return Sent(native_id=message_name(target.chat_id, message["ts"]))
            fields["cursor"] = (page.get("response_metadata") or {}).get("next_cursor")
            if not fields["cursor"]:
                break
        return None

    # -- files ---------------------------------------------------------------------------

    async def fetch(self, remote: str, target: Path) -> int:
        team, file_id, media_type, url = (*remote.split(" ", 3), "", "", "")[:4]
        workspace = self._workspaces.get(team) or next(iter(self._workspaces.values()))
        if not url:
            # Files from other companies say only on request where they are.
            found = await self._api.call(workspace.client, "files_info", {"file": file_id})
            url = (found.get("file") or {}).get("url_private_download") or ""
        if not url:
            raise OSError("Slack does not say where it is")
        page = media_type == "text/html"
        return await self._api.download(workspace, url, target, pages=page)

    async def send_album(self, pieces: list[Outgoing]) -> list[Sent]:
        """Upload files, and show them as one message when all of them are there."""
        target, files = pieces[0].target, list[dict[str, str]]()
        workspace = await self._workspace(target)
        for piece in pieces:
            path = Path(piece.attachment or "")
            content = await read_file(path, self._settings.max_file_bytes)
            name = clean_text(path.name)
            file_id = await self._api.upload(workspace, name, content)
            files.append({"id": file_id, "title": name})
        fields = _place(target, "channel_id") | {"files": files}
        method = "files_completeUploadExternal"
        shared = await self._api.call(workspace.client, method, fields, Effect.ONCE)
        known = {each.get("id"): _shared_at(each) for each in shared.get("files") or ()}
        names = (known.get(each["id"]) or each["id"] for each in files)
        return [Sent(native_id=message_name(target.chat_id, name)) for name in names]


def _first(group: BaseExceptionGroup) -> BaseException:
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first


def _place(target: Target, channel: str) -> dict[str, Any]:
    thread = {} if target.thread_id is None else {"thread_ts": target.thread_id}
    return {channel: target.chat_id} | thread


def _existing(native_id: str, name: str) -> dict[str, Any]:
    channel, _, ts = native_id.rpartition(":")
    if not channel or not ts:
        message = f"{native_id!r} does not name a Slack message."
        raise PlatformFailure(FailureAction.SEND_NEW, message)
    return {"channel": channel, name: ts}


def _shared_at(file: Mapping[str, Any]) -> str | None:
    """Return the message that a file is shown in, where Slack says so already."""
    places = (file.get("shares") or {}).values()
    shares = (share for place in places for found in place.values() for share in found)
    return next((share.get("ts") for share in shares), None)


def _is_piece(message: Mapping[str, Any], outgoing: Outgoing, since: float) -> bool:
    """Tell whether a message of ours is that piece: by its key, or else by what it shows."""
    key = ((message.get("metadata") or {}).get("event_payload") or {}).get("key")
    if key or float(message.get("ts") or 0) < since - _CLOCKS:
        return bool(key) and key == outgoing.key
    if outgoing.attachment is None:
        return bool(message.get("text") == look(outgoing, rich=False)["text"])
    name = clean_text(Path(outgoing.attachment).name)
    return any(name in (file.get("name"), file.get("title")) for file in message.get("files") or ())
