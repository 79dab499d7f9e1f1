"""Events of Discord become inbound messages, button presses, or nothing, for a stated reason.

A message is named `<channel>:<message>`, so that it can be found again, a slash command
`interaction:<id>`. A thread is a channel of its own on the wire; here it is a thread of the channel
that it hangs under, whose settings hold in it. One that is started from a message has its id: a
mention that will open a thread is in it from the beginning, and it is made with the first answer.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from hermes.domain.inbound import Attachment, Chat, ChatKind, InboundMessage, ReplyRef, Sender
from hermes.domain.ports.platform import ButtonPress
from hermes.domain.wording import one_line
from hermes.entry.chat.discord.manifest import PLATFORM
from hermes.entry.chat.discord.settings import DiscordRules
from hermes.entry.chat.kit.history import number
from hermes.entry.chat.kit.intake import Heard, SaidBefore, file_kind, judge, read_addressing

PRIVATE = 1
_SPOKEN = frozenset({0, 19})  # plain messages and replies
_THREADS, _WITH_THREADS = frozenset({10, 11, 12}), frozenset({0, 5})
_QUOTE_LENGTH, _NAME_LENGTH = 4000, 80
_VOICE = 1 << 13
_PERSON = re.compile(r"<@!?(\d+)>")
_COMMAND, _PRESS = 2, 3
THREAD, INTERACTION = "thread", "interaction"
"""Beginnings of a `reply_context`: `thread <name>` to be opened, `interaction <id> <token>`."""


class UserWire(Struct, frozen=True):
    id: str
    username: str = ""
    global_name: str | None = None
    bot: bool = False


class MemberWire(Struct, frozen=True):
    roles: tuple[str, ...] = ()
    nick: str | None = None
    user: UserWire | None = None


class ChannelWire(Struct, frozen=True):
    id: str
    type: int = 0
    name: str | None = None
    guild_id: str | None = None
    parent_id: str | None = None
    owner_id: str | None = None
    member: Any = None
    """There if we have joined the thread."""

    @property
    def is_thread(self) -> bool:
        return self.type in _THREADS and self.parent_id is not None


class PostWire(Struct, frozen=True):
    id: str
    channel_id: str
    author: UserWire
    member: MemberWire | None = None
    type: int = 0
    content: str = ""
    timestamp: str = ""
    flags: int = 0
    webhook_id: str | None = None
    nonce: str | int | None = None
    mentions: tuple[UserWire, ...] = ()
    mention_roles: tuple[str, ...] = ()
    attachments: tuple[dict[str, Any], ...] = ()
    sticker_items: tuple[dict[str, Any], ...] = ()
    message_snapshots: tuple[dict[str, Any], ...] = ()
    message_reference: dict[str, Any] | None = None
    referenced_message: "PostWire | None" = None

    @property
    def name(self) -> str:
        return f"{self.channel_id}:{self.id}"

    @property
    def sent_at(self) -> float:
        try:
            return datetime.fromisoformat(self.timestamp).timestamp()
        except ValueError:
            return time_of(self.id)


class InteractionWire(Struct, frozen=True):
    id: str
    type: int
    token: str
    channel_id: str
    data: dict[str, Any]
    guild_id: str | None = None
    member: MemberWire | None = None
    user: UserWire | None = None
    message: PostWire | None = None


class DiscordBot(Struct):
    id: str
    roles: set[str] = field(default_factory=set)
    commands: Mapping[str, str] = field(default_factory=dict)
    """Names in Discord's command menu, to ours where they differ."""


def time_of(snowflake: str) -> float:
    return ((number(snowflake) >> 22) + 1_420_070_400_000) / 1000


def read_message(
    message: PostWire, channel: ChannelWire, bot: DiscordBot, rules: DiscordRules, *, joined: bool
) -> Heard | str:
    """Say what a message means; a text says why it means nothing to us."""
    if message.author.id == bot.id:
        return "our own message"
    if message.type not in _SPOKEN:
        return "service message"
    if rules.ignored_chats & {channel.id, channel.parent_id}:
        return "ignored channel"
    forms = [rf"<@!?{bot.id}>", *(rf"<@&{role}>" for role in bot.roles & {*message.mention_roles})]
    spans = [found.span() for found in re.finditer("|".join(forms), message.content)]
    said = read_addressing(message.content, spans, username="", commands=bot.commands)
    mentioned = said.mentioned or any(user.id == bot.id for user in message.mentions)
    text = _text(message, said.text)
    files = tuple(_file(message, each) for each in message.attachments)
    if not text and not files and not mentioned:
        return "nothing in it"
    inbound = InboundMessage(
        platform=PLATFORM.name,
        account=bot.id,
        native_id=message.name,
        chat=_chat(channel),
        sender=_sender(message.author, message.member, is_bot=bool(message.webhook_id)),
        text=text,
        sent_at=message.sent_at,
        thread_id=channel.id if channel.is_thread else None,
        attachments=files,
        reply_to=_reply(message, bot),
    )
    heard = Heard(message=inbound, mentioned=mentioned, command=said.command, joined=joined)
    stays = channel.id in rules.no_thread_chats | rules.free_response_chats
    opens = rules.auto_thread and channel.guild_id and channel.type in _WITH_THREADS and not stays
    if not opens or said.command or message.message_reference or judge(heard, rules):
        return heard
    name = one_line(text, _NAME_LENGTH) or f"Talk with {inbound.sender.name}"
    chat, note = replace(inbound.chat, kind=ChatKind.THREAD, topic=name), f"{THREAD} {name}"
    inbound = replace(inbound, chat=chat, thread_id=message.id, reply_context=note)
    return replace(heard, message=inbound)


