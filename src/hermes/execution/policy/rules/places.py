"""Paths that matter: what a place is, how much harm is done there, which commands write where."""

import fnmatch
import os
import posixpath
import re
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path

from msgspec import Struct

from hermes.execution.policy.command import (
    TABLES,
    Finding,
    Ground,
    Input,
    ShellCommand,
    absolute,
    listed,
    opaque,
    pattern,
    patterns,
    real_path,
)
from hermes.execution.policy.reader.expansion import COMPUTED, UNKNOWN, is_unknown


class PlaceKind(StrEnum):
    """What a protected path belongs to."""

    DEVICE = "a raw device"
    LEDGER = "the ledger of Hermes"
    HERMES = "the home of Hermes"
    SYSTEM = "a system path"
    SSH = "SSH keys and settings"
    CREDENTIALS = "credentials"
    SHELL = "a shell start-up file"
    SECRETS = "an environment file with secrets"
    PROJECT = "project or CI configuration"
    SCHEDULE = "a schedule or service definition"
    CUSTOM = "a protected path"
    OUTSIDE = "a place outside of the project"


class ProtectedPlace(Struct, frozen=True):
    """A protected path and its short name for grants."""

    kind: PlaceKind
    label: str


_VITAL = listed("vital")
_EVERYTHING = re.compile(r"(?:/(?:\.?\*+|\.\[!\.\]\*|\.\?\?\*|\*\.\*|\.))+$")
_A_HOME = re.compile(r"/(?:home|Users)/[^/]+(/\.)?")
_DEVICE = pattern("devices")
_HARMLESS_SYSTEM = re.compile(r"/(?:proc/self/fd/\d|usr/local/src/|usr/src/)")
_SAMPLE = re.compile(r"\.(?:example|sample|template|dist|test|tpl)$")
_WORKSPACE = re.compile(r"(?:agents/[^/]+/|profiles/[^/]+/)?(?:workspace|cache|tmp)/")
_LEDGER = re.compile(r"(?:.*/)?state\.db(?:-wal|-shm)?$")
_MAX_PATH = 4096
_OUTSIDE = ProtectedPlace(PlaceKind.OUTSIDE, "outside")
_SYSTEM_PLACE = ProtectedPlace(PlaceKind.SYSTEM, "system path")
_TABLE = tuple(
    (ProtectedPlace(PlaceKind[kind], label.replace("_", " ")), found)
    for (kind, label), found in (
        (name.split("|"), found) for name, found in patterns("places").items()
    )
)


def join(cwd: str | None, path: str) -> str | None:
    """Return where `path` leads from `cwd`, or None if that is not known."""
    if path == "-" or is_unknown(path):
        return None
    return None if cwd is None and not path.startswith("/") else absolute(path, cwd)


def is_device(path: str) -> bool:
    """Return whether `path` is a disk or the machine's memory."""
    return _DEVICE.match(path) is not None


def is_vital(clean: str, ground: Ground) -> bool:
    """Return whether losing a path loses the system, a home or the home of Hermes."""
    if is_unknown(clean):
        return False
    # Everything inside a directory is the directory: `/*`, `~/.*`, `/etc/{*,.*}`.
    stripped = _EVERYTHING.sub("", clean) or "/"
    homes = {*ground.user_homes, *ground.hermes_homes, "/home/user"}
    for candidate in (clean, stripped):
        a_home = _A_HOME.fullmatch(candidate)
        if candidate in _VITAL or candidate in homes or (a_home and not a_home.group(1)):
            return True
        above = candidate.rstrip("/") + "/"
        inside = any((home + "/").startswith(above) for home in ground.hermes_homes)
        if candidate.startswith("/") and inside:
            return True
    if not any(c in stripped for c in "*?["):
        return False
    depth = stripped.count("/")
    return any(v.count("/") == depth and fnmatch.fnmatchcase(v, stripped) for v in _VITAL | homes)


def is_ledger(clean: str, ground: Ground) -> bool:
    """Return whether a path is the ledger, or a glob beside it that takes it along."""
    inside = any(clean.startswith(home + "/") for home in ground.hermes_homes)
    if inside and clean.endswith(("/*", "state.db*")):
        return True
    place = _hermes(clean, ground)
    return place is not None and place.kind is PlaceKind.LEDGER


