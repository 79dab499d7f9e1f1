"""Pictures that people send: shown to models that can see, named to the others.

The history keeps where a picture lies; what is sent is made for each call and
the same bytes every time, so a provider's cache still fits.
"""

import base64
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence

from msgspec.structs import replace

from hermes.domain.messages import FilePart, ImagePart, Message, Part, TextPart, UserMessage

__all__ = ["MAX_IMAGE_BYTES", "ImageShelf", "ReadAttachment"]

ReadAttachment = Callable[[str], Awaitable[bytes | None]]
"""Returns the bytes of a file that came with a message; None if it is gone."""

MAX_IMAGE_BYTES = 5_000_000
KINDS = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
KEPT = 16


class ImageShelf:
    """Turns picture files into what a model can see; keeps the last few."""

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
    return isinstance(part, FilePart) and part.media_type in KINDS
