"""Files that go out to a chat: only those of its own session, and copies of them.

A reply names files by path, and a path is only the word of a model. It means what it means to
the session's commands, so it is looked for where these run. A file may go out if it is

* in a folder of the session's own there (`Environment.own`: workspace, home, `/tmp`), where no
  other session and nothing of the host is; on a machine without walls nothing hidden either;
* on this machine in a folder from which files may be sent: the agent's own, where commands run
  here, and those that `gateway.media_delivery_allow_dirs` names; nothing of the Hermes home
  (unless such a folder lies in it);
* a file that came with a message of the same session.

No `.env` goes out. Real paths are compared, and a file of this machine is opened from its folder
step by step without following links: what a command swaps in meanwhile leads nowhere. A copy is
sent, so nothing can be swapped after that either. Copies are deleted after two days.
"""

import asyncio
import hashlib
import logging
import os
import shlex
import shutil
import stat
import time
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath

from hermes.domain.errors import HermesError, UsageError
from hermes.domain.messages import FilePart, UserMessage
from hermes.domain.ports.execution import Environment, Environments, ShellRun
from hermes.domain.ports.ledger import Ledger

log = logging.getLogger(__name__)

MAX_BYTES = 512 * 1024 * 1024
KEEP_SECONDS = 48 * 3600.0
_PIECE = 8 * 1024 * 1024
_STEP = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class OutgoingFiles:
    def __init__(
        self,
        environments: Environments,
        ledger: Ledger,
        copies: Path,
        folders: Callable[[str], Sequence[Path]],
        home: Path,
    ) -> None:
        self._environments = environments
        self._ledger = ledger
        self._copies = copies
        self._folders = folders
        """Agent -> folders of this machine whose files may be sent."""
        self._home = home

    async def staged(self, agent_id: str, session_id: str, path: str) -> str | None:
        """Return where a copy of a file is that may be sent; None if it may not or is not there."""
        for source in (self._of_the_session, self._of_the_machine, self._of_a_message):
            try:
                copy = await asyncio.to_thread(self._place, session_id, path)
                if await source(agent_id, session_id, path, copy):
                    return str(copy)
            except (HermesError, OSError, ValueError) as error:
                log.info("a file is not sent to its chat: %s", error)
        return None

    async def _of_the_session(self, agent_id: str, session_id: str, path: str, copy: Path) -> bool:
        environment = await self._environments.get(agent_id, session_id, None)
        if not environment.own:
            return False
        await _copy_from(environment, path, copy)
        return True

    async def _of_the_machine(self, agent_id: str, session_id: str, path: str, copy: Path) -> bool:
        environment = await self._environments.get(agent_id, session_id, None)
        named = path if environment.own else environment.resolve(path)
        return await asyncio.to_thread(self._copied, named, self._folders(agent_id), copy)

    async def _of_a_message(self, _agent_id: str, session_id: str, path: str, copy: Path) -> bool:
        if not await self._came_with_a_message(session_id, path):
            return False
        return await asyncio.to_thread(_copy, Path(path), Path(path).parent, copy)

    def _place(self, session_id: str, path: str) -> Path:
        """Return where the copy of a file goes; old copies are deleted on this occasion."""
        self._copies.mkdir(mode=0o700, parents=True, exist_ok=True)
        for old in self._copies.iterdir():
            if time.time() - old.stat().st_mtime > KEEP_SECONDS:
                shutil.rmtree(old, ignore_errors=True)
        key = hashlib.sha256(f"{session_id}\0{path}".encode("utf-8", "replace")).hexdigest()[:32]
        folder = self._copies / key
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder / (PurePosixPath(path).name[-100:] or "file")

    def _copied(self, path: str, folders: Sequence[Path], copy: Path) -> bool:
        if not path.startswith(("/", "~/")):
            return False
        real, home = Path(path).expanduser().resolve(), self._home.resolve()
        for folder in (each.resolve() for each in folders):
            ours = real.is_relative_to(home) and not folder.is_relative_to(home)
            if real.is_relative_to(folder) and folder != home and not ours:
                return _copy(real, folder, copy)
        return False

    async def _came_with_a_message(self, session_id: str, path: str) -> bool:
        for stored in await self._ledger.transcript(session_id):
            content = stored.message.content if isinstance(stored.message, UserMessage) else ""
            if any(isinstance(part, FilePart) and part.path == path for part in content):
                return True
        return False


def _copy(path: Path, folder: Path, copy: Path) -> bool:
    """Copy a file below `folder` without following any link on the way; False if it is none."""
    names = path.relative_to(folder).parts
    if not names or names[-1].startswith(".env"):
        return False
    fd = os.open(folder, _STEP | os.O_DIRECTORY)
    try:
        for number, name in enumerate(names):
            kind = os.O_DIRECTORY if number < len(names) - 1 else 0
            below = os.open(name, _STEP | kind, dir_fd=fd)
            os.close(fd)
            fd = below
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_BYTES:
            return False
        with os.fdopen(os.dup(fd), "rb") as source, copy.open("wb") as target:
            shutil.copyfileobj(source, target, _PIECE)
    finally:
        os.close(fd)
    return True


def _may_leave(environment: Environment, real: str) -> bool:
    path = PurePosixPath(real)
    if path.name.startswith(".env"):
        return False
    walled = environment.exposed != ("/",)
    return any(
        walled or not any(name.startswith(".") for name in path.relative_to(folder).parts)
        for folder in environment.own
        if path.is_relative_to(folder)
    )


async def _copy_from(environment: Environment, path: str, copy: Path) -> None:
    """Copy a file of an environment, in pieces; `HermesError` if there is none."""
    named = shlex.quote(environment.resolve(path))
    real = await environment.run(ShellRun(script=f"readlink -f -- {named}", cwd="/", timeout=30))
    inside = real.output.partition("\n")[0]
    found = await environment.stat(inside) if _may_leave(environment, inside) else None
    if found is None or not found.is_file or found.size > MAX_BYTES:
        raise UsageError(f"There is no file at {inside} that could be sent.")
    with await asyncio.to_thread(copy.open, "wb") as target:
        at = 0
        while at < found.size:
            piece = await environment.read(inside, offset=at, limit=min(_PIECE, found.size - at))
            if not piece:
                break
            await asyncio.to_thread(target.write, piece)
            at += len(piece)
