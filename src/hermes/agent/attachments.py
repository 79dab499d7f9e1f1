"""Files that people send: pictures are shown, the others are where the tools find them.

The history keeps where a file is on this machine. Commands may run elsewhere, behind walls or on
another machine, so a model is told where its tools find the file (`Environment.received`), and
a copy is put there before the first tool of a turn runs; one that is gone by then is put back.
Pictures go to models with vision. All of this is made for each call with the same bytes every
time, so a provider's cache still matches.
"""

import asyncio
import base64
import hashlib
import logging
import posixpath
import shlex
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from hermes.config.atomic import write_atomic
from hermes.domain.errors import HermesError, UsageError
from hermes.domain.inbound import (
    ENDINGS,
    INLINE_BYTES,
    Attachment,
    image_type,
    plain_text,
    safe_name,
)
from hermes.domain.messages import FilePart, ImagePart, Message, Part, TextPart, UserMessage
from hermes.domain.ports.execution import Environment, ShellRun

log = logging.getLogger(__name__)

ReadAttachment = Callable[[str, int], Awaitable[bytes | None]]
"""(path, limit in bytes) -> a file that came with a message; None if it is gone or too big."""

MAX_IMAGE_BYTES = 5_000_000
MAX_FILE_BYTES = 128 * 1024 * 1024
KEPT = 16


class MessageFiles:
    """The files of a session's messages, for its model and its tools."""

    def __init__(
        self,
        read: ReadAttachment,
        environment: Callable[[], Awaitable[Environment]],
        described: Callable[[str, ImagePart], Awaitable[str]] | None = None,
    ) -> None:
        """`described` tells what is in a picture, for models that do not see."""
        self._read = read
        self._environment = environment
        self._described = described
        self._urls: OrderedDict[str, str | None] = OrderedDict()
        """Encoded pictures, the last few."""
        self._placed: set[str] = set()

    async def shown(self, messages: Sequence[Message], *, vision: bool) -> tuple[Message, ...]:
        """Return the messages with pictures, and with paths that are those of the tools."""
        return tuple([await self._message(message, vision=vision) for message in messages])

    async def place(self, messages: Sequence[Message]) -> None:
        """Put the files where tools look for them, unless they are there."""
        files = {part.path: part for message in messages for part in _files(message)}
        new = [part for path, part in files.items() if path not in self._placed]
        if not new:
            return
        self._placed.update(part.path for part in new)
        try:
            environment = await self._environment()
            wanted = {environment.received(part.path, part.name): part.path for part in new}
            wanted = {inside: path for inside, path in wanted.items() if inside != path}
            missing = set(wanted) - await environment.present(tuple(wanted)) if wanted else set()
            for folder in {posixpath.dirname(inside) for inside in missing}:
                # On a machine that others use nobody else may read it.
                script = f"umask 077; mkdir -p -- {shlex.quote(folder)}"
                await environment.run(ShellRun(script=script, cwd="/", timeout=30))
            for inside in sorted(missing):
                data = await self._read(wanted[inside], MAX_FILE_BYTES)
                if data is not None:
                    await environment.write(inside, data)
        except HermesError as error:  # the call that needs the file says that it is not there
            log.warning("files of messages are not where the tools run: %s", error.message)

    async def _message(self, message: Message, *, vision: bool) -> Message:
        if not any(_files(message)):
            return message
        assert isinstance(message, UserMessage)
        parts: list[Part] = []
        for part in message.content:
            assert not isinstance(part, str)
            parts += await self._parts(part, vision=vision)
        return (
            message if message.content == tuple(parts) else replace(message, content=tuple(parts))
        )

    async def _parts(self, part: Part, *, vision: bool) -> list[Part]:
        if not isinstance(part, FilePart):
            return [part]
        picture = part.media_type in ENDINGS
        url = await self._url(part) if picture and (vision or self._described) else None
        try:
            inside = (await self._environment()).received(part.path, part.name)
        except HermesError:
            inside = ""
        if url is not None:
            where = f", stored at {inside}" if inside else ""
            image = ImagePart(url=url, media_type=part.media_type, detail=part.detail)
            if vision:
                return [image, TextPart(f"[picture {part.name}{where}]")]
            if self._described and (told := await self._described(part.path, image)):
                return [TextPart(f"[picture {part.name}{where}; it shows: {told}]")]
        if not inside:
            return [TextPart(f"[file: {part.name}; tools cannot be used at the moment]")]
        return [part if inside == part.path else replace(part, path=inside)]

    async def _url(self, part: FilePart) -> str | None:
        if part.path not in self._urls:
            data = await self._read(part.path, MAX_IMAGE_BYTES)
            encoded = base64.b64encode(data).decode() if data else None
            self._urls[part.path] = f"data:{part.media_type};base64,{encoded}" if encoded else None
            if len(self._urls) > KEPT:
                self._urls.popitem(last=False)
        return self._urls[part.path]


def _files(message: Message) -> list[FilePart]:
    if not isinstance(message, UserMessage) or isinstance(message.content, str):
        return []
    return [part for part in message.content if isinstance(part, FilePart)]


class PictureFiles:
    def __init__(
        self, directory: Path, fetch: Callable[[str, int], Awaitable[tuple[str, bytes]]]
    ) -> None:
        self._directory = directory
        self._fetch = fetch
        """(address, limit in bytes) -> media type and content."""

    async def keep(self, data: bytes, media_type: str, name: str = "") -> Attachment:
        """Store a picture, or with a name any file."""
        kind = media_type.split(";", maxsplit=1)[0].strip().lower()
        if name and kind not in ENDINGS:
            return await self._keep_file(data, kind, name)
        if kind not in ENDINGS:
            raise UsageError(f"Pictures of type {kind or 'unknown'} are not supported.")
        if not data or len(data) > MAX_IMAGE_BYTES:
            limit = MAX_IMAGE_BYTES // (1024 * 1024)
            raise UsageError(f"A picture must have between 1 byte and {limit} MB.")
        name = f"{hashlib.sha256(data).hexdigest()[:32]}.{ENDINGS[kind]}"
        path = self._directory / name
        await asyncio.to_thread(_store, path, data)
        return Attachment(kind="image", path=str(path), name=name, media_type=kind, size=len(data))

    async def fetch(self, url: str, name: str = "") -> Attachment:
        """Fetch a picture, or with a name any file, and store it; `UsageError` if that fails."""
        try:
            media_type, data = await self._fetch(url, MAX_FILE_BYTES if name else MAX_IMAGE_BYTES)
        except HermesError as error:
            what = "file" if name else "picture"
            raise UsageError(f"The {what} could not be fetched: {error.message}") from error
        return await self.keep(data, image_type(data) or media_type, name)

    async def _keep_file(self, data: bytes, media_type: str, name: str) -> Attachment:
        shown = safe_name(name)
        path = self._directory / hashlib.sha256(data).hexdigest()[:32] / shown
        await asyncio.to_thread(_store, path, data)
        return Attachment(
            kind="document",
            path=str(path),
            name=shown,
            media_type=media_type or None,
            size=len(data),
            text=plain_text(data) if len(data) <= INLINE_BYTES else "",
        )


def _store(path: Path, data: bytes) -> None:
    if not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomic(path, data)


async def read_attachment(path: str, limit: int) -> bytes | None:
    return await asyncio.to_thread(_read, Path(path), limit)


def _read(path: Path, limit: int) -> bytes | None:
    try:
        if not path.is_file() or path.stat().st_size > limit:
            return None
        return path.read_bytes()
    except OSError:
        return None
