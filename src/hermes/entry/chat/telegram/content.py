"""What a message carries besides text: files to fetch, and things put into words."""

from msgspec import Struct

from hermes.entry.chat.telegram.wire import FileWire, MessageWire, Sticker

__all__ = ["RemoteFile", "described", "remote_files"]

_UNREADABLE = ("story", "game", "paid_media", "checklist", "invoice", "giveaway")
_STICKER_SUFFIX = "webp"


class RemoteFile(Struct, frozen=True, kw_only=True):
    """A file that Telegram keeps for us."""

    kind: str
    """`image`, `audio`, `voice`, `video` or `document`, as in `Attachment`."""
    file_id: str
    name: str
    media_type: str | None = None
    size: int | None = None


def remote_files(message: MessageWire) -> tuple[RemoteFile, ...]:
    """List the files of a message."""
    found: list[RemoteFile] = []
    if message.photo:
        largest = max(message.photo, key=lambda size: size.width * size.height)
        found.append(_file("image", largest, "photo.jpg", "image/jpeg"))
    if message.animation is not None:
        # Animations come a second time as `document`, for old clients.
        found.append(_file("video", message.animation, "animation.mp4", "video/mp4"))
    elif message.document is not None:
        found.append(_document(message.document))
    singles = (
        ("voice", message.voice, "voice.ogg", "audio/ogg"),
        ("audio", message.audio, "audio.mp3", "audio/mpeg"),
        ("video", message.video, "video.mp4", "video/mp4"),
        ("video", message.video_note, "video_note.mp4", "video/mp4"),
    )
    found.extend(_file(kind, wire, name, mime) for kind, wire, name, mime in singles if wire)
    if message.sticker is not None and _still(message.sticker):
        found.append(
            RemoteFile(
                kind="image",
                file_id=message.sticker.file_id,
                name=f"sticker.{_STICKER_SUFFIX}",
                media_type="image/webp",
                size=message.sticker.file_size,
            )
        )
    return tuple(found)


def described(message: MessageWire) -> str:
    """Put what is neither text nor a file into words."""
    if message.sticker is not None:
        return f"[Sticker {message.sticker.emoji or message.sticker.set_name}]".replace(" ]", "]")
    if message.venue is not None:
        spot = message.venue.location
        named = ", ".join(part for part in (message.venue.title, message.venue.address) if part)
        return f"[Place: {named} ({spot.latitude:.6f}, {spot.longitude:.6f})]"
    if message.location is not None:
        return f"[Location: {message.location.latitude:.6f}, {message.location.longitude:.6f}]"
    if message.contact is not None:
        contact = message.contact
        name = f"{contact.first_name} {contact.last_name}".strip()
        return f"[Contact: {name} {contact.phone_number}]"
    if message.poll is not None:
        options = " / ".join(option.text for option in message.poll.options)
        return f"[Poll: {message.poll.question} ({options})]"
    if message.dice is not None:
        return f"[Dice {message.dice.emoji}: {message.dice.value}]"
    for name in _UNREADABLE:
        if getattr(message, name) is not None:
            return f"[A {name.replace('_', ' ')}, which cannot be read here]"
    return ""


def _file(kind: str, wire: FileWire, name: str, media_type: str) -> RemoteFile:
    return RemoteFile(
        kind=kind,
        file_id=wire.file_id,
        name=wire.file_name or name,
        media_type=wire.mime_type or media_type,
        size=wire.file_size,
    )


def _document(wire: FileWire) -> RemoteFile:
    """Treat a picture that was sent uncompressed as a picture."""
    kind = "image" if wire.mime_type in {"image/jpeg", "image/png", "image/webp"} else "document"
    return RemoteFile(
        kind=kind,
        file_id=wire.file_id,
        name=wire.file_name or "document",
        media_type=wire.mime_type or None,
        size=wire.file_size,
    )


def _still(sticker: Sticker) -> bool:
    return not sticker.is_animated and not sticker.is_video
