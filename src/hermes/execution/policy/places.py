"""Paths that matter: what a place is, how much harm is done there, which commands write where."""

import os
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum

from msgspec import Struct

from hermes.execution.policy.code import language_of
from hermes.execution.policy.command import (
    TABLES,
    Finding,
    Ground,
    ShellCommand,
    absolute,
    listed,
    may_match,
    opaque,
    pattern,
    patterns,
    readings,
    real_path,
)
from hermes.execution.policy.expansion import NUMBER, UNKNOWN, is_unknown
from hermes.execution.policy.syntax import COMPUTED


class PlaceKind(StrEnum):
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


def kinds(names: str) -> frozenset[PlaceKind]:
    return frozenset(PlaceKind[name] for name in names.split())


class ProtectedPlace(Struct, frozen=True):
    kind: PlaceKind
    label: str


_VITAL = listed("vital")
_EVERYTHING = re.compile(r"(?:/(?:\.?\*+|\.?\[[^\]/]*\]\*|\.?\?+\*|\*\.\*|\.))+$")
A_HOME = re.compile(r"/(?:home|Users)/[^/]+(/\.)?")
_DEVICE = pattern("devices")
_HARMLESS_SYSTEM = re.compile(r"/(?:proc/self/fd/\d|usr/local/src/|usr/src/)")
_SAMPLE = re.compile(r"\.(?:example|sample|template|dist|test|tpl)$")
_WORKSPACE = re.compile(r"(?:agents/[^/]+/|profiles/[^/]+/)?(?:workspace|cache|tmp)/")
_LEDGER = re.compile(r"(?:.*/)?(?:state|ledger)\.db(?:-wal|-shm)?$")
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
    if is_unknown(path) or re.match(r"-$|[-+]\d", path):
        return None
    return None if cwd is None and not path.startswith("/") else absolute(path, cwd)


def is_device(path: str) -> bool:
    return _DEVICE.match(path) is not None


def is_vital(clean: str, ground: Ground) -> bool:
    """Return whether losing a path loses the system, a home or the home of Hermes."""
    if is_unknown(clean):
        return False
    clean = re.sub(r"^/proc/(?:\d+|self)/root(?=/|$)", "", clean) or "/"
    # Everything inside a directory is the directory: `/*`, `~/.*`, `/etc/{*,.*}`.
    stripped = clean[:-200] + _EVERYTHING.sub("", clean[-200:]) or "/"
    homes = {*ground.user_homes, *ground.hermes_homes, "/home/user"}
    for candidate in (clean, stripped):
        a_home = A_HOME.fullmatch(candidate)
        if candidate in _VITAL or candidate in homes or (a_home and not a_home.group(1)):
            return True
        above = candidate.rstrip("/") + "/"
        inside = any((home + "/").startswith(above) for home in ground.hermes_homes)
        if candidate.startswith("/") and inside:
            return True
    if not any(c in stripped for c in "*?["):
        return False
    depth = stripped.count("/")
    return any(v.count("/") == depth and may_match(v, stripped) for v in _VITAL | homes)


def is_ledger(clean: str, ground: Ground) -> bool:
    """Return whether a path is the ledger, or a glob beside it that takes it along."""
    inside = any(clean.startswith(home + "/") for home in ground.hermes_homes)
    named = [f"{h}/{n}.db" for h in ground.hermes_homes for n in ("state", "ledger")]
    if inside and any(c in clean for c in "*?[") and any(may_match(n, clean) for n in named):
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
        if found.search(clean) and not _only_looks_like(place.kind, clean, ground):
            return place
    if any(c in clean for c in "*?[") and clean.startswith("/"):
        top = clean.split("/")[1]
        if any(may_match(name, top) for name in ("etc", "usr", "bin", "boot", "root")):
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
        home = A_HOME.match(clean)
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

_SILENT = re.compile(r"/dev/(?:(?:null|stdout|stderr|tty|zero|full)$|fd/\d+$|tcp/|udp/)")
_AWK_OUTPUT = re.compile(r"(?:-[dop]|--(?:dump|pretty|profile)[\w-]*=)([^-\s].*)")
_PATCHED = re.compile(r"(?m)^[ \tX]*(?:---|\*\*\*|\+\+\+) (?!/dev/null)([^\s]+)")
_SED_WRITE = re.compile(r"(?:^|[;{}\n\d$/gp])[ \t]*[wW][ \t]+(/?\S+)")


