"""Messages that belong together: split texts, albums, quick afterthoughts.

Chat clients split long texts and send albums as separate messages. What is
waiting in the inbox is grouped by who said it and how closely it came; a group
is complete when something else follows or nothing more has come for a moment.
The grouping depends only on what the ledger knows, so it survives a restart.
"""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from hermes.domain.inbound import REFERENCE, Attachment, ChatKind, InboundMessage, InboxEntry
from hermes.domain.messages import Content, FilePart, InputKind, Part, TextPart, UserMessage
from hermes.domain.turn import TurnOptions


class BatchWindow(Struct, frozen=True, kw_only=True):
    """How long to wait for more, in seconds."""

    seconds: float = 0.0
    long_seconds: float = 0.0
    """After a text that is nearly as long as a message may be: it was probably split."""
    long_length: int = 3_500
    album_seconds: float = 0.0


NO_BATCHING = BatchWindow()


def first_batch(
    entries: Sequence[InboxEntry], window: BatchWindow, now: float
) -> tuple[list[InboxEntry], float]:
    """Return the first group of `entries`, and how long to wait until it is complete."""
    batch = [entries[0]]
    for entry in entries[1:]:
        if not _belongs(batch[-1], entry, window):
            return batch, 0.0
        batch.append(entry)
    wait = batch[-1].admitted_at + _patience(batch[-1], window) - now
    return batch, max(wait, 0.0)


def _belongs(before: InboxEntry, entry: InboxEntry, window: BatchWindow) -> bool:
    one, other = before.message, entry.message
    if (one.account, one.sender.id) != (other.account, other.sender.id):
        return False  # each of our bots answers what was said to it
    if one.missed != other.missed:
        return False
    if _alone(before) or _alone(entry):
        return False
    if one.missed and one.group_id != other.group_id:
        return False
    patience = _patience(before, window)
    return patience > 0 and entry.admitted_at - before.admitted_at <= patience


def _alone(entry: InboxEntry) -> bool:
    return entry.message.internal or entry.message.text.startswith("/")


def _patience(entry: InboxEntry, window: BatchWindow) -> float:
    if _alone(entry):
        return 0.0
    if entry.message.group_id is not None:
        return window.album_seconds
    if len(entry.message.text) >= window.long_length:
        return window.long_seconds
    return 0.0 if entry.message.missed else window.seconds


QUOTE_CHARS = 300


def user_message(message: InboundMessage, kind: InputKind = InputKind.USER) -> UserMessage:
    return UserMessage(content=_content(_text(message), message.attachments), kind=kind)


def batch_inputs(entries: Sequence[InboxEntry]) -> tuple[UserMessage, ...]:
    """Turn messages that belong together into one input, naming the speaker where it matters.

    A message that only brings results of tool calls is no input.
    """
    first = entries[0]
    text = "\n".join(text for entry in entries if (text := _text(entry.message)))
    attachments = tuple(item for entry in entries for item in entry.message.attachments)
    if not text and not attachments and first.message.options is not None:
        return ()
    content, kind = _content(text, attachments), first.message.kind
    return (UserMessage(content=content, kind=kind, sender=_speaker(first)),)


def batch_options(entries: Sequence[InboxEntry]) -> TurnOptions:
    """Return what the messages of a turn ask of it: the first that asks for something."""
    asked = (entry.message.options for entry in entries)
    return next((options for options in asked if options is not None), TurnOptions())


def batch_entry(entries: Sequence[InboxEntry]) -> InboxEntry | None:
    """Return the entry that stands for a batch: its first, with all that was said around it."""
    if not entries:
        return None
    around = [entry.message.context for entry in entries if entry.message.context]
    first = entries[0]
    return replace(first, message=replace(first.message, context="\n".join(around)))


def is_shared(entry: InboxEntry) -> bool:
    """Tell whether several people speak in the session of a message."""
    sender = entry.message.sender
    private = entry.message.chat.kind is ChatKind.PRIVATE
    return not private and not entry.session_key.endswith(f":{sender.alt_id or sender.id}")


def _speaker(entry: InboxEntry) -> str | None:
    if not is_shared(entry) or entry.message.internal:
        return None
    return entry.message.sender.name or entry.message.sender.id


def _text(message: InboundMessage) -> str:
    quoted = message.reply_to
    if quoted is None or not quoted.text:
        return message.text
    who = "you" if quoted.own else (quoted.sender.name if quoted.sender else None) or "someone"
    excerpt = " ".join(quoted.text.split())[:QUOTE_CHARS]
    return f'[In reply to {who}: "{excerpt}"]\n{message.text}'


def _content(text: str, attachments: Sequence[Attachment]) -> Content:
    if not attachments:
        return text
    parts: list[Part] = [TextPart(text)] if text else []
    for item in attachments:
        if item.kind == REFERENCE:
            parts.append(TextPart(item.text, added=True))
            continue
        parts += attached(item)
    return tuple(parts)


def attached(item: Attachment) -> list[Part]:
    """Return a file as parts of a message: where it is, and what is in it if that is short."""
    file = FilePart(path=item.path, name=item.name, media_type=item.media_type, detail=item.detail)
    parts: list[Part] = [file]
    if item.text:
        parts.append(TextPart(f"[Content of {item.name}:]\n{item.text}\n[End of {item.name}]"))
    return parts
