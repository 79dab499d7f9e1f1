"""Tells what may appear or change under the names that the host obeys: what has nothing to run."""

import os
import stat
from itertools import pairwise
from pathlib import Path

from hermes.execution.backends.sandbox.later import (
    EMPTY,
    NOT_LOOKED_INTO,
    OF_GIT,
    OF_OBJECTS,
    reached,
)
from hermes.execution.backends.sandbox.mounts import SandboxLayout, root_of
from hermes.execution.backends.sandbox.names import CHOOSING, chooses_only
from hermes.execution.backends.sandbox.seen import Seen, described
from hermes.execution.backends.sandbox.settings import (
    OF_NEW_REPOSITORIES,
    are_harmless,
    common_of,
    remotes,
    text_of,
    work_trees,
)

_UNSEEN = NOT_LOOKED_INTO | OF_OBJECTS
_OF_MODULES = frozenset({"modules", "worktrees"})


def runs_nothing(
    layout: SandboxLayout, directory: int, path: str, now: Seen, known: bytes = b""
) -> bool:
    """Tell whether this is what git itself has made, or chooses versions, with nothing to run.

    Lines that were `known` before may be in it.
    """
    root = root_of(layout, path)
    *folders, name = Path(path).relative_to(root).parts
    if name == "HEAD" and now.kind == stat.S_IFREG and folders and ".git" not in folders:
        return _has_nothing_to_run(layout, str(Path(path).parent))
    in_git = _is_of_git(layout, root, folders) or _is_bare(Path(path), folders)
    if now.kind == stat.S_IFDIR:
        idle = name in {"hooks", *EMPTY} and _has_samples_only(directory, name)
        return name == ".git" or (in_git and idle)
    if name in CHOOSING and now.kind == stat.S_IFREG:
        return now.content is not None and chooses_only(name, now.content, known)
    if folders[-1:] == ["hooks"] and in_git:
        return name.endswith(".sample") and now.kind == stat.S_IFREG
    wanted = OF_NEW_REPOSITORIES.get(name)
    if wanted is None or now.kind != stat.S_IFREG or (name != ".git" and not in_git):
        return False
    of_tree = "worktrees" in folders and _is_of_git(layout, root, folders)
    if (name == ".git" and not folders) or (name == "commondir" and not of_tree):
        return False
    usual = set(() if name in {".git", "MERGE_RR"} else _lines_of(name, known))
    lines = _lines_of(name, now.content or b"")
    if now.content is None or not are_harmless(set(lines) - usual, wanted):
        return False
    new = [line for line in lines if line not in usual]
    return _leads_nowhere(layout, Path(path), new)


def _is_of_git(layout: SandboxLayout, root: str, folders: list[str]) -> bool:
    return ".git" in folders or root in layout.repositories


def _is_bare(path: Path, folders: list[str]) -> bool:
    """Tell whether this is of a repository without a work tree, in a folder of the project."""
    above = (path.parent, path.parent.parent)[: len(folders)]
    return any(os.path.lexists(folder / "HEAD") for folder in above)


def _lines_of(name: str, content: bytes) -> list[str]:
    ended = content.replace(b"\0", b"\n") if name == "MERGE_RR" else content
    return ended.decode("utf-8", "replace").splitlines()


def _leads_nowhere(layout: SandboxLayout, path: Path, lines: list[str]) -> bool:
    """Tell whether paths in lines that run nothing themselves lead to nothing else."""
    if path.name in {"config", "config.worktree"}:
        text = "\n".join(lines)
        return _works_inside(layout, path.parent, text) and not _is_out_of_sight(
            layout, path.parent, text
        )
    if path.name == "MERGE_RR":
        files = (path.parent.parent / line.partition("\t")[2] for line in lines)
        # A work tree elsewhere is not looked for.
        within = path.parent.name == ".git" or not lines
        return within and all(os.path.realpath(file) == str(file) for file in files)
    return path.name != ".git" or _leads_to_nothing(layout, path.parent, lines)


def _has_samples_only(directory: int, name: str) -> bool:
    inside = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=directory)
    try:
        with os.scandir(inside) as hooks:
            return all(hook.name.endswith(".sample") for hook in hooks)
    finally:
        os.close(inside)


def _works_inside(layout: SandboxLayout, git: Path, text: str) -> bool:
    """Tell whether the work tree that settings name is the folder of a `.git`, or in the project.

    What a person adds there would be in the repository, and what they check out would be there.
    """
    trees = work_trees(text)
    if not trees:
        return True
    real = os.path.realpath(git / trees[0])
    if len(trees) > 1 or os.path.normpath(git / trees[0]) != real:
        return False
    if git.name == ".git":
        return real == str(git.parent)
    return Path(real).is_relative_to(layout.start)


def _is_out_of_sight(layout: SandboxLayout, git: Path, text: str) -> bool:
    """Tell whether a remote may be a repository that no look finds: its hooks run at each push."""
    named = remotes(text)
    tree = next(iter(work_trees(text_of(git / "config")) if named else ()), ".")
    base = git.parent if git.name == ".git" else git / tree
    ways = {os.path.normpath(base / value) for value in named}
    return any(not _is_in_sight(layout, Path(way)) for way in ways)


def _is_in_sight(layout: SandboxLayout, way: Path) -> bool:
    """Tell whether commands can put nothing at a place, or only what a look finds."""
    real = Path(os.path.realpath(way))
    closed = (*layout.hidden, str(layout.kept), str(layout.base))
    if any(each.is_relative_to(place) for each in (way, real) for place in closed):
        return False
    if not any(each.is_relative_to(layout.start) for each in (way, real)):
        return True
    *above, _ = parts = way.parts
    return way == real and ".git" not in above and not _UNSEEN.intersection(parts)


def _leads_to_nothing(layout: SandboxLayout, folder: Path, lines: list[str]) -> bool:
    """Tell whether a `.git` file leads to a repository of the project with nothing to run."""
    path = os.path.normpath(folder / "".join(lines).removeprefix("gitdir: "))
    trees = work_trees(text_of(f"{path}/config"))
    *_, kind = ("", *(b for a, b in pairwise(Path(path).parts) if a == ".git"))
    if (
        kind not in _OF_MODULES
        or len(lines) != 1
        or any(os.path.normpath(f"{path}/{t}") != str(folder) for t in trees)
    ):
        return False
    gits = dict.fromkeys((path, str(common_of(Path(path)))))
    return all(_has_nothing_to_run(layout, git) for git in gits)


def _has_nothing_to_run(layout: SandboxLayout, path: str) -> bool:
    root = root_of(layout, path)
    if not root or os.path.realpath(path) != path:
        return False
    if _UNSEEN.intersection(Path(path).relative_to(root).parts):
        return False
    names = [name for name in OF_GIT if os.path.lexists(f"{path}/{name}")]
    new = [name for name in names if f"{path}/{name}" not in layout.guarded]
    if not new:
        return True
    with reached(path) as directory:
        there = ((name, described(directory, name, compare=False)) for name in new)
        return all(runs_nothing(layout, directory, f"{path}/{n}", now) for n, now in there)