def written_paths(command: ShellCommand) -> Iterator[str]:
    """Yield every path that `command` creates, changes or replaces."""
    named: list[str] = []
    for target in TABLES["targets"].get(command.name, "").split():
        if target in _TARGETS:
            named += _TARGETS[target](command)
        elif target[0] == "-":
            named += command.values_of(target)
        else:
            named += [a[len(target) :] for a in command.args if a.startswith(target)]
    for path in (*command.writes, *named):
        if path and not _SILENT.match(path):
            yield path


def _copies(command: ShellCommand) -> Iterator[str]:
    operands = command.operands()
    folder = _destination(command)
    sources = operands if folder not in operands[-1:] else operands[:-1]
    if command.name in {"scp", "rsync"}:
        sources = [s for s in sources if ":" in s and ":" not in folder]
    if folder:
        yield folder
        # Into a directory: the file keeps its name there.
        for source in sources:
            name = source.rstrip("/").rsplit("/", 1)[-1].rpartition(":")[2]
            yield f"{folder.rstrip('/')}/{name}"
    elif command.name == "ln" and operands:
        yield operands[0].rsplit("/", 1)[-1]
    if command.name == "mv":
        yield from sources


def _destination(command: ShellCommand) -> str:
    """Return what files are copied, moved or linked to; it may be a directory."""
    operands = command.operands()
    named = command.values_of("-t", "--target-directory")
    return next(named, operands[-1] if len(operands) > 1 else "")


def _in_place(command: ShellCommand) -> Iterator[str]:
    scripts = list(command.values_of("-e", "--expression"))
    operands = command.operands()
    if any(re.match(r"-[a-zA-Z]*i", a) for a in command.args) or command.has_long("in-place"):
        given = scripts or list(command.values_of("-f"))
        yield from operands if given else (operands[1:] or operands)
    found = [_AWK_OUTPUT.match(arg) for arg in command.args]
    if command.name in {"sed", "gsed"}:
        found = [_SED_WRITE.search(text) for text in (*scripts, *operands[:1])]
    yield from (match.group(1) for match in found if match)


def _archive(command: ShellCommand) -> Iterator[str]:
    """Yield where an archive is unpacked, or the archive itself."""
    first = command.args[0] if command.args else ""
    old = first if first[:1] != "-" and "/" not in first and first.isalpha() else ""
    letters = command.letters() | set(old)
    extracts = command.has_long("extract") or command.has_long("get")
    if "f" in old:
        yield from command.args[1:3] if "x" not in old else ()
    if "x" in letters or extracts or command.name == "unzip":
        yield from [*command.values_of("-C", "--directory", "-d")] or ["."]
    elif "t" not in letters or command.has_long("delete"):
        yield from command.values_of("-f", "--file")
        pairs = zip(command.args, command.args[1:], strict=False)
        yield from (value for option, value in pairs if re.match(r"-?[a-zA-Z]*f$", option))
    if command.has_long("remove-files"):
        yield from command.operands()


def _address(command: ShellCommand) -> Iterator[str]:
    """Yield what a file is called after the address that it comes from."""
    named = any(command.values_of("-O", "--output-document"))
    kept = bool(command.letters() & {"O", "J"}) or command.has_long("remote-name-all")
    if (command.name != "curl" and not named) or kept:
        for operand in command.operands():
            yield posixpath.basename(operand.partition("?")[0]) if "/" in operand else operand


def _patched(command: ShellCommand) -> Iterator[str]:
    """Yield the files that a patch names, without the folders that are left out."""
    for name in _PATCHED.findall(command.feed.text or ""):
        odd = "\\" in name or '"' in name
        yield from ("/",) if odd else (name, name.partition("/")[2])


