"""Slack's side of the `Adapter` port: one Socket Mode connection, a client for each workspace.

The workspace of a message goes along in its `reply_context` and comes back with everything that
answers it; where only a channel is known, the workspace that has the channel is asked for.
Slack sends nothing again under the same key, so every message carries its own in its metadata,
by which a send of unknown fate is found in the history.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from hermes.domain.inbound import InboundMessage
from hermes.domain.outbound import Target
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
from hermes.entry.chat.kit.base import ChatAdapter
from hermes.entry.chat.kit.decode import texts_in
from hermes.entry.chat.kit.http import Effect, read_upload
from hermes.entry.chat.kit.intake import HandOver, Heard, Recent, named, surroundings, thread_title
from hermes.entry.chat.slack.inbound import Known, message_name, parse, utterance
from hermes.entry.chat.slack.settings import SlackSettings
from hermes.entry.chat.slack.socket import receive_envelopes
from hermes.entry.chat.slack.wire import Fields, SlackApi, SocketEnvelope, Workspace, look

_LOG = logging.getLogger(__name__)
_REACTIONS = {"👀": "eyes", "✅": "white_check_mark", "❌": "x"}
_PAGE, _PAGES, _BACKLOG = 200, 5, 2.0
_CLOCKS = 60.0  # seconds that Slack's clock and ours may be apart
# What a call may be refused with whose effect is there already.
_NO_CHANGE = "already_reacted no_reaction too_many_reactions message_not_found file_not_found"


class SlackAdapter(ChatAdapter[SlackSettings]):
    def __init__(self, rules: Callable[[], SlackSettings], request: AdapterRequest) -> None:
        super().__init__(rules, request)
        self._known = Known(rules=rules, clock=request.clock)
        self._api = SlackApi(rules())
        self._since = 0  # when the last connection was made
        self._sockets: list[Any] = []  # the first one shows whether the account works
        self._teams: Recent[str] = Recent(10_000)  # channel -> the workspace it was seen in
        self._names: Recent[str] = Recent(10_000)

    @property
    def account(self) -> str:
        """The first workspace and who we are there."""
        return self._known.account

    async def connect(self) -> None:
        found = await self._api.open()
        self._known.account = f"{found[0].team_id}-{found[0].user_id}"
        self._known.workspaces = {each.team_id: each for each in found}
        self._sockets = [await self._api.socket()]

    async def close(self) -> None:
        while self._sockets:
            await self._sockets.pop().close()
        await self._api.close()

    async def publish_commands(self, commands: Sequence[MenuCommand]) -> None:
        """Know our commands; Slack's own menu is part of the app (`hermes slack manifest`)."""
        self._known.commands = {each.name for each in commands}

    async def receive(self, sink: InboundSink) -> None:
        saved = await sink.cursor()
        for thread in saved.get("threads", ()) if isinstance(saved, dict) else ():
            self._known.threads[thread] = None
        async with self._intake.into(sink) as hand_over:
            take = partial(self._take, hand_over, sink)
            await receive_envelopes(self._socket, self._known.clock, sink, take)

    async def _socket(self) -> Any:
        socket = self._sockets.pop() if self._sockets else await self._api.socket()
        self._since = int(self._clock.now())
        return socket

    async def _take(
        self, hand_over: HandOver, sink: InboundSink, envelopes: Sequence[SocketEnvelope]
    ) -> None:
        """Hand a batch over; when this returns it may be acknowledged."""
        items, threads = list[Heard | ButtonPress](), self._known.threads
        before = set(threads)
        for envelope in envelopes:
            item, again = parse(envelope, self._known), envelope.retry_attempt or 0
            if isinstance(item, str):
                _LOG.debug("Ignored %s (retry %s): %s", envelope.envelope_id, again, item)
            elif isinstance(item, ButtonPress):
                # The inbox does not know presses again.
                items += [] if self._intake.has_seen(item.native_id) else [item]
                self._intake.seen(item.native_id)
            else:
                # A new connection brings at once what was said before it.
                waited = item.message.sent_at < self._since > self._clock.now() - _BACKLOG
                items.append(replace(item, missed=waited or again > 0))
                chat, thread = item.message.chat, item.message.thread_id
                self._teams[chat.id] = chat.scope_id or ""
                if thread and (item.mentioned or item.command or item.joined):
                    threads[message_name(chat.id, thread)] = None
        await hand_over(await named(items, self._names, self._name))
        if set(threads) != before:
            await sink.save_cursor({"threads": list(threads)})

    async def _name(self, message: InboundMessage) -> str:
        client = self._known.workspaces[message.chat.scope_id or ""].client
        found = await self._api.call(client, "users_info", {"user": message.sender.id})
        person = found.get("user") or {}
        shown = texts_in(person.get("profile"), "display_name")
        return next(filter(None, (*shown, *texts_in(person, "real_name", "name"))), "")

    async def _answer(self, asked: ButtonPress | InboundMessage, text: str) -> None:
        """Tell whoever pressed a button or used a command why that did not count."""
        if text == NOTED:
            return
        thread = asked.native_id.partition(" ")[0] if isinstance(asked, ButtonPress) else None
        user, chat = asked.sender.id, asked.chat
        target = Target(
            platform=asked.platform,
            account=asked.account,
            chat_id=chat.id,
            thread_id=thread or None,
            context=f"{chat.scope_id} {user}",
        )
        fields = {"user": user, "text": text}
        try:
            await self._call(target, "chat_postEphemeral", _place(target, "channel") | fields)
        except PlatformFailure as failure:
            if failure.moved_to is None:
                raise
            await self._call(target, "chat_postMessage", {"channel": user, "text": text})

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
            payload = {"key": outgoing.key}
            fields["metadata"] = {"event_type": "hermes_piece", "event_payload": payload}
        posted = await self._call(target, "chat_postMessage", fields, Effect.ONCE)
        return Sent(native_id=message_name(posted.get("channel") or target.chat_id, posted["ts"]))

    async def edit(self, native_id: str, outgoing: Outgoing) -> None:
        """Make a message look like `outgoing`; without buttons there are none afterwards."""
        if outgoing.attachment is None:
            shown = {"blocks": []} | look(outgoing, rich=self._rules().rich_blocks)
            shown.pop("mrkdwn", None)
            await self._call(outgoing.target, "chat_update", _existing(native_id, "ts") | shown)

    async def delete(self, target: Target, native_id: str) -> None:
        fields = _existing(native_id, "ts")
        if fields["ts"].startswith("F"):
            await self._attempt(target, "files_delete", {"file": fields["ts"]})
        else:
            await self._attempt(target, "chat_delete", fields)

    async def typing(self, target: Target) -> None:
        """Show a status line, which Slack has in threads only; it goes with the answer."""
        rules = self._rules()
        if target.thread_id is not None and rules.typing_indicator:
            fields = _place(target, "channel_id") | {"status": rules.typing_status_text}
            await self._call(target, "assistant_threads_setStatus", fields)

    async def _react(self, target: Target, native_id: str, emoji: str, *, there: bool) -> None:
        if name := _REACTIONS.get(emoji):
            fields = _existing(native_id, "timestamp") | {"name": name}
            await self._attempt(target, f"reactions_{'add' if there else 'remove'}", fields)

    async def create_handoff_thread(self, target: Target, title: str) -> Target:
        """Open a thread with a message that everything else hangs under."""
        seed = replace(target, thread_id=None, reply_to=None)
        sent = await self.send(Outgoing(target=seed, plain=thread_title(title)))
        return replace(seed, thread_id=_existing(sent.native_id, "ts")["ts"])

    async def _call(
        self, target: Target, method: str, fields: Fields, effect: Effect = Effect.REPEATABLE
    ) -> Fields:
        client = (await self._workspace(target)).client
        try:
            return await self._api.call(client, method, fields, effect)
        except PlatformFailure as failure:
            # A slash command works where the app is no member; it is answered in private then.
            if failure.description in ("not_in_channel", "channel_not_found"):
                failure.moved_to = target.context.partition(" ")[2] or None
            raise

    async def _attempt(self, target: Target, method: str, fields: Fields) -> None:
        """Make a call that may be refused because there is nothing left to do."""
        try:
            await self._call(target, method, fields)
        except PlatformFailure as failure:
            if failure.description not in _NO_CHANGE.split():
                raise

    async def _workspace(self, target: Target) -> Workspace:
        """Return the workspace of a chat: as the message said, as seen, or as Slack says."""
        known = self._known.workspace(*target.context.split(), self._teams.get(target.chat_id, ""))
        if known is not None:
            return known
        for each in self._known.workspaces.values():
            try:
                await self._api.call(each.client, "conversations_info", {"channel": target.chat_id})
            except PlatformFailure as failure:
                if failure.action is not FailureAction.GIVE_UP:
                    raise
            else:
                self._teams[target.chat_id] = each.team_id
                return each
        message = f"No Slack workspace has the channel {target.chat_id}."
        raise PlatformFailure(FailureAction.GIVE_UP, message)

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
                user, bot, ts = texts_in(message, "user", "bot_id", "ts")
                ours = user == workspace.user_id or bot == workspace.bot_id
                if ours and _is_piece(message, outgoing, since):
                    return Sent(native_id=message_name(target.chat_id, ts))
            (fields["cursor"],) = texts_in(page.get("response_metadata"), "next_cursor")
            if not fields["cursor"]:
                break
        return None

    async def said_before(self, message: InboundMessage) -> list[str]:
        channel, _, ts = message.native_id.rpartition(":")
        most, us = self._rules().history_backfill, self._known.workspace(message.reply_context)
        if most < 1 or message.thread_id in (None, ts) or us is None:
            return []
        fields = {"channel": channel, "ts": message.thread_id, "latest": ts, "limit": _PAGE}
        page = await self._api.call(us.client, "conversations_replies", fields)
        said = [each for each in page.get("messages") or () if texts_in(each, "ts") != (ts,)]
        return surroundings(utterance(each, us, self._names) for each in said)[-most:]

    async def fetch(self, remote: str, target: Path) -> int:
        team, file_id, media_type, url = (*remote.split(" ", 3), "", "", "")[:4]
        workspace = self._known.workspace(team)
        if workspace is None:
            raise OSError("it is from a workspace that is not ours any more")
        if not url:
            # Files from other companies say only on request where they are.
            found = await self._api.call(workspace.client, "files_info", {"file": file_id})
            (url,) = texts_in(found.get("file"), "url_private_download")
        if not url:
            raise OSError("Slack does not say where it is")
        return await self._api.download(workspace, url, target, pages=media_type == "text/html")

    async def send_album(self, pieces: list[Outgoing]) -> list[Sent]:
        """Upload files, and show them as one message when all of them are there."""
        target, files = pieces[0].target, list[dict[str, str]]()
        workspace = await self._workspace(target)
        for piece in pieces:
            upload = await read_upload(piece.attachment, self._rules().max_file_bytes)
            file_id = await self._api.upload(workspace, upload.name, upload.content)
            files.append({"id": file_id, "title": upload.name})
        fields = _place(target, "channel_id") | {"files": files}
        await self._call(target, "files_completeUploadExternal", fields, Effect.ONCE)
        # Slack does not say which message shows them; the file itself is a name, too.
        return [Sent(native_id=message_name(target.chat_id, each["id"])) for each in files]


