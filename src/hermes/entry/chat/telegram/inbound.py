"""An update becomes an inbound message, a button press, or nothing, for a stated reason.

Pure: files are named here and fetched after the commit. A message is named `<chat>:<message>`
everywhere, because Telegram's message numbers are unique only within a chat; the number of the
update is a cursor, never a name. Entities count in UTF-16 units, so text is cut as UTF-16.
"""

from collections.abc import Mapping

from msgspec import Struct, field

from hermes.domain.inbound import Attachment, Chat, ChatKind, InboundMessage, ReplyRef, Sender
from hermes.domain.ports.platform import ButtonPress
from hermes.entry.chat.kit.intake import Addressing, Heard, Span, read_addressing
from hermes.entry.chat.telegram.manifest import PLATFORM
from hermes.entry.chat.telegram.wire import CallbackQuery, FileWire, MessageWire, Party, UpdateWire

GENERAL_TOPIC = "1"
_QUOTE_LENGTH = 4000
_KINDS = {
    "private": ChatKind.PRIVATE,
    "group": ChatKind.GROUP,
    "supergroup": ChatKind.GROUP,
    "channel": ChatKind.CHANNEL,
}
_PICTURES = frozenset({"image/jpeg", "image/png", "image/webp"})
_UNREADABLE = ("story", "game", "paid_media", "checklist", "invoice", "giveaway")


class Bot(Struct, frozen=True, kw_only=True):
    id: int
    username: str = ""
    commands: Mapping[str, str] = field(default_factory=dict)
    """Names in Telegram's command menu, to ours where they differ."""


def message_name(chat_id: int | str, message_id: int) -> str:
    return f"{chat_id}:{message_id}"


def message_number(native_id: str) -> int | None:
    number = native_id.rpartition(":")[2]
    return int(number) if number.isascii() and number.isdigit() else None


def parse(update: UpdateWire, bot: Bot) -> Heard | ButtonPress | str:
    """Say what an update means; a text says why it means nothing to us."""
    if update.callback_query is not None:
        return _press(update.callback_query, bot)
    message = update.message or update.channel_post
    return _message(message, bot) if message is not None else "kind of update"


def _message(message: MessageWire, bot: Bot) -> Heard | str:
    if message.chat.type not in _KINDS:
        return f"unknown kind of chat {message.chat.type!r}"
    if message.sender is not None and message.sender.id == bot.id:
        return "our own message"
    sender = _sender(message)
    if sender is None:
        return "no sender"
    address = _address(message, bot)
    if address.for_another_bot:
        return "command for another bot"
    files = _files(message)
    text = "\n".join(part for part in (address.text, _described(message)) if part)
    if not text and not files and not address.mentioned:
        return "service message"
    inbound = InboundMessage(
        platform=PLATFORM.name,
        account=str(bot.id),
        native_id=message_name(message.chat.id, message.message_id),
        chat=_chat(message.chat),
        sender=sender,
        text=text,
        sent_at=message.date,
        thread_id=_thread(message),
        attachments=files,
        reply_to=_reply(message, bot),
        group_id=message.media_group_id,
    )
    return Heard(message=inbound, mentioned=address.mentioned, command=address.command)


def _press(query: CallbackQuery, bot: Bot) -> ButtonPress | str:
    message = query.message
    if message is None or not query.data:
        return "button without a message of ours"
    return ButtonPress(
        platform=PLATFORM.name,
        account=str(bot.id),
        native_id=query.id,
        chat=_chat(message.chat),
        message_id=message_name(message.chat.id, message.message_id),
        sender=_person(query.sender),
        data=query.data,
    )


# -- people and places ---------------------------------------------------------------


def _chat(chat: Party) -> Chat:
    kind = _KINDS.get(chat.type, ChatKind.GROUP)
    return Chat(kind=kind, id=str(chat.id), name=chat.name or None)


def _thread(message: MessageWire) -> str | None:
    """Return the topic; outside topics the same field only marks a chain of replies."""
    if message.is_topic_message and message.message_thread_id is not None:
        return str(message.message_thread_id)
    return GENERAL_TOPIC if message.chat.is_forum else None


