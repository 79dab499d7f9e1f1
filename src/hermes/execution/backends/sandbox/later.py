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
from collections.abc import Collection, Generator, Iterable, Iterator
from itertools import chain, islice, takewhile
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
    common_of,
    git_of,
    kind,
    named_in,
    text_of,
    way,
    work_trees,
)

EMPTY = frozenset({"remotes", "branches"})
"""Folders in which git once kept remotes, and still looks for them."""
OF_GIT = ("config", "config.worktree", "hooks", "commondir", "lazygit.yml", *sorted(EMPTY))
_UNDER_WAY = {
    "rebase-merge": ("git-rebase-todo", "strategy", "strategy_opts"),
    "rebase-apply": ("apply-opt", "gpg_sign_opt"),
    "sequencer": ("opts",),
}
"""Folders with what git goes on with, and what it runs or takes for options then."""
_WATCHED = (*OF_GIT, "BISECT_NAMES", "MERGE_RR")
_GONE_THROUGH = frozenset({"worktrees", "modules", "logs", "refs", "info", "rr-cache", *_UNDER_WAY})
_WRITTEN = frozenset(
    f"""
    COMMIT_EDITMSG FETCH_HEAD ORIG_HEAD MERGE_HEAD MERGE_MSG MERGE_MODE MERGE_RR SQUASH_MSG
    TAG_EDITMSG NOTES_EDITMSG EDIT_DESCRIPTION HEAD index packed-refs shallow objects
    {" ".join(_GONE_THROUGH)}
    """.split()
)
"""What git writes to or through at the top of its directory."""
NOT_LOOKED_INTO = frozenset({"node_modules", ".venv", "venv", "target", ".tox", "__pycache__"})
"""Too large for each look: only repositories are sought in there, and not far down."""
OF_OBJECTS = frozenset({"objects", "refs"})
_OF_GIT = re.compile(r"/\.git(?:/(?:modules|worktrees)/.*)?\Z", re.DOTALL)
"""Where a `.git` file may lead that commands have made: what else it names is not looked at."""
_FOLDERS_LOOKED_AT = 1000
_ENTRIES_LOOKED_AT = 5000
_LOOKED_UP = 100
_LISTED = 20
_MOUNTED = 200
_NAMED = 1000
_MOUNTS = 1200
"""Of all that is there, with the folders above: bubblewrap takes 9,000 arguments."""
_IN_GIT = 2000
"""Folders that are gone through in directories of git: the project's own, and all others."""
_ENTRIES_IN_GIT = 20_000
_FEWEST = 100


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
    """Return what is to stay as it is, present or not; what there are no mounts left for is not."""
    roots, mounts = {*map(Path, repositories), project}, set[Path]()
    for path in dict.fromkeys(_to_guard(project, repositories, home)):
        if os.path.lexists(path):
            above = takewhile(lambda folder: folder not in roots, Path(path).parents)
            new = {Path(path), *above} - mounts
            if len(mounts) + len(new) > _MOUNTS:
                continue
            mounts |= new
        yield path


def _to_guard(project: Path, repositories: tuple[str, ...], home: Path) -> Iterator[str]:
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
        linked = (look.folders(f"{git}/worktrees", _MOUNTED) for git in gits)
        for tree in islice(chain.from_iterable(linked), _NAMED):
            yield from _of_work_tree(Path(tree), project)


def _present(
    project: Path, repositories: tuple[str, ...], look: Look
) -> tuple[list[str], dict[Path, list[Path]]]:
    """Return files in folders and where links lead, and directories of git with work trees."""
    files: list[str] = []
    gits: dict[Path, list[Path]] = {Path(path): [project] for path in repositories}
    inner = (path for path in _inner(project, look, []) if path.name not in CHOOSING)
    for path in (project / ".git", *islice(inner, _MOUNTED)):
        is_git = path.name == ".git"
        if not is_git or git_of(path) != path:
            files += [str(path), *way(path, project)]
        for git in _led_by(path, project, repositories) if is_git else ():
            gits.setdefault(git, []).append(path.parent)
    inside = _InGit(look).found(map(str, list(gits)), _IN_GIT)
    modules = dict.fromkeys(Path(at).parent for at in inside if at.rpartition("/")[2] in OF_GIT)
    for git in islice(modules, 2 * _MOUNTED):
        trees = (os.path.realpath(git / tree) for tree in work_trees(text_of(git / "config")))
        gits.setdefault(git, []).extend(map(Path, trees))
    return files, gits


def _led_by(path: Path, project: Path, repositories: tuple[str, ...]) -> list[Path]:
    """Return the directories of git that a `.git` stands for, as far as they are watched."""
    git, roots = git_of(path), (*map(Path, repositories), project)
    both = dict.fromkeys((git, common_of(git)))
    return [each for each in both if any(each.is_relative_to(root) for root in roots)]


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


