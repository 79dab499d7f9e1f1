"""Failures that are the sandbox's doing, told from those that are the command's own.

Goes by what programs print when they meet a wall: a read-only place, a path in a
place of the host that is not inside, keys and sockets that are hidden, no network.
Better to miss one than to offer a way out for an ordinary failure. Whether the host has
what a command looked for makes no difference: a command could ask for anything.
"""

import contextlib
import os
import posixpath
import re
from collections.abc import Collection, Iterator
from itertools import islice
from pathlib import Path

from msgspec import Struct

from hermes.execution.backends.sandbox.mounts import HOME, STATE_DIR, SandboxLayout

_TAIL = 20_000
"""Characters of output that are looked at."""
_SIGNS = {
    "it writes to a place that is read-only in the sandbox": re.compile(
        r"Read-only file system|EROFS|Device or resource busy|could not (?:lock|write) config file"
    ),
    "it needs keys, which are not in the sandbox": re.compile(
        r"Permission denied \(publickey|Host key verification failed|Authentication failed for"
        r"|could not read (?:Username|Password)|terminal prompts disabled|gh auth login"
        r"|Could not open a connection to your authentication agent|ENEEDAUTH|\bE401\b"
    ),
    "it reserves more memory than a command may have in the sandbox": re.compile(
        r"(?:Address|Thread|Memory|Leak)Sanitizer(?: failed to allocate|: failed to reserve)"
        r"|Sanitizer can ?not mmap the shadow memory|ReserveShadowMemoryRange failed"
    ),
    "looking for leaks takes a debugger's rights (ASAN_OPTIONS=detect_leaks=0 goes without)": (
        re.compile(r"LeakSanitizer (?:has encountered a fatal error|does not work under ptrace)")
    ),
    "it needs a service or rights of the host": re.compile(
        r"Cannot connect to the Docker daemon|docker\.sock|Failed to connect to .{0,20}\bbus\b"
        r"|no new privileges|sudo: .{0,40}(?:setuid|effective uid)|must be run as root"
    ),
}
_PASSED_OVER = {
    re.compile(r"could not (?:lock|write) config file \S*: "): (
        "Settings of git are read-only in the sandbox: the rest was done, these were not written."
        " `git config` with `escalate` can ask for it."
    ),
    re.compile(r"unable to (?:unlink|create)\b.{0,4096}: Read-only file system"): (
        "Some files are read-only in the sandbox: they were not changed, and look as if the user"
        " had changed them back. Do not commit that; the same with `escalate` can ask for it."
    ),
}
"""Git goes on without it and ends well, so that nobody would know."""
_NO_NETWORK = re.compile(
    r"Could not resolve host|Temporary failure in name resolution|Network is unreachable"
    r"|ENOTFOUND|EAI_AGAIN|Name or service not known|No address associated"
)
_NO_REPOSITORY = re.compile(r"fatal: not a git repository")
_PATH = r"(?:/|(?:\.\./)+)"
_NOT_THERE = re.compile(
    rf"^.{{0,200}}?({_PATH}[^\s:'\"’]{{1,400}})['\"’]?:? .{{0,40}}"
    r"(?:No such file or directory|not found)"
    rf"|(?:No such file or directory|ENOENT).{{0,80}}?['\"‘]({_PATH}[^'\"’]{{1,400}})['\"’]"
    rf"|(?:fatal:|repository|File) '({_PATH}[^']{{1,400}})' does not (?:appear to be a git|exist)"
    rf"|^(?:ERROR: )?({_PATH}\S{{1,400}}) is not a valid editable requirement"
    rf"|Distribution not found at: file://(/\S{{1,400}})"
    rf"|failed to read `(/[^`]{{1,400}})`"
    rf"|replacement directory ({_PATH}\S{{1,400}}) does not exist",
    re.MULTILINE,
)
_NO_MODULE = re.compile(
    rf"Cannot find (?:module|package) '({_PATH}[^']{{1,400}})'"
    r"(?:\s+Require stack:\s+- (/[^\n]{1,400})| from '([^']{1,400})')?"
)
"""What node and what is built on it say: from where, and a path from there."""
_OF_THE_HOST = ("/home", "/root", "/var", "/run", "/opt", "/srv", "/mnt", "/media")
_MOST_BESIDE = 2000
"""Names in a folder that are looked at."""
_OF_THE_SANDBOX = ("/tmp", "/var/tmp", STATE_DIR)  # noqa: S108 - its own


