"""An envelope becomes an inbound message, a button press, or nothing, for a stated reason.

Pure: files are named here and fetched after the commit. A message is named `<channel>:<ts>`
everywhere; a mention in a channel comes twice, as `app_mention` and as `message`, with the same
`ts`, so both are the same message to the inbox. A timestamp is a text, never a number.

In channels the thread is the conversation: that of the message, or one that the answer opens.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from hermes.domain.inbound import Attachment, Chat, ChatKind, InboundMessage, Sender
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.platform import ButtonPress
from hermes.entry.chat.kit import intake
from hermes.entry.chat.kit.decode import texts_in
from hermes.entry.chat.kit.intake import Addressing, Heard, Recent, Span, read_addressing
from hermes.entry.chat.slack.manifest import PLATFORM
from hermes.entry.chat.slack.settings import SlackSettings
from hermes.entry.chat.slack.wire import SocketEnvelope, Workspace

OWN_COMMAND = "/hermes"
"""`/hermes status` is `/status`, and `/hermes whatever else` is said to the agent."""
_SUBTYPES = frozenset({"", "file_share", "thread_broadcast", "me_message", "bot_message"})
_MARKUP = re.compile(r"<(?P<token>[^<>\n]+)>|&(?P<entity>amp|lt|gt);")
_ENTITIES = {"amp": "&", "lt": "<", "gt": ">"}


class Known(Struct, kw_only=True):
    """What reading an envelope needs to know."""

    rules: Callable[[], SlackSettings]
    """Settings that may change while connected."""
    clock: Clock
    account: str = ""
    workspaces: Mapping[str, Workspace] = {}
    commands: Collection[str] = ()
    threads: Recent[None] = field(default_factory=lambda: Recent(500))
    """Those that we take part in, as `<channel>:<ts>`."""

    def workspace(self, *teams: str) -> Workspace | None:
        """Return the first of these that is ours, or the only one that there is."""
        found = [self.workspaces[team] for team in teams if team in self.workspaces]
        found += self.workspaces.values() if len(self.workspaces) == 1 else ()
        return found[0] if found else None


def message_name(channel: str, ts: str) -> str:
    return f"{channel}:{ts}"


def parse(envelope: SocketEnvelope, known: Known) -> Heard | ButtonPress | str:
    """Say what an envelope means; a text says why it means nothing to us."""
    read = {"events_api": _event, "slash_commands": _slash, "interactive": _press}
    reader = read.get(envelope.type)
    return reader(envelope.payload, known) if reader else f"kind of envelope {envelope.type!r}"


def _event(payload: Mapping[str, Any], known: Known) -> Heard | str:
    event = payload.get("event")
    kind, subtype, channel, ts, user, bot = texts_in(
        event, "type", "subtype", "channel", "ts", "user", "bot_id"
    )
    if kind not in ("message", "app_mention") or subtype not in _SUBTYPES or not channel or not ts:
        return f"kind of event {kind!r} {subtype!r}"
    granted = payload.get("authorizations")
    teams = [texts_in(each, "team_id")[0] for each in granted or () if isinstance(granted, list)]
    us = known.workspace(*texts_in(payload, "team_id"), *teams)
    if us is None or us.user_id == user or us.bot_id == bot:
        return "our own message, or a workspace that is not ours"
    address = _address(event, us, known.commands)
    files = tuple(_files(event, us.team_id))
    if not (user or bot) or not (address.text or files or address.mentioned):
        return "nothing said by anybody"
    chat = _chat(channel, us, *texts_in(event, "channel_type"))
    thread = _thread(event, chat, known.rules())
    parent, name = texts_in(event, "parent_user_id", "username")
    ours = parent == us.user_id or message_name(channel, thread or "") in known.threads
    inbound = InboundMessage(
        platform=PLATFORM.name,
        account=known.account,
        native_id=message_name(channel, ts),
        chat=chat,
        sender=Sender(id=user or bot, name=name or None, is_bot=bool(bot or "bot" in subtype)),
        text=address.text,
        sent_at=float(ts) if ts.replace(".", "", 1).isdecimal() else known.clock.now(),
        thread_id=thread,
        attachments=files,
        reply_context=us.team_id,
    )
    return Heard(
        message=inbound,
        mentioned=address.mentioned or kind == "app_mention",
        command=address.command,
        joined=thread is not None and ours and not known.rules().strict_mention,
    )


def _slash(payload: Mapping[str, Any], known: Known) -> Heard | str:
    name, rest, user, channel, team, trigger = texts_in(
        payload, "command", "text", "user_id", "channel_id", "team_id", "trigger_id"
    )
    us = known.workspace(team)
    if us is None or not channel or not user:
        return "slash command from elsewhere"
    name, rest = name.lower(), rest.strip()
    if name == OWN_COMMAND:
        first, _, after = (rest or "help").partition(" ")
        name = f"/{first.lower()}" if first.lower() in known.commands else ""
        rest = after if name else rest
    inbound = InboundMessage(
        platform=PLATFORM.name,
        account=known.account,
        native_id=message_name(channel, trigger or f"{known.clock.now():f}"),
        chat=_chat(channel, us),
        sender=Sender(id=user, name=texts_in(payload, "user_name")[0] or None),
        text=_readable(f"{name} {rest}".strip(), us)[0],
        sent_at=known.clock.now(),
        reply_context=f"{us.team_id} {user}",
    )
    return Heard(message=inbound, mentioned=True, command=bool(name), menu=True)


def _press(payload: Mapping[str, Any], known: Known) -> ButtonPress | str:
    held, actions = payload.get("container"), payload.get("actions")
    ts, channel, thread = texts_in(held, "message_ts", "channel_id", "thread_ts")
    channel = channel or texts_in(payload.get("channel"), "id")[0]
    ts = ts or texts_in(payload.get("message"), "ts")[0]
    user, name, username = texts_in(payload.get("user"), "id", "name", "username")
    us = known.workspace(*texts_in(payload.get("team"), "id"))
    action = actions[0] if isinstance(actions, list) and actions else None
    value, action_id, at, url = texts_in(action, "value", "action_id", "action_ts", "url")
    if us is None or not (channel and ts and user) or url or not (value or action_id):
        return "not a button on a message of ours"
    return ButtonPress(
        platform=PLATFORM.name,
        account=known.account,
        # The thread is where the answer to the press belongs.
        native_id=" ".join((thread, at, *texts_in(payload, "trigger_id"), user, value)),
        chat=_chat(channel, us),
        sender=Sender(id=user, name=name or username or None),
        message_id=message_name(channel, ts),
        data=value or action_id,
    )


def _chat(channel: str, us: Workspace, kind: str = "") -> Chat:
    private = kind == "im" or (not kind and channel.startswith("D"))
    kind_of_chat = ChatKind.PRIVATE if private else ChatKind.GROUP
    return Chat(kind=kind_of_chat, id=channel, scope_id=us.team_id)


def _thread(event: Any, chat: Chat, settings: SlackSettings) -> str | None:
    ts, thread = texts_in(event, "ts", "thread_ts")
    if thread and thread != ts:
        return thread
    private = chat.kind is ChatKind.PRIVATE
    opens = settings.dm_top_level_threads_as_sessions if private else settings.reply_in_thread
    return ts if opens else None


def _address(event: Any, us: Workspace, commands: Collection[str]) -> Addressing:
    """Read what was said, and whether to us; some messages have blocks and no text."""
    raw, blocks = texts_in(event, "text")[0], "".join(_said(event.get("blocks")))
    text, mentions = _readable(raw or blocks or "".join(_said(event.get("attachments"))), us)
    address = read_addressing(text, mentions, username="", commands={})
    address = replace(address, mentioned=address.mentioned or f"<@{us.user_id}>" in blocks)
    # Slack keeps a slash at the beginning for itself, and commands out of threads.
    head, _, rest = address.text.partition(" ")
    if head.startswith("!") and head[1:].lower() in commands:
        return replace(address, text=f"/{head[1:].lower()} {rest}".strip(), command=True)
    return address


def _readable(text: str, us: Workspace) -> tuple[str, list[Span]]:
    """Return a text without Slack's markup, and where it names us."""
    shown, mentions, end = "", list[Span](), 0
    for match in _MARKUP.finditer(text):
        shown, end = shown + text[end : match.start()], match.end()
        begin = len(shown)
        token = match["token"]
        shown += _ENTITIES[match["entity"]] if token is None else _token(token)
        if token is not None and token.partition("|")[0] == f"@{us.user_id}":
            mentions.append((begin, len(shown)))
    return shown + text[end:], mentions