def _place(target: Target, channel: str) -> dict[str, Any]:
    thread = {} if target.thread_id is None else {"thread_ts": target.thread_id}
    return {channel: target.chat_id} | thread


def _existing(native_id: str, name: str) -> dict[str, Any]:
    channel, _, ts = native_id.rpartition(":")
    if not channel or not ts:
        message = f"{native_id!r} does not name a Slack message."
        raise PlatformFailure(FailureAction.SEND_NEW, message)
    return {"channel": channel, name: ts}


def _is_piece(message: Fields, outgoing: Outgoing, since: float) -> bool:
    """Tell whether a message of ours is that piece: by its key, or else by what it shows."""
    key = ((message.get("metadata") or {}).get("event_payload") or {}).get("key")
    if key:
        return bool(key == outgoing.key)
    # An answer comes after its question, whatever our clock says.
    asked = (outgoing.target.reply_to or "").rpartition(":")[2]
    earliest = float(asked) if asked.replace(".", "", 1).isdecimal() else since - _CLOCKS
    if float(message.get("ts") or 0) < earliest:
        return False
    if outgoing.attachment is None:
        return bool(message.get("text") == look(outgoing, rich=False)["text"])
    name = clean_text(Path(outgoing.attachment).name)
    return any(name in texts_in(file, "name", "title") for file in message.get("files") or ())
