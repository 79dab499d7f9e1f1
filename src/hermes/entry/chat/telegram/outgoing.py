"""Outgoing pieces as fields of Bot API calls."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hermes.domain.outbound import Target
from hermes.domain.ports.platform import Button, FailureAction, Outgoing, PlatformFailure
from hermes.entry.chat.telegram.parse import GENERAL_TOPIC, message_number
from hermes.entry.chat.telegram.settings import TelegramSettings
from hermes.entry.chat.telegram.transport import Upload

__all__ = ["Composer"]

_MAX_PHOTO = 10_000_000
_MAX_FILE = 50_000_000
_MAX_LOCAL_FILE = 2_000_000_000
_METHODS = {
    "image": ("sendPhoto", "photo"),
    "voice": ("sendVoice", "voice"),
    "audio": ("sendAudio", "audio"),
    "video": ("sendVideo", "video"),
    "document": ("sendDocument", "document"),
}
_SUFFIXES = {
    "image": frozenset({".jpg", ".jpeg", ".png", ".webp"}),
    "voice": frozenset({".ogg", ".oga", ".opus", ".mp3", ".m4a"}),
    "audio": frozenset({".mp3", ".m4a"}),
    "video": frozenset({".mp4"}),
}
"""What Telegram shows as such; everything else goes as a file."""


class Composer:
    """Writes the fields of calls."""

    def __init__(self, settings: TelegramSettings) -> None:
        self._settings = settings

    def text(self, outgoing: Outgoing) -> dict[str, Any]:
        """Return the fields of `sendMessage`."""
        fields = self._common(outgoing) | _formatted(outgoing, "text")
        return fields | self._previews()

    def edit(self, message_id: int, outgoing: Outgoing) -> tuple[str, dict[str, Any]]:
        """Return the method and the fields that make a message look like `outgoing`.

        Without buttons there is no keyboard afterwards.
        """
        fields: dict[str, Any] = {"chat_id": outgoing.target.chat_id, "message_id": message_id}
        fields |= _keyboard(outgoing.buttons)
        if outgoing.attachment is not None:
            return "editMessageCaption", fields | _formatted(outgoing, "caption")
        if not outgoing.text and not outgoing.plain:
            return "editMessageReplyMarkup", fields
        return "editMessageText", fields | _formatted(outgoing, "text") | self._previews()

    def typing(self, target: Target) -> dict[str, Any]:
        """Return the fields of `sendChatAction`; unlike sends it wants the General topic named."""
        fields: dict[str, Any] = {"chat_id": target.chat_id, "action": "typing"}
        if target.thread_id is not None:
            fields["message_thread_id"] = _thread_number(target.thread_id)
        return fields

    async def file(self, outgoing: Outgoing) -> tuple[str, dict[str, Any], Upload]:
        """Return method, fields and content for one file."""
        path = Path(outgoing.attachment or "")
        content = await self._read(path)
        kind = _shown_as(outgoing.attachment_kind, path, len(content))
        method, name = _METHODS[kind]
        fields = self._common(outgoing) | _formatted(outgoing, "caption")
        return method, fields, Upload(field=name, name=_writable(path.name), content=content)

    async def album(self, pieces: Sequence[Outgoing]) -> tuple[dict[str, Any], list[Upload]]:
        """Return the fields and contents of `sendMediaGroup`."""
        uploads: list[Upload] = []
        media: list[dict[str, Any]] = []
        for number, piece in enumerate(pieces):
            path = Path(piece.attachment or "")
            content = await self._read(path)
            kind = _shown_as(piece.attachment_kind, path, len(content))
            name = f"file{number}"
            uploads.append(Upload(field=name, name=_writable(path.name), content=content))
            shown = "photo" if kind == "image" else kind
            described = _formatted(piece, "caption") if number == 0 else {}
            media.append({"type": shown, "media": f"attach://{name}"} | described)
        return self._common(pieces[0]) | {"media": media}, uploads

    def _common(self, outgoing: Outgoing) -> dict[str, Any]:
        target = outgoing.target
        fields: dict[str, Any] = {"chat_id": target.chat_id}
        # Naming the General topic in a send is an error; leaving it out reaches it.
        if target.thread_id not in {None, GENERAL_TOPIC}:
            fields["message_thread_id"] = _thread_number(target.thread_id)
        replied = message_number(target.reply_to) if target.reply_to else None
        if replied is not None and self._settings.reply_to_mode != "off":
            fields["reply_parameters"] = {
                "message_id": replied,
                "allow_sending_without_reply": True,
            }
        if outgoing.silent:
            fields["disable_notification"] = True
        return fields | (_keyboard(outgoing.buttons) if outgoing.buttons else {})

    def _previews(self) -> dict[str, Any]:
        if self._settings.disable_link_previews:
            return {"link_preview_options": {"is_disabled": True}}
        return {}

    async def _read(self, path: Path) -> bytes:
        limit = _MAX_LOCAL_FILE if self._settings.local_mode else _MAX_FILE
        try:
            return await asyncio.to_thread(_content, path, limit)
        except OSError as error:
            raise PlatformFailure(
                FailureAction.GIVE_UP,
                f"{path.name} cannot be sent: {error.strerror or error}.",
            ) from None


def _content(path: Path, limit: int) -> bytes:
    size = path.stat().st_size
    if size > limit:
        raise OSError(f"it is larger than {limit // 1_000_000} MB")
    if size == 0:
        raise OSError("it is empty")
    return path.read_bytes()


def _shown_as(kind: str, path: Path, size: int) -> str:
    """Return the kind that Telegram will accept for this file."""
    suffixes = _SUFFIXES.get(kind)
    if suffixes is None or path.suffix.lower() not in suffixes:
        return "document"
    return "document" if kind == "image" and size > _MAX_PHOTO else kind


def _formatted(outgoing: Outgoing, name: str) -> dict[str, Any]:
    """Return the text with its markup, or the plain text where it has none.

    Text that equals its plain form either has no markup or is what remained after
    Telegram refused the markup; then a `<` in it is just that.
    """
    if outgoing.text and outgoing.text != outgoing.plain:
        return {name: _writable(outgoing.text), "parse_mode": "HTML"}
    return {name: _writable(outgoing.plain)} if outgoing.plain else {}


def _writable(text: str) -> str:
    """Replace half characters, which JSON cannot carry."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _keyboard(rows: Sequence[Sequence[Button]]) -> dict[str, Any]:
    keyboard = [
        [{"text": _writable(b.label), "callback_data": b.data} for b in row] for row in rows
    ]
    return {"reply_markup": {"inline_keyboard": keyboard}}


def _thread_number(thread_id: str | None) -> int:
    if thread_id is None or not thread_id.isascii() or not thread_id.isdigit():
        raise PlatformFailure(
            FailureAction.DROP_THREAD, f"{thread_id!r} does not name a Telegram topic."
        )
    return int(thread_id)
