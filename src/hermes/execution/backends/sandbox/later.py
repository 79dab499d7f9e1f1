"""Things of a project that the host runs later, and where to find them; `names` has their names.

A look through the folders is bounded. A folder that may not be listed is made so for the time
of the look: commands can take the right from their owner, and he can take it back.
"""

import contextlib
import os
import re
import stat
import sys
from collections import deque
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Self

from hermes.execution.backends.sandbox.names import (
    CHOOSING,
    FOLDERS,
    GUARDED,
    is_named,
    is_of_a_pattern,
    names_in,
)

OF_GIT = ("config", "config.worktree", "hooks", "commondir")
_WATCHED_OF_GIT = (*OF_GIT, "rebase-merge/git-rebase-todo")
NOT_LOOKED_INTO = frozenset({"node_modules", ".venv", "venv", "target", ".tox", "__pycache__"})
"""Too large for each look: only repositories are sought in there, and not far down."""
OF_OBJECTS = frozenset({"objects", "refs"})
LONGEST_CONFIG = 65_536
_FOLDERS_LOOKED_AT = 1000
_ENTRIES_LOOKED_AT = 5000
_LOOKED_UP = 100
_LISTED = 20
_MOUNTED = 200
_INCLUDED = 5
"""Files with settings that name each other, one after the other."""
_HARMLESS_SETTING = re.compile(
    r"\s*(?:[#;].*|\[(?:user|init|pull|push|core|remote|branch|submodule|commit|tag|advice|color"
    r"|fetch|rebase|merge|diff|gc)\b[^\]]*\]|(?:name|email|url|fetch|remote|merge|rebase|default"
    r"|defaultbranch|autosetupremote|repositoryformatversion|filemode|bare|logallrefupdates"
    r"|ignorecase|precomposeunicode|symlinks|active|gpgsign|ff|autocrlf|eol|safecrlf|quotepath"
    r"|prune|autostash|conflictstyle|ui|auto|detachedhead)\s*(?:=.*)?"
    r"|worktree\s*=\s*(?:\.\./)+[\w./-]+)?",
    re.IGNORECASE,
)
OF_NEW_REPOSITORIES = {
    "config": _HARMLESS_SETTING,
    "commondir": re.compile(r"\.\./\.\."),
    ".git": re.compile(r"gitdir: [^\0]*/\.git/(?:modules|worktrees)/[\w./-]+"),
    "git-rebase-todo": re.compile(r"(?!\s*(?:x|exec)\b).*"),
}
"""Files that git makes, and the lines in them that run nothing."""


