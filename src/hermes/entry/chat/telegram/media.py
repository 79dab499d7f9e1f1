"""Files that came with a message, on disk before the message is admitted.

A file that cannot be fetched becomes a note in the text: the message itself is
never lost over it. Names on disk are made from the message's name, so a message
that is delivered again finds its files there.
"""

import asyncio
import re
import shutil
from pathlib import Path

import msgspec

from hermes.domain.inbound import Attachment, InboundMessage
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.platform import FailureAction, PlatformFailure
from hermes.entry.chat.telegram.api import BotApi
from hermes.entry.chat.telegram.content import RemoteFile
from hermes.entry.chat.telegram.settings import TelegramSettings

__all__ = ["MediaStore"]

_UNSAFE = re.compile(r"[^\w.-]+")
_AT_ONCE = 4
_PAUSES = (1.0, 3.0)
_LONGEST_PAUSE = 10.0


class MediaStore:
    """Fetches files into one directory."""

    def __init__(
        self, api: BotApi, settings: TelegramSettings, directory: Path, clock: Clock
    ) -> None:
        self._api = api
        self._settings = settings
        self._directory = directory
        self._clock = clock
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def fetch(
        self, message: InboundMessage, files: tuple[RemoteFile, ...], deadline: float
    ) -> InboundMessage:
        """Return the message with its files, or with a note for each that is missing.

        What is not there at `deadline` (in the loop's time) is missing.
        """
        attachments: list[Attachment] = []
        notes: list[str] = []
        for number, file in enumerate(files):
            path = self._directory / _file_name(message.native_id, number, file.name)
            try:
                async with asyncio.timeout_at(deadline):
                    size = await self._one(file, path)
            except TimeoutError:
                notes.append(_note(file, "it took too long"))
                continue
            except (PlatformFailure, OSError) as failure:
                notes.append(_note(file, failure))
                continue
            attachments.append(
                Attachment(
                    kind=file.kind,
                    path=str(path),
                    name=file.name,
                    media_type=file.media_type,
                    size=size,
                )
            )
        text = "\n".join(part for part in (message.text, *notes) if part)
        return msgspec.structs.replace(message, attachments=tuple(attachments), text=text)

    async def _one(self, file: RemoteFile, path: Path) -> int:
        limit = self._settings.max_download_bytes
        if (file.size or 0) > limit:
            raise OSError(f"it is larger than {limit // 1_000_000} MB")
        size = await asyncio.to_thread(_size_on_disk, path)
        if size is not None:
            return size
        async with self._slots:
            return await self._patiently(file, path, limit)

    async def _patiently(self, file: RemoteFile, path: Path, limit: int) -> int:
        for pause in _PAUSES:
            try:
                return await self._download(file, path, limit)
            except PlatformFailure as failure:
                if failure.action not in {FailureAction.RETRY, FailureAction.WAIT}:
                    raise
                await self._clock.sleep(min(max(pause, failure.retry_after), _LONGEST_PAUSE))
        return await self._download(file, path, limit)

    async def _download(self, file: RemoteFile, path: Path, limit: int) -> int:
        info = await self._api.get_file(file.file_id)
        if (info.file_size or 0) > limit:
            raise OSError(f"it is larger than {limit // 1_000_000} MB")
        if self._settings.local_mode and info.file_path.startswith("/"):
            return await asyncio.to_thread(_copy, Path(info.file_path), path, limit)
        return await self._api.download(info.file_path, path, limit)


def _file_name(native_id: str, number: int, name: str) -> str:
    """Make a name that stays inside its directory on every file system."""
    place = native_id.replace(":", "_")
    safe = _UNSAFE.sub("_", Path(name.replace("\\", "/")).name).strip("._") or "file"
    stem, dot, suffix = safe.rpartition(".")
    if dot and len(suffix) <= 10:
        safe = f"{stem[:60]}.{suffix}"
    return f"{place}_{number}_{safe[:80]}"


def _size_on_disk(path: Path) -> int | None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    return path.stat().st_size if path.is_file() else None


def _copy(source: Path, target: Path, limit: int) -> int:
    size = source.stat().st_size
    if size > limit:
        raise OSError(f"it is larger than {limit // 1_000_000} MB")
    part = target.with_name(f"{target.name}.part")
    shutil.copyfile(source, part)
    part.replace(target)
    return size


def _note(file: RemoteFile, reason: object) -> str:
    if isinstance(reason, OSError):
        reason = reason.strerror or reason
    return f"[A file came with this message but could not be fetched: {file.name} ({reason})]"
