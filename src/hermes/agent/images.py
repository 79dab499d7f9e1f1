"""Pictures that people send: shown to models with vision, named to others.

The history keeps the path of a picture; the encoded picture is made for each
call with the same bytes every time, so a provider's cache still matches.
"""

import asyncio
import base64
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from hermes.config.atomic import write_atomic
from hermes.domain.errors import HermesError, UsageError
from hermes.domain.inbound import ENDINGS, Attachment
from hermes.domain.messages import FilePart, ImagePart, Message, Part, TextPart, UserMessage

ReadAttachment = Callable[[str], Awaitable[bytes | None]]
"""Returns the bytes of a file that came with a message; None if it is gone."""

MAX_IMAGE_BYTES = 5_000_000
KEPT = 16


class ImageCache:
    """Encodes picture files for models; keeps the last few."""

    def __init__(self, read: ReadAttachment) -> None:
        self._read = read
        self._urls: OrderedDict[str, str | None] = OrderedDict()

    async def shown(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """Return the messages with pictures in place of picture files."""
        return tuple([await self._message(message) for message in messages])

    async def _message(self, message: Message) -> Message:
        if not isinstance(message, UserMessage) or isinstance(message.content, str):
            return message
        if not any(_is_picture(part) for part in message.content):
            return message
        parts: list[Part] = []
        for part in message.content:
            parts += await self._parts(part)
        return replace(message, content=tuple(parts))

    async def _parts(self, part: Part) -> list[Part]:
        if not isinstance(part, FilePart) or not _is_picture(part):
            return [part]
        url = await self._url(part)
        if url is None:
            return [part]
        name = TextPart(f"[picture {part.name}, stored at {part.path}]")
        return [ImagePart(url=url, media_type=part.media_type), name]

    async def _url(self, part: FilePart) -> str | None:
        if part.path not in self._urls:
            data = await self._read(part.path)
            fits = data is not None and 0 < len(data) <= MAX_IMAGE_BYTES
            encoded = base64.b64encode(data).decode() if data is not None and fits else None
            self._urls[part.path] = f"data:{part.media_type};base64,{encoded}" if encoded else None
            if len(self._urls) > KEPT:
                self._urls.popitem(last=False)
        return self._urls[part.path]


def _is_picture(part: Part) -> bool:
    return isinstance(part, FilePart) and part.media_type in ENDINGS


class PictureFiles:
    def __init__(
        self, directory: Path, fetch: Callable[[str, int], Awaitable[tuple[str, bytes]]]
    ) -> None:
        self._directory = directory
        self._fetch = fetch
        """(address, limit in bytes) -> media type and content."""

    async def keep(self, data: bytes, media_type: str) -> Attachment:
        kind = media_type.split(";", maxsplit=1)[0].strip().lower()
        if kind not in ENDINGS:
            raise UsageError(f"Pictures of type {kind or 'unknown'} are not supported.")
        if not data or len(data) > MAX_IMAGE_BYTES:
            limit = MAX_IMAGE_BYTES // (1024 * 1024)
            raise UsageError(f"A picture must have between 1 byte and {limit} MB.")
        name = f"{hashlib.sha256(data).hexdigest()[:32]}.{ENDINGS[kind]}"
        path = self._directory / name
        await asyncio.to_thread(_store, path, data)
        return Attachment(kind="image", path=str(path), name=name, media_type=kind, size=len(data))

    async def fetch(self, url: str) -> Attachment:
        """Fetch a picture from the public network and store it; `UsageError` if that fails."""
        try:
            media_type, data = await self._fetch(url, MAX_IMAGE_BYTES)
        except HermesError as error:
            raise UsageError(f"The picture could not be fetched: {error.message}") from error
        return await self.keep(data, media_type)


def _store(path: Path, data: bytes) -> None:
    if not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomic(path, data)


async def read_attachment(path: str) -> bytes | None:
    """Return the bytes of a stored attachment; None if it is gone or too big."""
    return await asyncio.to_thread(_read, Path(path))


def _read(path: Path) -> bytes | None:
    try:
        if not path.is_file() or path.stat().st_size > MAX_IMAGE_BYTES:
            return None
        return path.read_bytes()
    except OSError:
        return None