class Look:
    """One look through folders; those that had to be opened for it are as before when it ends."""

    def __init__(self) -> None:
        self._opened: list[tuple[str, int, tuple[int, int]]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for folder, mode, identity in reversed(self._opened):
            with contextlib.suppress(OSError), reached(folder) as at:
                status = os.fstat(at)
                if (status.st_dev, status.st_ino) == identity:
                    change_mode(at, mode)
        self._opened.clear()

    def entries(self, folder: str, most: int) -> Iterator[os.DirEntry[str]]:
        """Return what is in a folder, or nothing where that is not ours to know."""
        with contextlib.suppress(OSError):
            try:
                found = os.scandir(folder)
            except PermissionError:
                self._open(folder)
                found = os.scandir(folder)
            with found:
                yield from islice(found, most)

    def folders(self, folder: str, most: int = _FOLDERS_LOOKED_AT) -> Iterator[str]:
        inner = (e for e in self.entries(folder, sys.maxsize) if e.name != ".git")
        return islice((e.path for e in inner if e.is_dir(follow_symlinks=False)), most)

    def _open(self, folder: str) -> None:
        with contextlib.suppress(PermissionError), reached(folder) as at:
            status = os.fstat(at)
            change_mode(at, status.st_mode | stat.S_IRWXU)
            identity = (status.st_dev, status.st_ino)
            self._opened.append((folder, stat.S_IMODE(status.st_mode), identity))


@contextlib.contextmanager
def reached(folder: str, directory: int | None = None) -> Iterator[int]:
    """Open a folder to go on from there, which takes no right to list it."""
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    at = os.open(folder, flags, dir_fd=directory)
    try:
        yield at
    finally:
        os.close(at)


def change_mode(at: int, mode: int) -> None:
    Path(f"/proc/self/fd/{at}").chmod(stat.S_IMODE(mode))


def kind(path: str) -> int:
    """Return what is at a path, a link for itself; 0 for nothing, or nothing to be seen."""
    try:
        return stat.S_IFMT(os.lstat(path).st_mode)
    except OSError:
        return 0


def repositories_of(project: Path) -> tuple[str, ...]:
    """Return the directories of git that belong to a work tree, if they say so themselves.

    What says so must be theirs: a folder of the project could name any repository.
    """
    with contextlib.suppress(OSError, UnicodeDecodeError):
        pointed = (project / ".git").read_text(encoding="utf-8").removeprefix("gitdir:").strip()
        own = Path(os.path.realpath(project / pointed))
        common = own.parent.parent
        named = (own / "commondir").read_text(encoding="utf-8").strip()
        if (
            own.parent.name == "worktrees"
            and not own.is_relative_to(project)
            and Path(os.path.realpath(own / named)) == common
            and Path((own / "gitdir").read_text(encoding="utf-8").strip()) == project / ".git"
            and (common / "objects").is_dir()
        ):
            return (str(common),)
    return ()


def guarded(project: Path, repositories: tuple[str, ...], home: Path) -> Iterator[str]:
    """Return what is to stay as it is, present or not."""
    for name in GUARDED:
        yield str(project / name)
        real = Path(os.path.realpath(project / name))
        if project in real.parents:  # a link may lead elsewhere in the project
            yield str(real)
    if project in (own := Path(os.path.realpath(sys.prefix))).parents:
        yield str(own)  # Hermes itself is installed there, and starts programs of it
    for config in (home / ".gitconfig", home / ".config/git/config"):
        yield from _named_in(config, project, "hookspath")
    with Look() as look:
        files, gits = _present(project, look)
        yield from files
        for git in (*map(Path, repositories), *gits):
            yield from (str(git / name) for name in OF_GIT)
            yield from _named_in(git / "config", project)
            for module in islice(_modules(git, look), _MOUNTED):
                yield from (f"{module}/{name}" for name in OF_GIT)
            for tree in sorted(git.glob("worktrees/*"))[:_MOUNTED]:
                yield from _of_work_tree(tree, project)


def _present(project: Path, look: Look) -> tuple[list[str], list[Path]]:
    """Return what is there in folders, and where links lead: files, and directories of git."""
    files: list[str] = []
    gits = [] if os.path.isfile(project / ".git") else [project / ".git"]  # noqa: PTH113 - no errors
    files += [] if gits else [str(project / ".git")]
    inner = (path for path in _inner(project, look, []) if path.name not in CHOOSING)
    for path in islice(inner, _MOUNTED):
        real = Path(os.path.realpath(path))
        is_git = path.name == ".git" and not os.path.isfile(path)  # noqa: PTH113 - no errors
        files += [str(path)] if real != path or not is_git else []
        if project in real.parents:
            gits.append(real) if is_git else files.append(str(real))
    return files, gits


def _named_in(
    config: Path, project: Path, only: str = "", further: int = _INCLUDED
) -> Iterator[str]:
    """Return what settings of git name in the project: hooks, includes, filters."""
    with contextlib.suppress(OSError):
        with config.open("rb") as file:
            text = file.read(LONGEST_CONFIG).decode("utf-8", "replace")
        for line in text.splitlines():
            key, equals, value = line.partition("=")
            if not equals or _HARMLESS_SETTING.fullmatch(line) or only not in key.lower():
                continue
            for word in re.findall(r"[^\s\"';&|]+", value):
                for base in (project, config.parent):
                    real = Path(os.path.realpath(base / word))
                    of_git = config.name == "config" and config.parent in real.parents
                    if project in real.parents and not of_git:
                        yield str(real)
                        if further and "path" in key.lower():
                            yield from _named_in(real, project, further=further - 1)


def _of_work_tree(tree: Path, project: Path) -> Iterator[str]:
    """Guard what git keeps of a work tree: all of it, unless it is a part of the project."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        if Path((tree / "gitdir").read_text(encoding="utf-8").strip()).is_relative_to(project):
            yield from (str(tree / name) for name in ("commondir", "config.worktree"))
            return
    yield str(tree)


def _inner(project: Path, look: Look, tucked: list[str]) -> Iterator[Path]:
    """Find repositories and guarded names in folders, as far as a short look goes."""
    ahead, looked, left = deque([str(project)]), 0, _ENTRIES_LOOKED_AT
    while ahead and (looked := looked + 1) <= _FOLDERS_LOOKED_AT:
        folder, listed, most = ahead.popleft(), 0, max(left, _FOLDERS_LOOKED_AT)
        seen: set[str] = set()
        own = folder.rpartition("/")[2]
        for entry in look.entries(folder, most):
            listed += 1
            if is_named(own, entry.name) or entry.name in CHOOSING:
                seen.add(entry.name)
            elif entry.is_dir(follow_symlinks=False):
                (tucked if entry.name in NOT_LOOKED_INTO else ahead).append(entry.path)
            elif entry.name in FOLDERS and looked > 1:  # a link that may lead to one
                behind = (f"{entry.name}/{name}" for name in names_in(entry.name))
                seen.update(n for n in behind if os.path.lexists(f"{folder}/{n}"))
        left -= listed
        if listed == most:  # there may be more of them: a name is found without a list
            seen.update(n for n in names_in(own) if os.path.lexists(f"{folder}/{n}"))
        if looked == 1:  # the others are guarded there whether they are there or not
            seen = {name for name in seen if name in CHOOSING or is_of_a_pattern(name)}
        yield from (Path(folder, name) for name in seen)


def _tucked_away(folders: list[str], look: Look) -> Iterator[Path]:
    """Find repositories in folders that are not looked into."""
    for number, folder in enumerate(folders):  # grows
        if number >= _LOOKED_UP:
            return
        yield from (Path(folder, n) for n in (".git", "HEAD") if os.path.lexists(f"{folder}/{n}"))
        if number < _LISTED and len(folders) < _LOOKED_UP:
            folders += look.folders(folder, _LOOKED_UP)


def _modules(git: Path, look: Look) -> Iterator[str]:
    """Find the repositories of submodules, whose names may have any number of folders."""
    ahead, looked = deque(look.folders(f"{git}/modules")), 0
    while ahead and (looked := looked + 1) <= _FOLDERS_LOOKED_AT:
        folder = ahead.popleft()
        if any(os.path.lexists(f"{folder}/{name}") for name in _WATCHED_OF_GIT):
            yield folder
        inner = look.folders(folder)
        ahead.extend(path for path in inner if path.rpartition("/")[2] not in OF_OBJECTS)


def found(project: Path, repositories: tuple[str, ...], look: Look) -> set[str]:
    """Return what is there now, in any folder, of the kind that the host runs later."""
    seen: set[str] = set()
    gits = [project / ".git", *map(Path, repositories)]
    tucked: list[str] = []
    usual = islice(_inner(project, look, tucked), _FOLDERS_LOOKED_AT)
    for path in chain(usual, _tucked_away(tucked, look)):
        inner = path.name == ".git" and kind(str(path)) == stat.S_IFDIR
        gits += [path] if inner else []
        seen.update(() if inner else (str(path),))
    for git in gits:
        trees = look.folders(f"{git}/worktrees")
        own = () if git == project / ".git" or str(git) in repositories else (str(git),)
        places = chain(own, trees, _modules(git, look))
        seen.update(f"{path}/{name}" for path in places for name in _WATCHED_OF_GIT)
        seen.add(f"{git}/rebase-merge/git-rebase-todo")
    return {path for path in seen if os.path.lexists(path)}
