"""Things of a project that the host runs later, and where to find them; `names` has their names.

A look through the folders is bounded. A folder that may not be listed is made so for the time
of the look: commands can take the right from their owner, and he can take it back.
"""

import contextlib
import os
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
from hermes.execution.backends.sandbox.settings import (
    git_of,
    kind,
    named_in,
    text_of,
    way,
    work_trees,
)

OF_GIT = ("config", "config.worktree", "hooks", "commondir")
_WATCHED_OF_GIT = (*OF_GIT, "rebase-merge/git-rebase-todo")
NOT_LOOKED_INTO = frozenset({"node_modules", ".venv", "venv", "target", ".tox", "__pycache__"})
"""Too large for each look: only repositories are sought in there, and not far down."""
OF_OBJECTS = frozenset({"objects", "refs"})
_FOLDERS_LOOKED_AT = 1000
_ENTRIES_LOOKED_AT = 5000
_LOOKED_UP = 100
_LISTED = 20
_MOUNTED = 200
_NAMED = 1000


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


def repositories_of(project: Path) -> tuple[str, ...]:
    """Return the directories of git that belong to a work tree, if they say so themselves.

    What says so must be theirs: a folder of the project could name any repository.
    """
    own = git_of(project / ".git")
    common = own.parent.parent
    with contextlib.suppress(OSError):
        if (
            own.parent.name == "worktrees"
            and not own.is_relative_to(project)
            and Path(os.path.realpath(own / text_of(own / "commondir").strip())) == common
            and Path(text_of(own / "gitdir").strip()) == project / ".git"
            and (common / "objects").is_dir()
        ):
            return (str(common),)
    return ()


def guarded(project: Path, repositories: tuple[str, ...], home: Path) -> Iterator[str]:
    """Return what is to stay as it is, present or not."""
    for name in GUARDED:
        path = project / name  # a link may lead elsewhere in the project
        yield from dict.fromkeys((str(path), *way(path, project)))
    if project in (own := Path(os.path.realpath(sys.prefix))).parents:
        yield str(own)  # Hermes itself is installed there, and starts programs of it
    with Look() as look:
        files, gits = _present(project, repositories, look)
        yield from files
        named = [f"{git}/hooks" for git in gits]
        for git, trees in gits.items():
            yield from (str(git / name) for name in OF_GIT)
            for config in (git / "config", git / "config.worktree"):
                named += list(dict.fromkeys(named_in(config, project, home, trees)))[:_NAMED]
        every = dict.fromkeys(chain([project], *gits.values()))
        for config in (home / ".gitconfig", home / ".config/git/config"):
            named += named_in(config, project, home, every, "hookspath")
        for hooks in (*named, f"{project}/.husky"):
            yield from _led_to(hooks, project, look)
        for git in gits:
            for tree in look.folders(f"{git}/worktrees", _MOUNTED):
                yield from _of_work_tree(Path(tree), project)


def _present(
    project: Path, repositories: tuple[str, ...], look: Look
) -> tuple[list[str], dict[Path, list[Path]]]:
    """Return files in folders and where links lead, and directories of git with work trees."""
    files: list[str] = []
    gits: dict[Path, list[Path]] = {Path(path): [project] for path in repositories}
    inner = (path for path in _inner(project, look, []) if path.name not in CHOOSING)
    for path in (project / ".git", *islice(inner, _MOUNTED)):
        git = git_of(path)
        is_git = path.name == ".git"
        if not is_git or git != path:
            files += [str(path), *way(path, project)]
        common = git.parent.parent if git.parent.name == "worktrees" else git
        for each in dict.fromkeys((git, common)) if is_git else ():
            if each in gits or project in each.parents:
                gits.setdefault(each, []).append(path.parent)
    for git in list(gits):
        for module in map(Path, islice(_modules(git, look), _MOUNTED)):
            said = work_trees(text_of(module / "config"))
            trees = (Path(os.path.realpath(module / tree)) for tree in said)
            gits.setdefault(module, []).extend(trees)
    return files, gits


def _led_to(path: str, project: Path, look: Look) -> Iterator[str]:
    """Return something with the links on the way to it, and what links in it lead to."""
    yield from way(path, project)
    for entry in look.entries(path, _ENTRIES_LOOKED_AT):
        if entry.is_symlink():
            yield from way(entry.path, project)


def _of_work_tree(tree: Path, project: Path) -> Iterator[str]:
    """Guard what git keeps of a work tree: all of it, unless it is a part of the project."""
    if Path(text_of(tree / "gitdir").strip()).is_relative_to(project):
        yield from (str(tree / name) for name in ("commondir", "config.worktree"))
    else:
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
    trees = look.folders(f"{git}/worktrees")
    above = (f"{path}/modules" for path in (str(git), *trees))
    ahead, looked = deque(chain.from_iterable(map(look.folders, above))), 0
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
