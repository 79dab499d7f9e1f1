"""Checkpoints: how a project looked before the agent changed it, in a git store of our own.

Before the first call of a turn that may change files, the project's files are recorded in
`checkpoints/store` of the home: a bare repository with a commit without parents for each record
(`refs/hermes/<project>/<number>`). The project's own repository, index, hooks and configuration
are never touched or read. `/rollback` lists, compares and restores; restoring records the present
first, so that it can be undone, too, and with it whatever is written over, however large. Files
that a record left out for their size are named in its message and stay as they are; so are modes
that git does not keep. Attributes of the project (line ends, encodings) do not count: a record has
the bytes that were there. One process at a time works on a project, and so do the programs it
started: they hold its lock.
"""

import asyncio
import hashlib
import json
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from stat import S_IMODE, S_ISLNK, S_ISREG
from typing import Any

from hermes.config.locks import open_lock, try_lock
from hermes.domain.errors import HermesError, NotFound
from hermes.domain.ports.checkpoints import Restored, Snapshot
from hermes.domain.settings.agent import CheckpointSettings

log = logging.getLogger(__name__)

SECONDS = 60.0
LEFT_OUT = (
    *(".git", "node_modules", ".venv", "venv", "__pycache__", ".mypy_cache", ".pytest_cache"),
    *("target", "dist", "build", ".next", ".cache", ".env", "*.pyc"),
)
ATTRIBUTES = "* -text -ident -filter -working-tree-encoding\n"
COMMON_MODES = (0o644, 0o755)
LOCK_SECONDS, LOCK_PAUSE = 30.0, 0.05
_ENV = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ATTR_NOSYSTEM": "1",
    **{f"GIT_{who}_NAME": "Hermes" for who in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{who}_EMAIL": "hermes@localhost" for who in ("AUTHOR", "COMMITTER")},
}


