"""An update becomes an inbound message, a button press, or nothing, for a stated reason.

Pure: files are only described here and fetched by the adapter. A message is
named `<chat>:<message>` everywhere, because Telegram's message numbers are
unique only within a chat; the number of the update is a cursor, never a name.
"""

from collections.abc import Mapping

from msgspec import Struct, field

from hermes.domain.inbound import Chat, ChatKind, InboundMessage, ReplyRef, Sender
from hermes.domain.ports.platform import ButtonPress
from hermes.entry.chat.telegram.addressing import Addressing, address
from hermes.entry.chat.telegram.content import RemoteFile, described, remote_files
from hermes.entry.chat.telegram.mention import Spoken
from hermes.entry.chat.telegram.wire import (
    CallbackQuery,
    ChatWire,
    MessageWire,
    UpdateWire,
    User,
)

__all__ = [
    "GENERAL_TOPIC",
    "Bot",
    "Heard",
    "Ignored",
    "Pressed",
    "message_name",
    "message_number",
    "parse",
]

PLATFORM = "telegram"
GENERAL_TOPIC = "1"
_QUOTE_LENGTH = 4000
_KINDS = {
    "private": ChatKind.PRIVATE,
    "group": ChatKind.GROUP,
    "supergroup": ChatKind.GROUP,
    "channel": ChatKind.CHANNEL,
}


class Bot(Struct, frozen=True, kw_only=True):
    """Who we are."""

    id: int
    username: str = ""
    commands: Mapping[str, str] = field(default_factory=dict)
    """Names in Telegram's command menu, to ours where they differ."""


class Heard(Struct, frozen=True, kw_only=True):
    """A message, without its files."""

    message: InboundMessage
    spoken: Spoken
    files: tuple[RemoteFile, ...] = ()


class Pressed(Struct, frozen=True, kw_only=True):
    """A button press."""

    press: ButtonPress


class Ignored(Struct, frozen=True, kw_only=True):
    """Nothing for the agent."""

    reason: str


def message_name(chat_id: int | str, message_id: int) -> str:
    """Name a message across chats."""
    return f"{chat_id}:{message_id}"


def message_number(native_id: str) -> int | None:
    """Return Telegram's number of a message from its name, or None."""
    number = native_id.rpartition(":")[2]
    return int(number) if number.isascii() and number.isdigit() else None


def parse(update: UpdateWire, bot: Bot) -> Heard | Pressed | Ignored:
    """Say what an update means."""
    if update.callback_query is not None:
        return _press(update.callback_query, bot)
    message = update.message or update.channel_post
    if message is None:
        edited = update.edited_message or update.edited_channel_post
        return Ignored(reason="edit of an earlier message" if edited else "kind of update")
    return _message(message, bot)


def _message(message: MessageWire, bot: Bot) -> Heard | Ignored:
    kind = _KINDS.get(message.chat.type)
    if kind is None:
        return Ignored(reason=f"unknown kind of chat {message.chat.type!r}")
    if message.sender is not None and message.sender.id == bot.id:
        return Ignored(reason="our own message")
    sender = _sender(message)
    if sender is None:
        return Ignored(reason="no sender")
    addressing = address(message, bot.id, bot.username, bot.commands)
    if addressing.for_another_bot:
        return Ignored(reason="command for another bot")
    files = remote_files(message)
    text = "\n".join(part for part in (addressing.text, described(message)) if part)
    if not text and not files and not addressing.mentioned:
        return Ignored(reason="service message")
    thread = _thread(message)
    inbound = InboundMessage(
        platform=PLATFORM,
        account=str(bot.id),
        native_id=message_name(message.chat.id, message.message_id),
        chat=Chat(kind=kind, id=str(message.chat.id), name=message.chat.name or None),
        sender=sender,
        text=text,
        sent_at=message.date,
        thread_id=thread,
        reply_to=_reply(message, bot),
        group_id=message.media_group_id,
    )
    return Heard(message=inbound, spoken=_spoken(inbound, addressing), files=files)


def _spoken(inbound: InboundMessage, addressing: Addressing) -> Spoken:
    return Spoken(
        private=inbound.chat.kind is ChatKind.PRIVATE,
        chat_id=inbound.chat.id,
        thread_id=inbound.thread_id,
        text=inbound.text,
        mentioned=addressing.mentioned,
        replied_to=inbound.reply_to is not None and inbound.reply_to.own,
        command=addressing.command,
    )


def _thread(message: MessageWire) -> str | None:
    """Return the topic; outside topics the same field only marks a chain of replies."""
    if message.is_topic_message and message.message_thread_id is not None:
        return str(message.message_thread_id)
    return GENERAL_TOPIC if message.chat.is_forum else None


def _sender(message: MessageWire) -> Sender | None:
    """Return who speaks; for anonymous admins and channels that is the chat they speak as.

    Their `from` is one account that stands for all such people everywhere.
    """
    speaking_as = message.sender_chat
    if speaking_as is None and message.sender is None and message.chat.type == "channel":
        speaking_as = message.chat
    if speaking_as is not None:
        return _as_chat(speaking_as, message.author_signature)
    return None if message.sender is None else _person(message.sender)


def _person(user: User) -> Sender:
    return Sender(id=str(user.id), name=user.name or None, is_bot=user.is_bot)


def _as_chat(chat: ChatWire, signature: str) -> Sender:
    return Sender(id=str(chat.id), name=signature or chat.name or None)


def _reply(message: MessageWire, bot: Bot) -> ReplyRef | None:
    earlier = message.reply_to_message
    # In a topic every message formally replies to the one that opened it.
    if earlier is None or earlier.message_id == message.message_thread_id:
        return None
    quoted = message.quote.text if message.quote is not None else ""
    text = quoted or earlier.text or earlier.caption or described(earlier)
    return ReplyRef(
        native_id=message_name(message.chat.id, earlier.message_id),
        text=text[:_QUOTE_LENGTH] or None,
        sender=_sender(earlier),
        own=earlier.sender is not None and earlier.sender.id == bot.id,
    )


def _press(query: CallbackQuery, bot: Bot) -> Pressed | Ignored:
    message = query.message
    if message is None or not query.data:
        return Ignored(reason="button without a message of ours")
    return Pressed(
        press=ButtonPress(
            platform=PLATFORM,
            account=str(bot.id),
            native_id=query.id,
            chat_id=str(message.chat.id),
            thread_id=_thread(message),
            message_id=message_name(message.chat.id, message.message_id),
            user_id=str(query.sender.id),
            user_name=query.sender.name or None,
            data=query.data,
        )
    )