_TARGETS: dict[str, Callable[[ShellCommand], Iterable[str]]] = {
    "operands": ShellCommand.operands,
    "last": lambda c: c.operands()[-1:],
    "first": lambda c: c.operands()[:1],
    "rest": lambda c: c.operands()[1:],
    "copies": _copies,
    "in-place": _in_place,
    "archive": _archive,
    "address": _address,
    "patched": _patched,
    "preprocessed": lambda c: c.values_of("-o") if "-E" in c.args else (),
}
_MANY = frozenset({"xargs", "find", "parallel"})
READERS = listed("readers") | listed("blind") - listed("runs-others")
_NEVER_MENTIONED = kinds("SHELL SSH SCHEDULE DEVICE LEDGER OUTSIDE")
_LISTERS = frozenset({"find", "fd", "git", "grep", "rg", "ag", "ls"})
_LIGHT = frozenset({"touch", "mkdir", "git"})
_PROCESSES = frozenset({"pgrep", "pidof", "lsof", "fuser", "ps"})
_MAKERS = frozenset({"touch", "mkdir"})
_DELETERS = frozenset({"rm", "unlink", "rmdir"})
_COPIERS = frozenset({"cp", "gcp", "mv", "install", "ln"})
_TALKERS = frozenset({"git", "gh", "glab"})
_CONTAINERS = frozenset({"docker", "podman", "nerdctl", "kubectl", "oc", "docker-compose"})
_CHANGERS = frozenset({"sed", "gsed", "mv", "chmod", "ln"})
_EXECS = frozenset({"-exec", "-execdir", "-x", "-X", "--exec", "--exec-batch"})
_TESTS = [(verb,) for verb in ("test", "t", "build", "check", "lint", "vet")]
"""What may be done in another repository beside the project."""
_FILLERS = listed("fillers")
VIEWERS = listed("viewers")
_GITREADERS = listed("git-readers")
_SEPARATORS = re.compile(r"""(?:[a-z+]+://|[=:,@\s'"()<>|;])+""")
GLUED = re.compile(r"^-(?:[A-Za-z]+(?=[/~])|[A-Za-z](?=\.))")
_TEMPORARY = re.compile(r"/(?:tmp|var/tmp|dev/shm)(?:/|$)")
_OBEYED = re.compile(r"/(?:\.(?!hermes/)|s?bin/|Library/)")
"""Where a new file of a home counts without anybody's doing."""
_LOGS = pattern("logs")


def check(command: ShellCommand, ground: Ground) -> Iterator[Finding]:
    findings = list(_writes(command, ground))
    yield from findings or _mentions(command, ground)
    name = command.name
    if name == "rm":
        yield from _rm(command)
    elif name in {"unlink", "rmdir", "kill"} and _MANY & set(command.via):
        yield Finding("it deletes or ends whatever a list names", f"xargs {name}")
    elif name == "git" and _checks_out_files(command):
        yield Finding("it throws uncommitted work away", "git checkout --")
    elif name == "kill":
        if any(c.name in _PROCESSES for c in command.inner):
            yield Finding("it ends processes that were looked up", "kill found")
        made = {c.name for c in command.inner} & {"date", "printf", "echo", "expr", "seq"}
        if made or any(
            re.fullmatch(r"\s*-0+1\s*|\s+-1\s*|-1\s+", a) or NUMBER in a for a in command.args
        ):
            yield opaque("whom it signals is computed, or everybody", "kill computed")
    elif name == "truncate" and not any(v[:1] == "+" for v in command.values_of("-s", "--size")):
        files = [c for o in command.operands() if not o.endswith(".log") for c in command.where(o)]
        if any(is_unknown(f) or "*" in f or os.path.lexists(f) for f in files):
            yield Finding("it cuts files short", "truncate")
    else:
        yield from _moves(command, ground)


def _checks_out_files(command: ShellCommand) -> bool:
    """Return whether `git checkout` is given files of the disk, and no branch."""
    found = readings("git", command.args)
    operands = found[0][0][1:] if found and found[0][0][0] == "checkout" else []
    made = {"-b", "-B", "--orphan"} & {*command.args}
    return not made and any(
        "*" in o or any(map(os.path.lexists, command.where(o))) for o in operands
    )


def is_beside(here: str, ground: Ground) -> bool:
    """Return whether a place is a repository beside the project."""
    beside = posixpath.dirname(here) == posixpath.dirname(ground.project or "/")
    return beside and os.path.lexists(f"{here}/.git")


def _moves(command: ShellCommand, ground: Ground) -> Iterator[Finding]:
    """Yield findings for files that leave the project, or get a second name in it."""
    *sources, target = (*command.operands(), "")[: max(2, len(command.operands()))]
    # One file is no more than any tool may overwrite; a folder or several are a loss.
    many = len(sources) > 1 or any("*" in s for s in sources) or bool(_MANY & set(command.via))
    moved = [c for s in sources if not _leaves(s, command, ground) for c in command.where(s)]
    away = command.name == "mv" and _leaves(_destination(command) or target, command, ground)
    if away and moved and (many or any(map(os.path.isdir, moved))):
        yield Finding("it moves files out of the project", "mv out")
    letters = command.letters()
    symbolic = "s" in letters or command.has_long("symbolic")
    if (
        command.name == "ln"
        and symbolic
        and any(is_vital(clean, ground) for source in sources for clean in command.where(source))
    ):
        yield Finding("it gives a place outside of the project a second name", "ln")
    copied = command.name == "cp" and ("l" in letters or command.has_long("link"))
    if copied or (command.name in {"ln", "link"} and not symbolic):
        for source in sources:
            if _leaves(source, command, ground) or any(
                place_of(clean, ground) for clean in command.where(source)
            ):
                yield Finding("it gives a file that is not the project's a second name", "ln")