def _token(token: str) -> str:
    """Return what `<…>` shows: a member, a channel, a group, or a link."""
    plain = _MARKUP.sub(lambda match: _ENTITIES[match["entity"]], token)
    target, _, label = plain.partition("|")
    if target[0] in "@#":
        return target[0] + (label or target[1:])
    if target[0] == "!":
        return label or "@" + target[1:].partition("^")[0]
    bare = target.removeprefix("mailto:").removeprefix("tel:")
    return f"{label} ({target})" if label and label not in (target, bare) else bare


def _said(blocks: Any) -> Iterator[str]:
    """Yield the text of blocks or attachments, in Slack's markup."""
    for block in blocks if isinstance(blocks, list) else ():
        kind, user, url, name, text = texts_in(block, "type", "user_id", "url", "name", "text")
        shapes = {"user": f"<@{user}>", "link": f"<{url}>", "emoji": f":{name}:"}
        inner = block.get("text") if isinstance(block, dict) else None
        yield shapes.get(kind) or text or texts_in(inner, "text")[0]
        if isinstance(block, dict):
            yield from _said(block.get("elements"))
            yield "\n" if kind.startswith("rich_text_") else ""


def utterance(message: Any, us: Workspace, names: Mapping[str, str]) -> intake.SaidBefore:
    user, bot, said = texts_in(message, "user", "bot_id", "text")
    text, mentions = _readable(said, us)
    own = us.user_id == user or us.bot_id == bot
    return intake.SaidBefore(names.get(user) or user or bot, text, own, bool(mentions))


def _files(event: Any, team_id: str) -> Iterator[Attachment]:
    files = event.get("files")
    for file in files if isinstance(files, list) else ():
        file_id, name, title, mode, media_type, subtype, url = texts_in(
            file, "id", "name", "title", "mode", "mimetype", "subtype", "url_private_download"
        )
        if not file_id or mode in ("tombstone", "hidden_by_limit"):
            continue
        media_type = media_type or "application/octet-stream"
        voice, size = subtype == "slack_audio", file.get("size")
        yield Attachment(
            kind=intake.file_kind(media_type, voice=voice),
            # A voice clip is sound in a container for films.
            media_type=media_type.replace("video/", "audio/") if voice else media_type,
            name=name or title or file_id,
            remote=f"{team_id} {file_id} {media_type} {url}".strip(),
            size=size if isinstance(size, int) else None,
        )