def place_of(clean: str, ground: Ground) -> ProtectedPlace | None:
    """Return the protected place that a path belongs to, if it does."""
    clean = clean[:_MAX_PATH]
    if is_device(clean) or clean == "/proc/sysrq-trigger":
        return ProtectedPlace(PlaceKind.DEVICE, "device")
    for protected in ground.protected:
        if any(_inside(clean, place) for place in (protected, real_path(protected))):
            return ProtectedPlace(PlaceKind.CUSTOM, protected)
    hermes = _hermes(clean, ground)
    if hermes is not None:
        return None if hermes.label == "workspace" else hermes
    for place, found in _TABLE:
        if found.search(clean):
            return None if _only_looks_like(place.kind, clean, ground) else place
    if any(c in clean for c in "*?[") and clean.startswith("/"):
        top = clean.split("/")[1]
        if any(fnmatch.fnmatchcase(name, top) for name in ("etc", "usr", "bin", "boot", "root")):
            return _SYSTEM_PLACE
    return _SYSTEM_PLACE if clean == "/" else None


def _inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _only_looks_like(kind: PlaceKind, clean: str, ground: Ground) -> bool:
    if kind is PlaceKind.SECRETS:
        return _SAMPLE.search(clean) is not None
    if kind is PlaceKind.SHELL:
        # A bare relative path may be in a home directory.
        homes = tuple(home + "/." for home in ground.user_homes)
        in_home = clean.startswith((*homes, "/root/.", "."))
        home = _A_HOME.match(clean)
        return not in_home and not (home and home.group(1))
    if kind is PlaceKind.SYSTEM:
        at_home = any(clean.startswith(home + "/") for home in ground.user_homes)
        return at_home or _HARMLESS_SYSTEM.match(clean) is not None
    return False


def _hermes(clean: str, ground: Ground) -> ProtectedPlace | None:
    for home in (*ground.hermes_homes, ".hermes", "~/.hermes"):
        if _inside(clean, home):
            inner = clean[len(home) + 1 :]
            if _LEDGER.match(inner):
                return ProtectedPlace(PlaceKind.LEDGER, "Hermes ledger")
            workspace = _WORKSPACE.match(inner) is not None
            return ProtectedPlace(PlaceKind.HERMES, "workspace" if workspace else "Hermes home")
    if re.search(r"(?:^|/)\.hermes/(?!.*workspace/)", clean):
        return ProtectedPlace(PlaceKind.HERMES, "Hermes home")
    return None


# --- which paths a command writes ---

_SILENT = re.compile(r"/dev/(?:null|stdout|stderr|tty|fd/\d+|zero|full|tcp/|udp/)")
_SED_WRITE = re.compile(r"(?:^|[;}\d$/gp])\s*[wW]\s+(/?\S+)")


def written_paths(command: ShellCommand) -> Iterator[str]:
    """Yield every path that `command` creates, changes or replaces."""
    named: Iterator[str] = iter(())
    if command.name in _WRITERS:
        named = _WRITERS[command.name](command)
    elif target := TABLES["targets"].get(command.name):
        named = _from_table(command, target.split())
    for path in (*command.writes, *named):
        if path and not _SILENT.match(path):
            yield path


def _from_table(command: ShellCommand, target: list[str]) -> Iterator[str]:
    operands = command.operands()
    slices = {
        "operands": operands, "last": operands[-1:], "first": operands[:1], "rest": operands[1:]
    }  # fmt: skip
    yield from slices.get(target[0], ())
    yield from command.values_of(*(t for t in target if t[0] == "-"))


def _copies(command: ShellCommand) -> Iterator[str]:
    directory = list(command.values_of("-t", "--target-directory"))
    operands = command.operands()
    if directory:
        yield from directory
    elif len(operands) > 1:
        yield operands[-1]
        # Into a directory: the file keeps its name there.
        for operand in operands[:-1]:
            yield operands[-1].rstrip("/") + "/" + operand.rstrip("/").rsplit("/", 1)[-1]
    elif command.name == "ln" and operands:
        yield operands[0].rsplit("/", 1)[-1]
    if command.name == "mv":
        yield from operands[:-1]