def _leaves(path: str, command: ShellCommand, ground: Ground) -> bool:
    """Return whether a path is not in the project, as far as that is known."""
    clean = command.where(path)[-1]
    return clean.startswith("/") and not in_project(clean, ground)


def _writes(command: ShellCommand, ground: Ground) -> Iterator[Finding]:
    """Yield a finding for every protected place that is written."""
    seen: set[str] = set()
    narrow = command.name in {"tee", "cp", "sed", "gsed", "echo", "printf", "cat", "touch", "mkdir"}
    for path in written_paths(command):
        yield from _odd_target(path, command, ground)
        for clean in command.where(path):
            place = place_of(clean, ground) or _outside(path, clean, command, ground)
            if place is None or clean in seen:
                continue
            if command.name in _LIGHT and place.kind is PlaceKind.PROJECT:
                continue
            seen.add(clean)
            yield Finding(
                f"it writes to {place.kind}: {clean}",
                f"write {place.label}",
                grant=f"write {clean}" if " " not in clean and narrow else "",
            )


def _odd_target(path: str, command: ShellCommand, ground: Ground) -> Iterator[Finding]:
    """Yield findings for what is written, wherever that is."""
    if re.search(r"(?:^|/)-[^/]+$", path):
        yield opaque("a file would be named like an option")
    if _LOGS.search(path):
        yield Finding("it changes logs or history", "write logs")
    if path in command.writes and any(c in path for c in "*?["):
        yield Finding("it overwrites several files", "write several")
    lost = None in command.cwds and ground.cwd is not None and not command.remote
    if (lost and path[:1] not in {"/", "~"}) or (
        command.name not in _LIGHT and _nowhere(path, command)
    ):
        yield opaque("where it writes is computed", "write computed")
    if path.startswith("/dev/") and not is_device(path) and not _TEMPORARY.match(path):
        yield Finding(f"it writes to {path}", "write device file")


def outside(clean: str, ground: Ground) -> ProtectedPlace | None:
    """Return the place of a file that is there outside of the project, or counts without doing."""
    return _OUTSIDE if ground.project is not None and _is_there(clean, ground) else None


def _outside(path: str, clean: str, command: ShellCommand, ground: Ground) -> ProtectedPlace | None:
    """Return the place of a path that is lost outside of the project, if it is."""
    if command.name in _DELETERS and is_away(clean, ground):
        return _OUTSIDE
    if command.name in _MAKERS or not _is_there(clean, ground):
        return None
    folder = path == _destination(command) and not os.path.isfile(clean)  # noqa: PTH113 - never raises
    keeps = command.name in _COPIERS and folder and "T" not in command.letters()
    return None if keeps else _OUTSIDE


def _mentions(command: ShellCommand, ground: Ground) -> Iterator[Finding]:
    """Yield a finding for a place that a command may change, as far as anybody knows."""
    changes = bool(_MANY & set(command.via)) and command.name in _CHANGERS
    reader = command.name in READERS and not changes and not _runs_a_writer(command)
    if reader or command.name in _LIGHT - {"git"} or "maybe" in command.via:
        return
    outside = not command.remote and not _only_reads(command)
    computed = any(f"{COMPUTED}/" in word for word in command.operands())
    if outside and computed and command.name not in _CONTAINERS:
        yield opaque("the directory of a file that it may change is computed", "write computed")
    for path in (*_paths_in(command), *_changed_here(command, ground)):
        for clean in command.paths.where(path, command.cwds[-1:]):
            place = place_of(clean, ground)
            if place is None and outside and _is_there(clean, ground):
                place = _OUTSIDE
            inner = place is not None and "/.git/" in f"{clean}/" and command.name != "git"
            if place is not None and (inner or place.kind in _NEVER_MENTIONED):
                device = place.kind is PlaceKind.DEVICE
                reason = f"it may change {place.kind}: {path}"
                yield Finding(reason, f"write {place.label}", opaque=device)