class Stop(Struct, frozen=True):
    """What kept a command from its end, and the line of its output that shows it."""

    reason: str = ""
    line: str = ""


def stopped_by(output: str, layout: SandboxLayout, cwd: str) -> Stop:
    """Return what kept a failed command from its end, if that was the sandbox."""
    begin = max(0, len(output) - _TAIL)
    if not layout.network and (found := _NO_NETWORK.search(output, begin)):
        return Stop("it needs the network", _line(output, found))
    for reason, pattern in _SIGNS.items():
        if found := pattern.search(output, begin):
            return Stop(reason, _line(output, found))
    if (found := _NO_REPOSITORY.search(output, begin)) and in_a_repository(layout):
        reason = "the project is a folder of a repository, which is not in the sandbox"
        return Stop(reason, _line(output, found))
    for path, found in _missing(output, begin, cwd):
        if is_outside(path, layout):
            return Stop(f"{path} is not in the sandbox", _line(output, found))
    return Stop()


def _missing(output: str, begin: int, cwd: str) -> Iterator[tuple[str, re.Match[str]]]:
    """Find the paths that a command has not found, and where it says so."""
    for found in _NOT_THERE.finditer(output, begin):
        said = next(filter(None, found.groups())).rstrip(".,;)")
        yield posixpath.normpath(posixpath.join(cwd, said)), found
    for found in _NO_MODULE.finditer(output, begin):
        wanted, by = found[1], found[2] or found[3]
        # `../x` is said from the file that wants it; without that nobody knows what it is.
        if by or wanted.startswith("/"):
            place = posixpath.dirname(posixpath.join(cwd, by or ""))
            yield posixpath.normpath(posixpath.join(place, wanted)), found


def is_outside(path: str, layout: SandboxLayout) -> bool:
    """Tell whether a path is in a place of the host that is not inside, whatever is there."""
    tools = (f"{layout.home}/{name}" for name in layout.tools)
    shown = (layout.start, *layout.repositories, *tools, *layout.terminal.sandbox_read_only_paths)
    beside = f"/{layout.start.split('/')[1]}"
    full = posixpath.normpath(path)
    hidden = _longest(full, (layout.home, beside, *_OF_THE_HOST))
    return hidden > _longest(full, (*shown, *_OF_THE_SANDBOX))


def _line(output: str, found: re.Match[str]) -> str:
    """Return the lines that something was found in."""
    end = output.find("\n", found.end())
    return output[output.rfind("\n", 0, found.start()) + 1 : end if end >= 0 else None]


def left_out(output: str) -> str:
    """Return what to say of a command that ended well without a part of what it does."""
    text = output[-_TAIL:]
    told = (note for pattern, note in _PASSED_OVER.items() if pattern.search(text))
    return "".join(f"\n[{note}]" for note in told)


def unseen(paths: Collection[str]) -> str:
    """Return what to say of files that a command has put where the user has no look."""
    if not paths:
        return ""
    named = ", ".join(sorted(paths)[:3])
    return (
        f"\n[In the sandbox only, where the user cannot see it: {named}. Files for the user go into"
        " the project; a command with `escalate` can write elsewhere.]"
    )


def beside(layout: SandboxLayout) -> frozenset[str]:
    """Return what there is in the person's home and beside the project, inside only."""
    if layout.home == HOME:
        return frozenset()
    home, project = Path(layout.home), Path(layout.start)
    ways = project.relative_to(home).parents if project.is_relative_to(home) else [Path()]
    found: set[str] = set()
    for way in ways:
        with contextlib.suppress(OSError), os.scandir(layout.kept / "home" / way) as entries:
            names = (entry.name for entry in islice(entries, _MOST_BESIDE))
            found.update(str(home / way / name) for name in names if not name.startswith("."))
    return frozenset(found)


def in_a_repository(layout: SandboxLayout) -> bool:
    folders = (layout.workspace, *layout.workspace.parents) if layout.project else ()
    return any(os.path.lexists(folder / ".git") for folder in folders)


def _longest(path: str, places: tuple[str, ...]) -> int:
    return max((len(place) for place in places if f"{path}/".startswith(f"{place}/")), default=0)