def _in_place(command: ShellCommand) -> Iterator[str]:
    scripts = list(command.values_of("-e", "--expression"))
    operands = command.operands()
    if any(re.match(r"-[a-zA-Z]*i", a) for a in command.args) or command.has_long("in-place"):
        given = scripts or list(command.values_of("-f"))
        yield from operands if given else (operands[1:] or operands)
    if command.name in {"sed", "gsed"}:
        found = (_SED_WRITE.search(text) for text in (*scripts, *operands[:1]))
        yield from (match.group(1) for match in found if match)


def _tar(command: ShellCommand) -> Iterator[str]:
    first = command.args[0] if command.args else ""
    letters = command.letters()
    if first[:1] != "-" and "/" not in first:
        letters |= set(first.split("=")[0][:6])
    if "x" in letters or command.has_long("extract"):
        yield from command.values_of("-C", "--directory")
        if "P" in letters or command.has_long("absolute-names"):
            yield "/"
    elif "c" in letters:
        yield from command.values_of("-f", "--file")
        for index, arg in enumerate(command.args[:-1]):
            if re.match(r"-?[a-zA-Z]*f$", arg):
                yield command.args[index + 1]


def _truncate(command: ShellCommand) -> Iterator[str]:
    sizes = set(command.values_of("-s", "--size", "-r", "--reference"))
    yield from (o for o in command.operands() if o not in sizes)


def _to_local(command: ShellCommand) -> Iterator[str]:
    operands = command.operands()
    if len(operands) > 1 and ":" not in operands[-1].split("/")[0]:
        yield operands[-1]


def _git(command: ShellCommand) -> Iterator[str]:
    operands = command.operands()
    if operands[:1] in (["clone"], ["init"], ["worktree"]) and len(operands) > 2:
        yield operands[-1]


def _editor(command: ShellCommand) -> Iterator[str]:
    scripts = [*command.values_of("-c", "--cmd"), *(a[1:] for a in command.args if a[:1] == "+")]
    if any(re.search(r"\b(?:wq?|x|s/|g/|normal|%s|d)\b|%s|wq", s) for s in scripts):
        yield from command.operands()
    if command.feed.kind is not Input.NONE:
        yield from command.operands()[:1]
        for match in re.finditer(r"^\s*[wW]q?\s+(\S+)", command.feed.text or "", re.MULTILINE):
            yield match.group(1)


def _downloads(command: ShellCommand) -> Iterator[str]:
    named = list(_from_table(command, TABLES["targets"][command.name].split()))
    yield from named
    if (command.name != "curl" and not named) or command.letters() & {"O", "J"}:
        for operand in command.operands():
            yield posixpath.basename(operand.partition("?")[0]) if "/" in operand else operand


def _defaults(command: ShellCommand) -> Iterator[str]:
    return iter(command.operands()[1:2] if command.args[:1] == ("write",) else ())


_WRITERS: dict[str, Callable[[ShellCommand], Iterator[str]]] = {
    **dict.fromkeys(("cp", "gcp", "mv", "install", "ln", "link"), _copies),
    **dict.fromkeys(("sed", "gsed", "perl", "ruby", "awk", "gawk"), _in_place),
    **dict.fromkeys(("dd", "dcfldd"), lambda c: (a[3:] for a in c.args if a.startswith("of="))),
    **dict.fromkeys(("tar", "bsdtar"), _tar),
    **dict.fromkeys(("scp", "rsync"), _to_local),
    **dict.fromkeys(("ed", "ex", "vi", "vim", "nvim"), _editor),
    **dict.fromkeys(("curl", "wget", "wget2"), _downloads),
    "truncate": _truncate,
    "git": _git,
    "defaults": _defaults,
}


_MANY = frozenset({"xargs", "find", "parallel"})
_READERS = listed("readers") | listed("blind") - {"git", "npm", "node", "make"}
_NEVER_MENTIONED = frozenset(
    (PlaceKind.SHELL, PlaceKind.SSH, PlaceKind.SCHEDULE, PlaceKind.DEVICE, PlaceKind.LEDGER)
)
_LISTERS = frozenset({"find", "fd", "git", "grep", "rg", "ag", "ls"})
_LIGHT = frozenset({"touch", "mkdir", "git", "chmod"})
_LOGS = pattern("logs")
_ALL_HERE = re.compile(r"(?:\.\.?/)*(?:\*|\.\*|\*\*)/?")


