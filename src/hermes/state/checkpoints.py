"""Checkpoints: how a project looked before the agent changed it, in a git store of our own.

Before the first call of a turn that may change files, the project's files are recorded in
`checkpoints/store` of the home: a bare repository with a commit without parents for each record
(`refs/hermes/<project>/<number>`). The project's own repository, index, hooks and configuration
are never touched or read. `/rollback` lists, compares and restores; restoring records the present
first, so that it can be undone, too, and with it whatever is written over, however large. Files
that a record left out for their size are named in its message and stay as they are.
"""

import asyncio
import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from hermes.domain.errors import HermesError, NotFound
from hermes.domain.ports.checkpoints import Restored, Snapshot
from hermes.domain.settings.agent import CheckpointSettings

log = logging.getLogger(__name__)

SECONDS = 60.0
LEFT_OUT = (
    *(".git", "node_modules", ".venv", "venv", "__pycache__", ".mypy_cache", ".pytest_cache"),
    *("target", "dist", "build", ".next", ".cache", ".env", "*.pyc"),
)
_ENV = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    **{f"GIT_{who}_NAME": "Hermes" for who in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{who}_EMAIL": "hermes@localhost" for who in ("AUTHOR", "COMMITTER")},
}


class Checkpoints:
    def __init__(self, store: Path, settings: Callable[[], CheckpointSettings]) -> None:
        self._store, self._settings = store, settings
        self._locks: dict[str, asyncio.Lock] = {}

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
            too_large = frozenset(json.loads(message)) if message else frozenset[str]()
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
            for path in (path for state, path in changes if state == "D"):
                await asyncio.to_thread(_remove, Path(folder), path)
            left = sorted(too_large if not name else too_large & {name})
            return Restored(changed=[path for _, path in changes], left=left)

    async def _take(self, folder: str, why: str, whole: frozenset[str] = frozenset()) -> str:
        """Record a project, files in `whole` however large they are; return the tree."""
        if not self._store.exists():
            await self._run(["git", "init", "-q", "--bare", str(self._store)], "/")
        (tree, too_large), kept = await self._tree(folder, whole), await self.snapshots(folder)
        if kept and await self._git(folder, "rev-parse", f"{kept[0].commit}^{{tree}}") == tree:
            return tree
        body = ("-m", json.dumps(too_large)) if too_large else ()
        commit = await self._git(folder, "commit-tree", tree, "-m", why or "a turn", *body)
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
    ) -> tuple[str, list[str]]:
        """Write the project's files into the store; return the tree and what is too large."""
        limit = self._settings().max_file_size_mb
        exclude = self._store / "info" / "exclude"
        wanted = "\n".join(LEFT_OUT) + "\n"
        await asyncio.to_thread(_written, exclude, wanted)
        listed = await self._git(
            folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard"
        )
        names = dict.fromkeys([*listed.split("\0")[:-1], *whole])
        sizes = await asyncio.to_thread(_sizes, Path(folder), names)
        fitting = [name for name in sizes if sizes[name] <= limit * 2**20 or name in whole]
        await self._git(folder, "read-tree", "--empty")
        await self._git(folder, "update-index", "--add", "-z", "--stdin", stdin="\0".join(fitting))
        tree = await self._git(folder, "write-tree")
        kept = frozenset(fitting)
        return tree, [name for name in sizes if name not in kept]

    def _refs(self, folder: str) -> str:
        return f"refs/hermes/{_project(folder)}"

    def _lock(self, folder: str) -> asyncio.Lock:
        return self._locks.setdefault(_project(folder), asyncio.Lock())

    async def _git(self, folder: str, *words: str, stdin: str = "") -> str:
        index = self._store / f"index-{_project(folder)}"
        command = ["git", f"--git-dir={self._store}", f"--work-tree={folder}", *words]
        return await self._run(command, folder, stdin, GIT_INDEX_FILE=str(index))

    async def _run(self, command: list[str], cwd: str, stdin: str = "", **env: str) -> str:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=cwd,
            env=_ENV | env,
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


def _sizes(folder: Path, names: Iterable[str]) -> dict[str, int]:
    """Return the files that are there."""
    found = {}
    for name in names:
        path = folder / name
        if path.is_symlink() or path.is_file():
            found[name] = path.lstat().st_size
    return found


def _remove(folder: Path, name: str) -> None:
    path = folder / name
    path.unlink(missing_ok=True)
    for parent in path.parents:
        if parent == folder or any(parent.iterdir()):
            return
        parent.rmdir()