def changes_files(command: ShellCommand) -> bool:
    """Return whether a command is not known to only read the files it names."""
    return command.name not in READERS and not _only_reads(command)


def _runs_a_writer(command: ShellCommand) -> bool:
    """Return whether a search runs a program on what it finds that may change it."""
    pairs = zip(command.args, command.args[1:], strict=False)
    names = [program for option, program in pairs if option in _EXECS]
    harmless = (READERS | VIEWERS) - _CHANGERS
    return command.name in {"find", "fd", "fdfind"} and any(n not in harmless for n in names)


def _paths_in(command: ShellCommand) -> Iterator[str]:
    """Yield what looks like a path in the words of a command, also behind an option or a key."""
    values = [v for name, v in command.assigns if not name.endswith(("HOME", "PATH", "CONFIG"))]
    # The script of an interpreter is run, not changed.
    args = [a for a in command.args if a[:1] == "-" or not language_of(command.name)]
    listing = command.feed.upstream if _MANY & set(command.via) else command.inner
    args += [a for lister in listing if lister.name in _LISTERS for a in lister.args]
    for arg in (*args, *values):
        if command.name in _TALKERS and " " in arg:
            continue
        text = arg.partition(":")[0] if command.name in _CONTAINERS else arg
        for piece in _SEPARATORS.split(GLUED.sub("", text)):
            if piece.startswith(("/", "~", ".")) or "/.." in piece:
                yield piece


def _changed_here(command: ShellCommand, ground: Ground) -> Iterator[str]:
    """Yield what a program may change where a `cd` has led it: the files it names, or all."""
    here = command.cwd
    if here is None or here == ground.cwd or not is_away(here, ground):
        return
    if command.args[:1] in _TESTS and is_beside(here, ground):
        return
    yield from (a for a in command.operands() if a and a[0] not in "/~.$" and " " not in a)
    yield from (".",) if command.name in _FILLERS else ()


def _only_reads(command: ShellCommand) -> bool:
    if command.name != "git":
        return command.name in VIEWERS
    found = readings("git", command.args)
    return not found or found[0][0][0] in _GITREADERS


def _nowhere(path: str, command: ShellCommand) -> bool:
    """Return whether the directory that a path is in is computed, and not by a list of files."""
    sources = command.feed.upstream[-1:] if _MANY & set(command.via) else command.inner
    if "find" in command.via or (sources and {c.name for c in sources} <= _LISTERS):
        return False
    above = ".." in path and is_unknown(path)
    return above or COMPUTED in path[:1] or COMPUTED in path.rpartition("/")[0]


def _rm(command: ShellCommand) -> Iterator[Finding]:
    recursive = bool(command.letters() & {"r", "R"}) or command.has_long("recursive")
    source = next((v for v in command.via if v in _MANY), "")
    computed = [a for a in command.args if is_unknown(a)]
    loose = len(computed) > 1 or any(COMPUTED in a or UNKNOWN in a for a in computed)
    if source:
        yield Finding("it deletes whatever a list names", f"{source} rm", opaque=recursive)
    elif loose or (computed and recursive):
        yield opaque("what it deletes is computed")


def _is_there(clean: str, ground: Ground) -> bool:
    """Return whether a path outside of the project is there, or may be: it could be lost."""
    if clean[:1] != "/" or "\0" in clean or clean.startswith("/dev/"):
        return False
    if not is_away(clean, ground):
        return False
    open_end = next((i for i, c in enumerate(clean) if c in "*?[" or is_unknown(c)), None)
    stem = clean if open_end is None else clean[:open_end].rpartition("/")[0] or "/"
    known = (*ground.user_homes, ground.project or "/")
    obeyed = any(_inside(clean, h) for h in ground.user_homes) and _OBEYED.search(clean)
    return bool(obeyed) or any(_inside(place, stem) for place in known) or os.path.lexists(stem)


def is_away(clean: str, ground: Ground) -> bool:
    """Return whether a path is neither below the project nor temporary."""
    if not clean.startswith("/"):
        return clean.startswith("..") or ground.project is not None
    return not in_project(clean, ground) and not _TEMPORARY.match(clean)


def in_project(clean: str, ground: Ground) -> bool:
    project = ground.project
    return project is not None and any(_inside(clean, p) for p in (project, real_path(project)))
