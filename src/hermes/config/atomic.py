"""Atomic replacement of files: a crash leaves the old or the new content, never half.

The new content goes to a temporary file beside the old one, is forced to disk
and renamed over it. A symbolic link stays a link: what it points to changes.
Files written here are readable by their owner only, and stay with the owner
they had even when root writes them.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from hermes.config.locks import locked
from hermes.config.paths import HermesHome
from hermes.domain.errors import ConfigError, StoreError

T = TypeVar("T")


def write_atomic(path: Path, content: str | bytes) -> None:
    """Replace the content of `path`; `ConfigError` says why if that fails."""
    target = path.resolve()
    try:
        _replace(target, content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written: {error.strerror}.",
            hint=f"Check the permissions of {target.parent} and the free space.",
        ) from error


def write_json(path: Path, value: Any) -> None:
    """Replace the content of `path` by `value` as JSON that people can read."""
    data = msgspec.json.encode(value, enc_hook=str)
    write_atomic(path, msgspec.json.format(data, indent=2) + b"\n")


def read_json(path: Path, kind: type[T]) -> T:
    """Return what a JSON file holds; an empty `kind` if there is no file.

    A file that cannot be decoded is an error, not empty: it would be overwritten.
    """
    try:
        text = path.read_bytes() or b"{}"
        return msgspec.json.decode(text, type=kind, strict=False, dec_hook=lambda to, v: to(v))
    except (FileNotFoundError, NotADirectoryError):
        return kind()
    except (OSError, msgspec.DecodeError) as error:
        raise StoreError(
            f"{path} cannot be read: {error}.", hint="Repair the file or move it away."
        ) from error


def file_stamp(path: Path) -> object:
    """Return a value that differs after a change; None if there is no file.

    A replaced file has a new inode, so two changes within one tick still differ.
    """
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size


@contextmanager
def editing(home: HermesHome) -> Iterator[None]:
    """Let one process at a time read, change and write the files of `home`."""
    with locked(home.ensure().root / ".config.lock"):
        yield


def _replace(target: Path, content: bytes) -> None:
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            _keep_owner(file.fileno(), target)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_directory(target.parent)


def _keep_owner(descriptor: int, target: Path) -> None:
    if os.geteuid() != 0:
        return
    owner = target if target.exists() else target.parent
    status = owner.stat()
    os.fchown(descriptor, status.st_uid, status.st_gid)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
