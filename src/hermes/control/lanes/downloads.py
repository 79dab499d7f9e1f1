"""Downloads: files of a committed message, fetched before its turn begins.

A message is in the inbox before its files are asked for, so a slow file holds up only its own
session. A file that cannot be fetched becomes a note in the text: the message itself is never
lost over it. Names on disk are made from the message's name, so a message that is taken up
again finds its files there. Short texts become part of the message.
"""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from hermes.domain.inbound import (
    INLINE_BYTES,
    Attachment,
    InboundMessage,
    plain_text,
    safe_name,
)
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.platform import FailureAction, FileSource, PlatformFailure
from hermes.domain.wording import one_line

_UNSAFE = re.compile(r"[^\w.-]+")
_AT_ONCE = 16
"""Files under way: few people with slow ones must not make the others wait."""
_PAUSES = (1.0, 3.0)
_LONGEST_PAUSE = 10.0
_RECONNECT_PAUSE = 0.5
Sources = Callable[[str, str], FileSource | None]
"""(platform, account) to the connected adapter, if it is there and has files."""


class Downloads:
    """Fetches files into one directory a platform."""

    def __init__(
        self, directory: Path, sources: Sources, clock: Clock, *, seconds: float = 60.0
    ) -> None:
        self._directory = directory
        self._sources = sources
        self._clock = clock
        self._seconds = seconds
        """How long the files of one message may hold it up."""
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def fetched(self, message: InboundMessage) -> InboundMessage:
        """Return the message with its files, or with a note for each that is missing."""
        if all(each.path or not each.remote for each in message.attachments):
            return message
        deadline = asyncio.get_running_loop().time() + self._seconds
        found: list[Attachment] = []
        notes: list[str] = []
        room = INLINE_BYTES
        for number, given in enumerate(message.attachments):
            each = replace(given, name=_shown_name(given.name))
            path = self._directory / message.platform / _file_name(message, number, each.name)
            try:
                async with asyncio.timeout_at(deadline):
                    size = await self._one(message, each, path)
            except TimeoutError:
                notes.append(_note(each, "it took too long"))
            except PlatformFailure as failure:
                notes.append(_note(each, failure.message))
            except OSError as error:
                notes.append(_note(each, error.strerror or str(error)))
            else:
                fits = each.kind == "document" and size <= room
                text = await asyncio.to_thread(_text, path) if fits else ""
                room -= size if text else 0
                found.append(replace(each, path=str(path), size=size, text=text))
        text = "\n".join(part for part in (message.text, *notes) if part)
        return replace(message, attachments=tuple(found), text=text)

    async def _one(self, message: InboundMessage, file: Attachment, path: Path) -> int:
        size = await asyncio.to_thread(_size_on_disk, path)
        if size is not None:
            return size
        async with self._slots:
            for pause in _PAUSES:
                try:
                    return await (await self._source(message)).fetch(file.remote, path)
                except PlatformFailure as failure:
                    if failure.action not in {FailureAction.RETRY, FailureAction.WAIT}:
                        raise
                    await self._clock.sleep(min(max(pause, failure.retry_after), _LONGEST_PAUSE))
            return await (await self._source(message)).fetch(file.remote, path)

    async def _source(self, message: InboundMessage) -> FileSource:
        """Return the adapter, waiting until it is connected."""
        while (source := self._sources(message.platform, message.account)) is None:
            await self._clock.sleep(_RECONNECT_PAUSE)
        return source


def _file_name(message: InboundMessage, number: int, name: str) -> str:
    """Make a name that stays inside its directory on every file system."""
    place = _UNSAFE.sub("_", message.native_id)[:80]
    return f"{place}_{number}_{safe_name(name)}"


def _shown_name(name: str) -> str:
    """Return a name that stays on its line and inside the brackets it is shown in."""
    plain = "".join(c if c.isprintable() and c not in "[]" else "_" for c in name)
    return one_line(plain, 80) or "file"


def _text(path: Path) -> str:
    """Return what is in a text file; nothing for other files."""
    try:
        return plain_text(path.read_bytes())
    except OSError:
        return ""


def _size_on_disk(path: Path) -> int | None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    return path.stat().st_size if path.is_file() else None


def _note(file: Attachment, reason: str) -> str:
    return f"[A file came with this message but could not be fetched: {file.name} ({reason})]"
