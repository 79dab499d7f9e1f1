"""The descriptors between us and a child process."""

import asyncio
import errno
import os
import tempfile
import termios
from collections.abc import Callable
from typing import IO

from msgspec import Struct

_READ_SIZE = 65_536


class Ends(Struct, frozen=True, kw_only=True):
    """The child's ends, to be closed once it has them, and ours."""

    child_in: int
    child_out: int
    output: int
    input: int | None


def pipes(stdin: bytes | None, *, interactive: bool) -> Ends:
    """Return pipes; the input stays open (`interactive`), is `stdin`, or is empty."""
    child_in, ours = _stdin_for(stdin, interactive=interactive)
    output, child_out = os.pipe()
    return Ends(child_in=child_in, child_out=child_out, output=output, input=ours)


def terminal() -> Ends:
    """Return a new terminal; what we write is typed on it."""
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (40, 120))
    mode = termios.tcgetattr(theirs)
    mode[1] &= ~termios.ONLCR  # plain line feeds, as from a pipe
    termios.tcsetattr(theirs, termios.TCSANOW, mode)
    typing = os.dup(ours)
    os.set_blocking(typing, False)
    return Ends(child_in=theirs, child_out=os.dup(theirs), output=ours, input=typing)


class OutputPipe:
    """Reads a descriptor whenever there is something, until its end."""

    def __init__(self, fd: int, sink: Callable[[bytes], None]) -> None:
        self._fd = fd
        self._sink = sink
        self._loop = asyncio.get_running_loop()
        self.ended = asyncio.Event()
        os.set_blocking(fd, False)
        self._loop.add_reader(fd, self._read)

    def drain(self) -> None:
        """Read what is there, bounded because an heir may write for ever."""
        for _ in range(32):
            if self.ended.is_set() or not self._read():
                return

    def close(self) -> None:
        if not self.ended.is_set():
            self.ended.set()
            self._loop.remove_reader(self._fd)
            os.close(self._fd)

    def _read(self) -> bool:
        try:
            data = os.read(self._fd, _READ_SIZE)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno != errno.EIO:  # a terminal that everybody has left
                raise
            data = b""
        if not data:
            self.close()
            return False
        self._sink(data)
        return True


def close(*descriptors: int | None) -> None:
    for fd in descriptors:
        if fd is not None:
            os.close(fd)


async def writable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_writer(fd, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_writer(fd)


def _stdin_for(stdin: bytes | None, *, interactive: bool) -> tuple[int, int | None]:
    """Return the child's end of standard input, and ours if it stays open."""
    if interactive:
        theirs, ours = os.pipe()
        os.set_blocking(ours, False)
        return theirs, ours
    if stdin is None:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), None
    # An unnamed file instead of a pipe: nothing to feed, so nothing can stall.
    with _unnamed_file() as file:
        file.write(stdin)
        file.seek(0)
        return os.dup(file.fileno()), None


def _unnamed_file() -> IO[bytes]:
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("hermes-stdin"), "w+b")
    return tempfile.TemporaryFile()
