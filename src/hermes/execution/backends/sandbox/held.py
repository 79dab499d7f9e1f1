"""Copies of what the guard has held, where no command reaches, and which of it nobody was told yet.

What is held may be what the person saved while something ran inside. It stays beside its
place as `*.held`, but there commands can change or delete it, and the next one takes its name.
So it is copied first. What was held is noted until it was told, so that the next Hermes on
the project tells it if this one is killed. The same content is kept once.
"""

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from msgspec import Struct

from hermes.execution.backends.sandbox.later import change_mode, reached

_UNTOLD = ".untold"
_MOST = 8 << 20
"""Bytes that are copied in one look."""
_FILES = 1000
_LEFT_OUT = b"*.held\n*.held-*\n"
_LONGEST_LIST = 1 << 16
_DEEP = 20


class Held(Struct, frozen=True):
    """Something that was renamed."""

    name: str
    """Its path in the project, printable."""
    mark: str
    """The folder of its copy."""
    kept: bool = False
    """There is a copy."""
    again: bool = False
    """It was held before and has come back: something in the sandbox puts it there."""


def listed(away: Iterable[Held], most: int) -> str:
    """Name each path once, with its copies."""
    copies: dict[str, list[str]] = {}
    for held in dict.fromkeys(away):
        marks = copies.setdefault(held.name, [])
        marks += [held.mark] * (held.kept and held.mark not in marks)
    names = [
        f"{name} (cop{'y' if len(marks) == 1 else 'ies'} {', '.join(marks)})" if marks else name
        for name, marks in copies.items()
    ]
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


class Copies:
    """What was held in one project, by whichever sandbox."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._room = _MOST

    def make_room(self) -> None:
        """Begin another look."""
        self._room = _MOST

    def announce(self, name: str) -> Held:
        """Note that something is about to be renamed."""
        held = Held(name=name, mark=hashlib.sha256(name.encode()).hexdigest()[:10])
        with contextlib.suppress(OSError):  # a full disk does not let anything stay
            self._note(held)
        return held

    def keep(self, directory: int, at: str, held: Held) -> Held:
        """Copy what has been renamed, if that is not too much."""
        try:
            parts, size = [], 0
            for path, content in _parts(directory, at, Path(held.name).name):
                parts.append((path, content))
                size += len(content)
                if len(parts) > _FILES or size > self._room:
                    return held
            digest = hashlib.sha256(repr((held.name, parts)).encode()).hexdigest()
            copy = Held(name=held.name, mark=digest[:10], kept=True)
            (self._folder / copy.mark).mkdir(mode=0o700, exist_ok=True)
            for path, content in parts:
                file = self._folder / copy.mark / path
                file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
                with os.fdopen(os.open(file, flags, 0o600), "wb") as opened:
                    opened.write(content)
            self._note(copy)
        except OSError:
            return held
        self._room -= size
        self.forget([held])
        return copy

    def untold(self) -> list[Held]:
        found = []
        for note in sorted(self._folder.glob(f"*{_UNTOLD}")):
            with contextlib.suppress(OSError):
                kept = (self._folder / note.stem).is_dir()
                name = note.read_text(encoding="utf-8", errors="replace")
                found.append(Held(name=name, mark=note.stem, kept=kept))
        return found

    def forget(self, told: Iterable[Held]) -> None:
        """Have no more to tell of it; copies stay."""
        for held in told:
            with contextlib.suppress(OSError):
                (self._folder / f"{held.mark}{_UNTOLD}").unlink(missing_ok=True)

    def _note(self, held: Held) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self._folder / f"{held.mark}{_UNTOLD}").write_text(held.name, encoding="utf-8")


def _parts(directory: int, name: str, called: str, deep: int = 0) -> Iterator[tuple[str, bytes]]:
    """Return the files of something in an open folder, or itself; of a link where it leads."""
    status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    if stat.S_ISLNK(status.st_mode):
        yield called, os.fsencode(os.readlink(name, dir_fd=directory))
    elif stat.S_ISREG(status.st_mode):
        _make_readable(directory, name, status, stat.S_IRUSR)
        with os.fdopen(os.open(name, flags, dir_fd=directory), "rb") as file:
            yield called, file.read(_MOST + 1)
    elif stat.S_ISDIR(status.st_mode):
        if deep == _DEEP:
            raise OSError("too many folders deep")
        _make_readable(directory, name, status, stat.S_IRUSR | stat.S_IXUSR)
        inside = os.open(name, flags | os.O_DIRECTORY, dir_fd=directory)
        try:
            with os.scandir(inside) as entries:
                names = sorted(entry.name for entry in islice(entries, _FILES + 1))
            for each in names:
                yield from _parts(inside, each, f"{called}/{each}", deep + 1)
        finally:
            os.close(inside)


def _make_readable(directory: int, name: str, status: os.stat_result, wanted: int) -> None:
    """Take the right to read back that commands may have taken from the owner."""
    if status.st_mode & wanted == wanted:
        return
    at = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    try:
        change_mode(at, status.st_mode | wanted)
    finally:
        os.close(at)


def leave_out(root: str, path: str) -> None:
    """Have git leave out what was held in a work tree: nobody means to commit that."""
    folders = (f for f in Path(path).parents if f.is_relative_to(root))
    git = next((f / ".git" for f in folders if (f / ".git").is_dir()), None)
    if git is None or ".git" in Path(path).parts:
        return
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with (
        contextlib.suppress(OSError),
        reached(str(git)) as at,
        reached("info", at) as info,
        os.fdopen(os.open("exclude", flags, 0o600, dir_fd=info), "rb+", buffering=0) as file,
    ):
        there = file.read(_LONGEST_LIST) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b""
        if _LEFT_OUT not in there and len(there) < _LONGEST_LIST:
            file.write(_LEFT_OUT if there[-1:] in {b"", b"\n"} else b"\n" + _LEFT_OUT)
