"""The world around the chat: the terminal's state, signals, programs, editor, clipboard.

However the chat ends, the terminal is left as it was found: its settings are
taken before and put back after, and modes that the screen switches on
(bracketed paste, hidden cursor) are switched off again. SIGTERM and SIGHUP end
the chat in the ordinary way, so that this runs.
"""

import asyncio
import base64
import os
import shutil
import signal
import stat
import sys
import termios
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import click
from msgspec import Struct

from hermes.domain.errors import NotFound, UsageError
from hermes.domain.ids import new_id
from hermes.domain.inbound import ENDINGS, Attachment, image_type

RESET_MODES = "\x1b[0m\x1b[?25h\x1b[?7h\x1b[?2004l\x1b[?1l\x1b>"
"""Attributes, visible cursor, line wrap; no bracketed paste, normal cursor keys and keypad."""
SIGNALS = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def clean_terminal() -> Iterator[None]:
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        yield
    finally:
        # The terminal may be gone (SIGHUP): there is nothing to put back then.
        with suppress(OSError, ValueError):
            os.write(sys.stdout.fileno(), RESET_MODES.encode())
        with suppress(OSError, termios.error):
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


@contextmanager
def on_signals(handle: Callable[[int], None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, handle, int(number))
    try:
        yield
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)


SECONDS = 10.0
OUTPUT_BYTES = 25 * 1024 * 1024


class ProgramResult(Struct, frozen=True, kw_only=True):
    code: int
    output: bytes
    errors: str = ""


async def run_program(
    argv: Sequence[str], *, environ: Mapping[str, str], cwd: Path | None = None
) -> ProgramResult | None:
    """Run a program without a terminal, bounded in size and time; None if it cannot be run."""
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            cwd=cwd,
            env=dict(environ),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None
    try:
        async with asyncio.timeout(SECONDS):
            output, errors = await process.communicate()
    except TimeoutError:
        return None
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return ProgramResult(
        code=process.returncode or 0,
        output=output[:OUTPUT_BYTES],
        errors=errors.decode(errors="replace").strip(),
    )


async def edit(text: str, environ: Mapping[str, str]) -> str:
    """Let the person change `text` in the editor, which gets the terminal meanwhile."""
    editor = environ.get("VISUAL", "").strip() or environ.get("EDITOR", "").strip() or None
    try:
        written = await asyncio.to_thread(
            click.edit, text, editor=editor, env=environ, extension=".md", require_save=False
        )
    except click.ClickException as error:
        raise NotFound(
            f"The editor cannot be run: {error.message}.", hint="Set EDITOR to the one you use."
        ) from error
    return (written or "").rstrip("\n")


MAX_IMAGE_BYTES = 20 * 1024 * 1024
MAX_COPY_BYTES = 100_000


async def clipboard_image(environ: Mapping[str, str], cache_dir: Path) -> Attachment:
    readers = _readers(environ)
    if not readers:
        raise NotFound(
            "The clipboard cannot be read here.",
            hint="Install wl-paste, xclip or pngpaste, or attach a file: /image PATH",
        )
    for argv in readers:
        result = await run_program(argv, environ=environ)
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
    path = folder / f"{new_id('clip')}.{ENDINGS[kind]}"
    path.touch(mode=0o600)
    path.write_bytes(data)
    return Attachment(kind="image", path=str(path), name=path.name, media_type=kind, size=len(data))


async def image_file(name: str, cwd: Path) -> Attachment:
    return await asyncio.to_thread(_image_file, name, cwd)


def _image_file(name: str, cwd: Path) -> Attachment:
    path = cwd / Path(name).expanduser()
    try:
        data = read_regular(path, MAX_IMAGE_BYTES + 1)
    except OSError as error:
        raise NotFound(f"{path} cannot be read: {error.strerror}.") from error
    media_type = _checked(data, str(path))
    return Attachment(
        kind="image", path=str(path), name=path.name, media_type=media_type, size=len(data)
    )


def read_regular(path: Path, most: int) -> bytes:
    """Return the beginning of a file; a pipe or a device would be waited for, or never end."""
    unwaiting = os.O_NONBLOCK
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | unwaiting)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise UsageError("it is not a regular file.")
        return file.read(most)


def _checked(data: bytes, where: str) -> str:
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
