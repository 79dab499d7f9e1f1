"""Pictures that come with HTTP requests, kept as files under the name of their content."""

import asyncio
import hashlib
from pathlib import Path

from hermes.agent.images import MAX_IMAGE_BYTES
from hermes.app.fetch import PageFetcher
from hermes.config.atomic import write_atomic
from hermes.domain.errors import HermesError, UsageError
from hermes.domain.inbound import Attachment

__all__ = [
    "PictureShelf",
    "read_attachment",
]


_ENDINGS = {"image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp"}


class PictureShelf:
    """Stores pictures below one directory."""

    def __init__(self, directory: Path, fetcher: PageFetcher | None = None) -> None:
        self._directory = directory
        self._fetcher = fetcher or PageFetcher()

    async def keep(self, data: bytes, media_type: str) -> Attachment:
        """Store a picture and return where it is."""
        kind = media_type.split(";", maxsplit=1)[0].strip().lower()
        if kind not in _ENDINGS:
            raise UsageError(f"Pictures of type {kind or 'unknown'} are not supported.")
        if not data or len(data) > MAX_IMAGE_BYTES:
            limit = MAX_IMAGE_BYTES // (1024 * 1024)
            raise UsageError(f"A picture must have between 1 byte and {limit} MB.")
        name = f"{hashlib.sha256(data).hexdigest()[:32]}.{_ENDINGS[kind]}"
        path = self._directory / name
        await asyncio.to_thread(_store, path, data)
        return Attachment(kind="image", path=str(path), name=name, media_type=kind, size=len(data))

    async def fetch(self, url: str) -> Attachment:
        """Fetch a picture from the public network and store it; `UsageError` if that fails."""
        try:
            media_type, data = await self._fetcher.data(url, MAX_IMAGE_BYTES)
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
