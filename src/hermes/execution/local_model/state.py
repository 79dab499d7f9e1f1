"""What a serving process leaves in `run/` for others to find it.

Two files for each model: a lock held for as long as the process lives, so
that there is at most one, and a description of where and how it listens.
"""

import fcntl
import os
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from hermes import __version__
from hermes.config.paths import HermesHome
from hermes.execution.local_model.files import LocalModel
from hermes.execution.local_model.profile import Profile

__all__ = ["ServerFiles", "ServerState", "fingerprint", "read_state", "server_files", "take_lock"]

_STEM: Final = "local-model-"


class ServerState(Struct, frozen=True, kw_only=True):
    """Where a serving process listens."""

    pid: int
    port: int
    api_key: str
    fingerprint: str

    @property
    def base_url(self) -> str:
        """The address without a path."""
        return f"http://127.0.0.1:{self.port}"


class ServerFiles(Struct, frozen=True, kw_only=True):
    """The files of one model's server."""

    lock: Path
    state: Path
    log: Path


def server_files(home: HermesHome, name: str) -> ServerFiles:
    """Return where the server of a model leaves its files."""
    return ServerFiles(
        lock=home.run_dir / f"{_STEM}{name}.lock",
        state=home.run_dir / f"{_STEM}{name}.json",
        log=home.logs_dir / f"{_STEM}{name}.log",
    )


def fingerprint(model: LocalModel, profile: Profile) -> str:
    """Return what must be the same for a running server to be good enough."""
    status = model.path.stat()
    parts = (__version__, model.path, status.st_size, status.st_mtime_ns, profile.n_ctx)
    return "|".join(map(str, parts))


def read_state(files: ServerFiles) -> ServerState | None:
    """Return what the last server wrote, if anything."""
    try:
        return msgspec.json.decode(files.state.read_bytes(), type=ServerState)
    except (OSError, msgspec.MsgspecError):
        return None


def take_lock(files: ServerFiles) -> int | None:
    """Take the lock of a model's server; None when a process has it."""
    descriptor = os.open(files.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