def _inner(
    project: Path, look: Look, tucked: list[str], theirs: tuple[str, ...] = ()
) -> Iterator[Path]:
    """Find repositories and guarded names in folders, as far as a short look goes.

    Links into places of the sandbox itself (`theirs`) are found, too: anything may be there.
    """
    ahead, looked, left = deque([str(project)]), 0, _ENTRIES_LOOKED_AT
    while ahead and (looked := looked + 1) <= _FOLDERS_LOOKED_AT:
        folder, listed, most = ahead.popleft(), 0, max(left, _FOLDERS_LOOKED_AT)
        seen, links = set[str](), set[str]()
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
            if theirs and entry.is_symlink():
                real = f"{os.path.realpath(entry.path)}/"
                links.update((entry.name,) if real.startswith(theirs) else ())
        left -= listed
        if listed == most:  # there may be more of them: a name is found without a list
            seen.update(n for n in names_in(own) if os.path.lexists(f"{folder}/{n}"))
        if looked == 1:  # the others are guarded there whether they are there or not
            seen = {name for name in seen if name in CHOOSING or is_of_a_pattern(name)}
        yield from (Path(folder, name) for name in seen | links)


def _tucked_away(folders: list[str], look: Look) -> Iterator[Path]:
    """Find repositories in folders that are not looked into."""
    for number, folder in enumerate(folders):  # grows
        if number >= _LOOKED_UP:
            return
        yield from (Path(folder, n) for n in (".git", "HEAD") if os.path.lexists(f"{folder}/{n}"))
        if number < _LISTED and len(folders) < _LOOKED_UP:
            folders += look.folders(folder, _LOOKED_UP)


class _InGit:
    """Goes through directories of git; in turn, so that none takes the look from the others."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self._left = _ENTRIES_IN_GIT

    def found(self, gits: Iterable[str], most: int) -> Iterator[str]:
        """Find what git obeys or goes on with, and links: git writes through them."""
        walks = deque[deque[tuple[str, bool]]]()
        for git in gits:
            top = yield from self._in(git, _WATCHED, _WRITTEN)
            inner = (folder for folder in top if folder.rpartition("/")[2] in _GONE_THROUGH)
            walks.extend(deque([(folder, True)]) for folder in inner)
        while walks and most > 0:
            most -= 1
            walk = walks.popleft()
            folder, of_git = walk.popleft()
            name = folder.rpartition("/")[2]
            of_git = of_git and name != "refs"  # a branch may have any name
            names = (*_WATCHED, *_UNDER_WAY.get(name, ())) if of_git else ()
            walk.extend([(inner, of_git) for inner in (yield from self._in(folder, names))])
            walks.extend((walk,) if walk else ())

    def _in(
        self, folder: str, names: Collection[str], written: Collection[str] = ()
    ) -> Generator[str, None, list[str]]:
        """Find in one folder what has one of the names, and links; return the folders in it."""
        most, listed = max(self._left, _FEWEST), 0
        folders: dict[str, None] = {}
        for entry in self._look.entries(folder, most):
            listed += 1
            if entry.is_symlink() or entry.name in names:
                yield entry.path
            if entry.is_dir(follow_symlinks=False) and entry.name != "objects":
                folders[entry.path] = None
        self._left -= listed
        for name in (*names, *written) if listed == most else ():  # there may be more of them
            path, what = f"{folder}/{name}", kind(f"{folder}/{name}")
            yield from (path,) if what == stat.S_IFLNK or (what and name in names) else ()
            folders.update({path: None} if what == stat.S_IFDIR else {})
        return list(folders)


def found(
    project: Path, repositories: tuple[str, ...], look: Look, theirs: tuple[str, ...] = ()
) -> set[str]:
    """Return what is there now, in any folder, of the kind that the host runs later."""
    seen: set[str] = set()
    own, others = dict.fromkeys(repositories), dict[str, None]()
    tucked: list[str] = []
    usual = islice(_inner(project, look, tucked, theirs), _FOLDERS_LOOKED_AT)
    for path in chain([project / ".git"], usual, _tucked_away(tucked, look)):
        if path.name != ".git":
            seen.add(str(path))
            if path.name == "HEAD" and path.parent != project:  # a repository without a work tree
                seen.update(str(path.with_name(name)) for name in OF_GIT)
            continue
        inner = kind(str(path)) == stat.S_IFDIR
        seen.update(() if inner else (str(path),))
        gits = [str(path)] if inner else map(str, _led_by(path, project, repositories))
        to = own if path.parent == project else others
        to.update((git, None) for git in gits if git in own or _OF_GIT.search(git))
    others = {git: None for git in others if git not in own}
    seen.update(_InGit(look).found(own, _IN_GIT), _InGit(look).found(others, _IN_GIT))
    return {path for path in seen if os.path.lexists(path)}