class Checkpoints:
    def __init__(self, store: Path, settings: Callable[[], CheckpointSettings]) -> None:
        self._store, self._settings = store, settings
        self._locks: dict[str, asyncio.Lock] = {}
        self._held: dict[str, int] = {}

    @property
    def enabled(self) -> bool:
        return self._settings().enabled

    async def take(self, folder: str, why: str) -> None:
        """Record a project; nothing if it looks as it did the last time."""
        async with self._lock(folder):
            await self._take(folder, why)

    async def snapshots(self, folder: str) -> list[Snapshot]:
        """Return the records of a project, the newest first."""
        if not self._store.exists():
            return []
        form = "%(refname:lstrip=3) %(objectname) %(creatordate:unix) %(subject)"
        text = await self._git(folder, "for-each-ref", f"--format={form}", self._refs(folder))
        rows = [line.split(" ", 3) for line in text.splitlines()]
        found = [
            Snapshot(
                number=int(number), commit=commit, at=datetime.fromtimestamp(int(at), UTC), why=why
            )
            for number, commit, at, why in rows
        ]
        return sorted(found, key=lambda each: each.number, reverse=True)

    async def diff(self, folder: str, number: int) -> str:
        """Return what has changed in a project since a record."""
        async with self._lock(folder):
            before = await self._find(folder, number)
            now, _ = await self._tree(folder)
            return await self._git(folder, "diff", "--stat", "--patch", before.commit, now)

    async def restore(self, folder: str, number: int, name: str = "") -> Restored:
        """Bring a project, or one file of it, back to a record."""
        async with self._lock(folder):
            wanted = await self._find(folder, number)
            listed = await self._git(folder, "ls-tree", "-rz", "--name-only", wanted.commit)
            recorded = frozenset(listed.split("\0")[:-1])
            now = await self._take(folder, f"before the rollback to {number}", recorded)
            message = await self._git(folder, "log", "-1", "--format=%b", wanted.commit)
            about = json.loads(message) if message else {}
            too_large, modes = frozenset(about.get("left_out", ())), about.get("modes", {})
            paths = ("--", name) if name else ()
            text = await self._git(
                folder, "diff", "--name-status", "--no-renames", "-z", now, wanted.commit, *paths
            )
            words = text.split("\0")[:-1]
            pairs = list(zip(words[0::2], words[1::2], strict=True))
            changes = [pair for pair in pairs if pair[1] not in too_large]
            back = [path for state, path in changes if state != "D"]
            if back:
                listed = "\0".join(back)
                await self._git(folder, "read-tree", wanted.commit)
                await self._git(folder, "checkout-index", "-f", "-z", "--stdin", stdin=listed)
                await asyncio.to_thread(_set_modes, Path(folder), back, modes)
            for path in (path for state, path in changes if state == "D"):
                await asyncio.to_thread(_remove, Path(folder), path)
            left = sorted(too_large if not name else too_large & {name})
            return Restored(changed=[path for _, path in changes], left=left)

    async def _take(self, folder: str, why: str, whole: frozenset[str] = frozenset()) -> str:
        """Record a project, files in `whole` however large they are; return the tree."""
        if not self._store.exists():
            await self._run(["git", "init", "-q", "--bare", str(self._store)], "/")
        (tree, about), kept = await self._tree(folder, whole), await self.snapshots(folder)
        if kept and await self._git(folder, "rev-parse", f"{kept[0].commit}^{{tree}}") == tree:
            return tree
        message = f"{why or 'a turn'}\n\n{json.dumps(about)}"
        commit = await self._git(folder, "commit-tree", tree, "-F", "-", stdin=message)
        number = kept[0].number + 1 if kept else 1
        await self._git(folder, "update-ref", f"{self._refs(folder)}/{number}", commit)
        await self._prune(folder, kept)
        return tree

    async def _prune(self, folder: str, kept: list[Snapshot]) -> None:
        settings = self._settings()
        oldest = datetime.now(UTC) - timedelta(days=settings.retention_days)
        outdated = [
            each
            for place, each in enumerate(kept, start=2)
            if place > settings.max_snapshots or (settings.auto_prune and each.at < oldest)
        ]
        for each in outdated:
            await self._git(folder, "update-ref", "-d", f"{self._refs(folder)}/{each.number}")
        if outdated:  # what other projects are recording at this moment has no name yet
            options = ("-c", "gc.pruneExpire=1.hour.ago", "-c", "gc.autoDetach=false")
            await self._git(folder, *options, "gc", "--auto", "--quiet")

    async def _find(self, folder: str, number: int) -> Snapshot:
        for each in await self.snapshots(folder):
            if each.number == number:
                return each
        raise NotFound(f"There is no checkpoint {number} of {folder}.", hint="List them: /rollback")

    async def _tree(
        self, folder: str, whole: frozenset[str] = frozenset()
    ) -> tuple[str, dict[str, Any]]:
        """Write the project's files into the store; return the tree and what it does not tell."""
        limit = self._settings().max_file_size_mb
        await asyncio.to_thread(_written, self._store / "info/exclude", "\n".join(LEFT_OUT) + "\n")
        await asyncio.to_thread(_written, self._store / "info/attributes", ATTRIBUTES)
        listed = await self._git(
            folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard"
        )
        names = dict.fromkeys([*listed.split("\0")[:-1], *whole])
        found = await asyncio.to_thread(_found, Path(folder), names)
        fits = {n: s for n, s in found.items() if s.st_size <= limit * 2**20 or n in whole}
        await self._git(folder, "read-tree", "--empty")
        await self._git(folder, "update-index", "--add", "-z", "--stdin", stdin="\0".join(fits))
        modes = {n: S_IMODE(s.st_mode) for n, s in fits.items() if S_ISREG(s.st_mode)}
        unusual = {name: mode for name, mode in modes.items() if mode not in COMMON_MODES}
        tree = await self._git(folder, "write-tree")
        return tree, {"left_out": [n for n in found if n not in fits], "modes": unusual}

    def _refs(self, folder: str) -> str:
        return f"refs/hermes/{_project(folder)}"

    @asynccontextmanager
    async def _lock(self, folder: str) -> AsyncIterator[None]:
        """Keep others off a project's records, in this process and in others."""
        project = _project(folder)
        async with self._locks.setdefault(project, asyncio.Lock()):
            self._held[project] = held = open_lock(self._store.parent / f"{project}.lock")
            try:
                await _locked(held, folder)
                # Nobody else is at it, so git was ended in the middle of something.
                (self._store / f"index-{project}.lock").unlink(missing_ok=True)
                yield
            finally:
                del self._held[project]
                os.close(held)

    async def _git(self, folder: str, *words: str, stdin: str = "") -> str:
        index = self._store / f"index-{_project(folder)}"
        command = ["git", f"--git-dir={self._store}", f"--work-tree={folder}", *words]
        return await self._run(command, folder, stdin, GIT_INDEX_FILE=str(index))

    async def _run(self, command: list[str], cwd: str, stdin: str = "", **env: str) -> str:
        held = self._held.get(_project(cwd))
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=cwd,
            env=_ENV | env,
            umask=0o077,
            pass_fds=() if held is None else (held,),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(SECONDS):
                out, err = await process.communicate(os.fsencode(stdin))
        except TimeoutError:
            raise HermesError(f"Recording {cwd} takes too long.") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            said = err.decode("utf-8", "replace").strip()[-300:]
            raise HermesError(f"The checkpoint of {cwd} failed: {said}")
        return os.fsdecode(out).rstrip("\n")


def _project(folder: str) -> str:
    return hashlib.sha256(os.path.realpath(folder).encode()).hexdigest()[:16]


def _written(path: Path, text: str) -> None:
    if not path.exists() or path.read_text("utf-8") != text:
        path.write_text(text, "utf-8")


def _found(folder: Path, names: Iterable[str]) -> dict[str, os.stat_result]:
    """Return the files and links that are there."""
    found = {}
    for name in names:
        with suppress(FileNotFoundError, NotADirectoryError):
            status = (folder / name).lstat()
            if S_ISREG(status.st_mode) or S_ISLNK(status.st_mode):
                found[name] = status
    return found


def _set_modes(folder: Path, names: list[str], unusual: dict[str, int]) -> None:
    """Give restored files their modes: git made them for their owner alone."""
    for name in names:
        path, status = folder / name, (folder / name).lstat()
        if S_ISREG(status.st_mode):
            usual = COMMON_MODES[bool(status.st_mode & 0o100)]
            path.chmod(unusual.get(name, usual))


async def _locked(descriptor: int, folder: str) -> None:
    try:
        async with asyncio.timeout(LOCK_SECONDS):
            while not try_lock(descriptor):  # noqa: ASYNC110 - the kernel tells nobody
                await asyncio.sleep(LOCK_PAUSE)
    except TimeoutError:
        raise HermesError(f"Another process is recording {folder}.") from None


def _remove(folder: Path, name: str) -> None:
    path = folder / name
    path.unlink(missing_ok=True)
    for parent in path.parents:
        if parent == folder or any(parent.iterdir()):
            return
        parent.rmdir()