def read_interaction(
    interaction: InteractionWire, channel: ChannelWire, bot: DiscordBot, now: float
) -> Heard | ButtonPress | None:
    member, data = interaction.member, interaction.data
    user = (member.user if member is not None else None) or interaction.user
    if user is None:
        return None
    common: dict[str, Any] = {"platform": PLATFORM.name, "account": bot.id, "chat": _chat(channel)}
    common["sender"] = _sender(user, member)
    if interaction.type == _PRESS and interaction.message is not None:
        name, pressed = f"{channel.id}:{interaction.message.id}", str(data.get("custom_id", ""))
        return ButtonPress(native_id=interaction.id, message_id=name, data=pressed, **common)
    if interaction.type != _COMMAND:
        return None
    name = str(data.get("name", ""))
    words = [str(option.get("value", "")) for option in data.get("options") or ()]
    inbound = InboundMessage(
        native_id=f"interaction:{interaction.id}",
        text=" ".join([f"/{bot.commands.get(name, name)}", *words]),
        sent_at=now,
        thread_id=channel.id if channel.is_thread else None,
        reply_context=f"{INTERACTION} {interaction.id} {interaction.token}",
        **common,
    )
    return Heard(message=inbound, mentioned=True, command=True, menu=True)


def _chat(channel: ChannelWire) -> Chat:
    guild, parent = channel.guild_id, channel.parent_id
    if channel.is_thread and parent is not None:
        return Chat(kind=ChatKind.THREAD, id=parent, topic=channel.name, scope_id=guild)
    kind = ChatKind.PRIVATE if guild is None else ChatKind.GROUP
    return Chat(kind=kind, id=channel.id, name=channel.name, scope_id=guild)


def _sender(user: UserWire, member: MemberWire | None, *, is_bot: bool = False) -> Sender:
    name = (member.nick if member is not None else None) or user.global_name or user.username
    roles = member.roles if member is not None else ()
    return Sender(id=user.id, name=name or None, is_bot=user.bot or is_bot, roles=roles)


def _reply(message: PostWire, bot: DiscordBot) -> ReplyRef | None:
    reference, earlier = message.message_reference or {}, message.referenced_message
    if reference.get("type", 0) != 0 or not reference.get("message_id"):
        return None
    name = f"{reference.get('channel_id') or message.channel_id}:{reference['message_id']}"
    if earlier is None:
        return ReplyRef(native_id=name)
    text = _text(earlier, earlier.content)[:_QUOTE_LENGTH] or None
    own = earlier.author.id == bot.id
    return ReplyRef(native_id=name, text=text, sender=_sender(earlier.author, None), own=own)


def _text(message: PostWire, said: str) -> str:
    """Return what a message says, with mentions of others as names."""
    names = {user.id: user.global_name or user.username for user in message.mentions}
    text = _PERSON.sub(lambda found: f"@{names.get(found[1]) or found[1]}", said)
    stickers = [f"[Sticker {each.get('name')}]" for each in message.sticker_items]
    shots = [each.get("message") or {} for each in message.message_snapshots]
    forwarded = [f"[Forwarded] {each.get('content', '')}" for each in shots]
    return "\n".join(part for part in (text, *stickers, *forwarded) if part)


def utterance(message: PostWire, bot: DiscordBot) -> SaidBefore:
    author, text = message.author, _text(message, message.content)
    to_us = any(user.id == bot.id for user in message.mentions)
    return SaidBefore(author.global_name or author.username, text, author.id == bot.id, to_us)


def _file(message: PostWire, file: Mapping[str, Any]) -> Attachment:
    media_type, size = str(file.get("content_type") or "").partition(";")[0], file.get("size") or 0
    return Attachment(
        kind=file_kind(media_type, voice=bool(message.flags & _VOICE)),
        remote=f"{size} {file.get('url')}",
        name=str(file.get("filename") or "file"),
        media_type=media_type or None,
        size=size,
    )