def check(command: ShellCommand, ground: Ground) -> Iterator[Finding]:
    findings = list(_writes(command, ground))
    yield from findings or _mentions(command, ground)
    name = command.name
    if name == "rm":
        yield from _rm(command)
    elif name in {"unlink", "rmdir"} and _MANY & set(command.via):
        yield Finding("it deletes whatever a list names", f"xargs {name}")


def _writes(command: ShellCommand, ground: Ground) -> Iterator[Finding]:
    """Yield a finding for every protected place that is written."""
    seen: set[str] = set()
    for path in written_paths(command):
        if _LOGS.search(path):
            yield Finding("it changes logs or history", "write logs")
        if command.name not in _LIGHT and _nowhere(path, command):
            yield opaque("where it writes is computed", "write computed")
        for clean in command.where(path):
            place = place_of(clean, ground)
            if place is None and command.name not in _LIGHT and _overwrites(clean, command):
                place = _OUTSIDE
            if place is None or place.label in seen:
                continue
            if command.name in _LIGHT and place.kind is PlaceKind.PROJECT:
                continue
            seen.add(place.label)
            yield Finding(
                f"it writes to {place.kind}: {clean}",
                f"write {place.label}",
                grant=f"write {clean}" if " " not in clean else "",
            )


def _mentions(command: ShellCommand, ground: Ground) -> Iterator[Finding]:
    """Yield a finding for a place that a command may change, as far as anybody knows."""
    if command.name in _READERS or command.name in _LIGHT - {"git"} or "maybe" in command.via:
        return
    for arg in command.args:
        path = arg.partition("=")[2] if arg[:1] == "-" else arg
        if not path.startswith(("/", "~", ".")) or " " in path:
            continue
        for place in (place_of(clean, ground) for clean in command.where(path)):
            if place is not None and place.kind in _NEVER_MENTIONED:
                yield Finding(f"it may change {place.kind}: {path}", f"write {place.label}")


def _nowhere(path: str, command: ShellCommand) -> bool:
    """Return whether the directory that a path is in is the output of a command."""
    listed_ = {c.name for c in command.feed.upstream[-1:]} <= _LISTERS
    if _MANY & set(command.via) and listed_:
        return False
    return COMPUTED in path[:1] or COMPUTED in path.rpartition("/")[0]


def _rm(command: ShellCommand) -> Iterator[Finding]:
    letters = command.letters()
    recursive = bool(letters & {"r", "R"}) or command.has_long("recursive")
    if recursive:
        yield Finding("it deletes recursively", "rm -r")
    elif "f" in letters or command.has_long("force"):
        yield Finding("it deletes without asking", "rm -f")
    source = next((v for v in command.via if v in _MANY), "")
    if source:
        yield Finding("it deletes whatever a list names", f"{source} rm", opaque=recursive)
        return
    computed = [a for a in command.args if is_unknown(a)]
    loose = len(computed) > 1 or any(COMPUTED in a or UNKNOWN in a for a in computed)
    if loose or (computed and recursive):
        yield opaque("what it deletes is computed")
    for operand in command.operands():
        if _ALL_HERE.fullmatch(operand):
            yield Finding("it deletes everything in a directory", "rm *")
        elif any(_away(clean, command) for clean in command.where(operand)):
            yield Finding("it deletes files outside of the project", "rm outside")


def _overwrites(clean: str, command: ShellCommand) -> bool:
    """Return whether a file outside of the project would be changed; a new one may be made."""
    if not clean.startswith("/") or clean.startswith("/dev/") or "\0" in clean:
        return False
    return _away(clean, command) and os.path.lexists(clean) and not Path(clean).is_dir()


def _away(clean: str, command: ShellCommand) -> bool:
    """Return whether a path is neither below the directory at hand nor temporary."""
    if not clean.startswith("/"):
        return clean.startswith("..")
    here = [cwd for cwd in command.cwds if cwd is not None]
    temporary = ("/tmp/", "/var/tmp/", "/dev/shm/")  # noqa: S108
    inside = any(_inside(clean, cwd) or _inside(clean, real_path(cwd)) for cwd in here)
    return not inside and not clean.startswith(temporary)