def _sender(message: MessageWire) -> Sender | None:
    """Return who speaks; for anonymous admins and channels that is the chat they speak as."""
    speaking_as = message.sender_chat
    if speaking_as is None and message.sender is None and message.chat.type == "channel":
        speaking_as = message.chat
    if speaking_as is not None:
        name = message.author_signature or speaking_as.name or None
        # Only an administrator can speak as the chat itself.
        roles = ("administrator",) if speaking_as.id == message.chat.id else ()
        return Sender(id=str(speaking_as.id), name=name, roles=roles)
    return None if message.sender is None else _person(message.sender)


def _person(user: Party) -> Sender:
    return Sender(id=str(user.id), name=user.name or None, is_bot=user.is_bot)


def _reply(message: MessageWire, bot: Bot) -> ReplyRef | None:
    earlier = message.reply_to_message
    # In a topic every message formally replies to the one that opened it.
    if earlier is None or earlier.message_id == message.message_thread_id:
        return None
    quoted = message.quote.text if message.quote is not None else ""
    text = quoted or earlier.text or earlier.caption or _described(earlier)
    return ReplyRef(
        native_id=message_name(message.chat.id, earlier.message_id),
        text=text[:_QUOTE_LENGTH] or None,
        sender=_sender(earlier),
        own=earlier.sender is not None and earlier.sender.id == bot.id,
    )


# -- mentions and commands ---------------------------------------------------------------


def _address(message: MessageWire, bot: Bot) -> Addressing:
    entities = message.entities if message.text else message.caption_entities
    text = message.text or message.caption
    units = text.encode("utf-16-le", "replace")
    mentions: list[Span] = []
    for each in entities:
        start = max(each.offset, 0) * 2
        named = units[start : start + max(each.length, 0) * 2].decode("utf-16-le", "replace")
        us = each.user is not None and each.user.id == bot.id
        if each.type == "mention":
            us = bool(bot.username) and named.lower() == f"@{bot.username}".lower()
        if us and each.type in {"mention", "text_mention"}:
            at = len(units[:start].decode("utf-16-le", "replace"))
            mentions.append((at, at + len(named)))
    whole = units.decode("utf-16-le", "replace")
    return read_addressing(whole, mentions, username=bot.username, commands=bot.commands)


# -- what comes beside text ------------------------------------------------------------------


def _files(message: MessageWire) -> tuple[Attachment, ...]:
    photo = max(message.photo, key=lambda size: size.width * size.height, default=None)
    sticker = message.sticker
    if sticker is not None and (sticker.is_animated or sticker.is_video):
        sticker = None
    # A picture that was sent uncompressed is a picture. Animations come a second time as
    # `document`, for old clients.
    document = None if message.animation is not None else message.document
    picture = document is not None and document.mime_type in _PICTURES
    found: tuple[tuple[str, FileWire | None, str, str | None], ...] = (
        ("image", photo, "photo.jpg", "image/jpeg"),
        ("video", message.animation, "animation.mp4", "video/mp4"),
        ("image" if picture else "document", document, "document", None),
        ("voice", message.voice, "voice.ogg", "audio/ogg"),
        ("audio", message.audio, "audio.mp3", "audio/mpeg"),
        ("video", message.video, "video.mp4", "video/mp4"),
        ("video", message.video_note, "video_note.mp4", "video/mp4"),
        ("image", sticker, "sticker.webp", "image/webp"),
    )
    return tuple(
        Attachment(
            kind=kind,
            remote=file.file_id,
            name=file.file_name or name,
            media_type=file.mime_type or media_type,
            size=file.file_size,
        )
        for kind, file, name, media_type in found
        if file is not None
    )


def _described(message: MessageWire) -> str:
    if message.sticker is not None:
        return f"[Sticker {message.sticker.emoji or message.sticker.set_name}]".replace(" ]", "]")
    if message.venue is not None:
        spot = message.venue.location
        named = ", ".join(part for part in (message.venue.title, message.venue.address) if part)
        return f"[Place: {named} ({spot.latitude:.6f}, {spot.longitude:.6f})]"
    if message.location is not None:
        return f"[Location: {message.location.latitude:.6f}, {message.location.longitude:.6f}]"
    if message.contact is not None:
        return f"[Contact: {message.contact.name} {message.contact.phone_number}]"
    if message.poll is not None:
        options = " / ".join(option.text for option in message.poll.options)
        return f"[Poll: {message.poll.question} ({options})]"
    if message.dice is not None:
        return f"[Dice {message.dice.emoji}: {message.dice.value}]"
    for name in _UNREADABLE:
        if getattr(message, name) is not None:
            return f"[A {name.replace('_', ' ')}, which cannot be read here]"
    return ""
