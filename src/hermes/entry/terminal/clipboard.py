"""The clipboard: pictures out of it, text into it.

A picture is read with whatever program the desktop has and kept in the cache
of the home. Text is put there by the terminal itself (OSC 52), which also
works over ssh.
"""

import asyncio
import base64
import shutil
from collections.abc import Mapping
from pathlib import Path

from hermes.domain.channel import Attachment
from hermes.domain.errors import NotFound, UsageError
from hermes.domain.ids import new_id
from hermes.entry.terminal.programs import RunProgram

__all__ = ["clipboard_image", "copy_sequence", "image_file", "image_type"]

MAX_IMAGE_BYTES = 20 * 1024 * 1024
MAX_COPY_BYTES = 100_000
MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png", ".png"),
    (b"\xff\xd8\xff", "image/jpeg", ".jpg"),
    (b"GIF8", "image/gif", ".gif"),
)


def image_type(data: bytes) -> tuple[str, str] | None:
    """Return (media type, suffix) of a picture; None if it is none that models take."""
    for magic, media_type, suffix in MAGIC:
        if data.startswith(magic):
            return media_type, suffix
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp", ".webp"
    return None


async def clipboard_image(
    environ: Mapping[str, str], cache_dir: Path, run: RunProgram
) -> Attachment:
    """Take the picture from the clipboard; explain if there is none or no way to it."""
    readers = _readers(environ)
    if not readers:
        raise NotFound(
            "The clipboard cannot be read here.",
            hint="Install wl-paste, xclip or pngpaste, or attach a file: /image PATH",
        )
    for argv in readers:
        result = await run(argv, environ=environ)
        if result is not None and result.code == 0 and result.output:
            return await asyncio.to_thread(_keep, result.output, cache_dir)
    raise NotFound(
        "There is no picture in the clipboard.", hint="A file can be attached with: /image PATH"
    )


def _readers(environ: Mapping[str, str]) -> list[tuple[str, ...]]:
    path = environ.get("PATH")
    readers: list[tuple[str, ...]] = []
    if environ.get("WAYLAND_DISPLAY") and shutil.which("wl-paste", path=path):
        readers.append(("wl-paste", "--no-newline", "--type", "image/png"))
    if environ.get("DISPLAY") and shutil.which("xclip", path=path):
        readers.append(("xclip", "-selection", "clipboard", "-t", "image/png", "-o"))
    if shutil.which("pngpaste", path=path):
        readers.append(("pngpaste", "-"))
    return readers


def _keep(data: bytes, cache_dir: Path) -> Attachment:
    kind = _checked(data, "The clipboard")
    folder = cache_dir / "images"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f"{new_id('clip')}{kind[1]}"
    path.touch(mode=0o600)
    path.write_bytes(data)
    return Attachment(
        kind="image", path=str(path), name=path.name, media_type=kind[0], size=len(data)
    )


async def image_file(name: str, cwd: Path) -> Attachment:
    """Attach a picture by its file name."""
    return await asyncio.to_thread(_image_file, name, cwd)


def _image_file(name: str, cwd: Path) -> Attachment:
    path = cwd / Path(name).expanduser()
    try:
        data = path.read_bytes()
    except OSError as error:
        raise NotFound(f"{path} cannot be read: {error.strerror}.") from error
    media_type, _ = _checked(data, str(path))
    return Attachment(
        kind="image", path=str(path), name=path.name, media_type=media_type, size=len(data)
    )


def _checked(data: bytes, where: str) -> tuple[str, str]:
    if len(data) > MAX_IMAGE_BYTES:
        raise UsageError(f"{where} holds more than {MAX_IMAGE_BYTES // 1024 // 1024} MB.")
    kind = image_type(data)
    if kind is None:
        raise UsageError(f"{where} holds no PNG, JPEG, GIF or WebP picture.")
    return kind


def copy_sequence(text: str) -> str:
    """Return the sequence that makes the terminal put `text` onto its clipboard."""
    data = text.encode()
    if len(data) > MAX_COPY_BYTES:
        raise UsageError(
            "That is too long for the clipboard of a terminal.", hint="/save writes it to a file."
        )
    return f"\x1b]52;c;{base64.b64encode(data).decode()}\x07"
