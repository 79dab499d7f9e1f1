"""One command as it would be executed, and the questions that rules ask about it."""

import os
import posixpath
import re
import sys
from collections.abc import Callable, Iterator
from enum import StrEnum
from fnmatch import fnmatchcase
from importlib.resources import files
from itertools import filterfalse, islice, pairwise

from msgspec import Struct, structs

from hermes.domain.approvals import Gate
from hermes.execution.policy.expansion import is_unknown


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _tables() -> dict[str, dict[str, str]]:
    tables: dict[str, dict[str, str]] = {}
    section: dict[str, str] = {}
    text = files("hermes.execution.policy").joinpath("tables.txt").read_text("utf-8")
    for row in text.replace("\n  ", " ").split("\n"):
        if row.startswith("["):
            section = tables[row[1:-1]] = {}
        elif row and row[0] != "#":
            names, _, value = row.partition(" :")
            section |= dict.fromkeys(names.split(), value.strip())
    return tables


TABLES = _tables()


STDIN_FILES = frozenset({"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"})


def listed(name: str) -> frozenset[str]:
    return words(TABLES["words"][name])


def pattern(name: str) -> re.Pattern[str]:
    return re.compile(TABLES["patterns"][name])


def patterns(section: str) -> dict[str, re.Pattern[str]]:
    return {name: re.compile(text) for name, text in TABLES[section].items()}


def absolute(path: str, cwd: str | None) -> str:
    """Return `path` with `.` and `..` resolved; relative only if `cwd` is not known."""
    path = path.replace("\\", "/") if re.match(r"[A-Za-z]:\\", path) else path
    if not path.startswith("/") and cwd is not None:
        path = cwd.rstrip("/") + "/" + path
    clean = posixpath.normpath(path) if path else "."
    return "/" + clean.lstrip("/") if clean.startswith("/") else clean


_OF_WHO_LOOKS = ("/dev/fd", "/dev/std", "/proc/self", "/proc/thread-self")
"""Places that are others for each process."""


def real_path(path: str) -> str:
    """Return where an absolute path leads through the links that are on the disk."""
    if not path.startswith("/") or len(path) > _MAX_PATH or is_unknown(path):
        return path
    if path.startswith(_OF_WHO_LOOKS):
        return path
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):
        return path


_MAX_PATH = 4096
_MAX_GLOB = 500


def may_match(name: str, glob: str) -> bool:
    """Return whether a glob matches, or is too long to be tried: that takes quadratic time."""
    return len(glob) > _MAX_GLOB or fnmatchcase(name, glob)


def base_name(path: str) -> str:
    """Return the last component of a command's path; what comes in many makes has one name."""
    name = posixpath.basename(path.rstrip("/")) or path if "/" in path else path
    if name.startswith(("ld-linux", "ld-musl", "ld.so", "ld64.so")):
        return "ld.so"
    return name[:5].rstrip("._") if name.startswith(("mkfs.", "newfs_")) else name


_ADDRESS = re.compile(r"[a-zA-Z][\w+.-]*://(?:[^/@\s]*@)?([^/?#\s]*)")
_LOOPBACK = re.compile(r"(?:localhost|127\.0\.0\.1|\[::1\]|0\.0\.0\.0)(?=[:/]|$)|:\d")
_BARE_HOST = re.compile(r"(?:[\w-]+@)?(?:[\w-]+\.)+[a-zA-Z\d]+(?:[:/?]|$)|[\w-]+:\d+(?:/|$)")
_DETOUR = re.compile(r"-x|--(?:proxy|preproxy|socks|connect-to|resolve|url)")


def only_local(command: "ShellCommand") -> bool:
    """Return whether a command names addresses, and all of them are on this machine."""
    args = command.spelled
    hosts = [host for arg in args for host in _ADDRESS.findall(arg)]
    hosts += filter(_LOOPBACK.match, args)
    if command.name == "curl":
        operands = [arg for arg, value in command.valued() if not value and arg[:1] != "-"]
        hosts += filterfalse(_ADDRESS.match, operands)
    for before, arg in pairwise(("", *args)):
        valued = before[:1] == "-" and before not in {"-s", "-i", "-v", "-k", "-L", "-f"}
        hosts += [arg] if not valued and _BARE_HOST.match(arg) else []
    detour = any(map(_DETOUR.match, args))
    odd = any("@" in host or "\\" in host for host in hosts)
    return bool(hosts) and not (odd or detour) and all(map(_LOOPBACK.match, hosts))


class Finding(Struct, frozen=True):
    reason: str
    kind: str = ""
    """Its name for `command_allowlist`, e.g. `rm -r`."""
    gate: Gate = Gate.ASK
    opaque: bool = False
    """Whether it hides what would run: a person is asked in every mode."""
    grant: str = ""
    """What an answer allows from then on; empty if only this very script can be granted."""


def opaque(reason: str, kind: str = "") -> Finding:
    return Finding(reason, kind, opaque=True)


def unreadable(why: str) -> Finding:
    return opaque(f"it cannot be read as a shell script: {why}", UNREADABLE)


UNREADABLE = "unreadable"
TOO_COMPLICATED = opaque("it is too long or too deeply nested to be judged")


class TooLong(Exception):
    """A text is too long to be read where nothing can end it."""


class Carried(Struct, frozen=True, kw_only=True):
    """What the earlier calls of a session have left behind for the next one."""

    functions: dict[str, bytes] = {}
    """Their bodies as `walk` keeps them: read only where one is called."""
    exports: dict[str, str] = {}
    files: dict[str, bool] = {}
    """What was written, oldest first, and whether it came from elsewhere; a glob is a folder."""
    forgot: bool = False
    """Whether something was left behind that is no longer known, so that anything asks."""
    project: str = ""
    """Where the session began: a `cd` of an earlier call does not move the project."""


NOTHING = Carried()
FORGOT = opaque("more has happened in this session than is remembered")


class Ground(Struct, frozen=True, kw_only=True):
    user_home: str
    hermes_home: str
    cwd: str | None = None
    carried: Carried = NOTHING
    longest: int = sys.maxsize
    """Characters of one text that may be read here."""
    user_homes: tuple[str, ...] = ()
    """The home as it is named and where links lead from there."""
    hermes_homes: tuple[str, ...] = ()
    """The same of Hermes, and where it usually is."""

    def __post_init__(self) -> None:
        homes = (self.user_home, real_path(self.user_home))
        usual = f"{self.user_home}/.hermes"
        kept = (self.hermes_home, real_path(self.hermes_home), usual)
        structs.force_setattr(self, "user_homes", homes)
        structs.force_setattr(self, "hermes_homes", tuple(dict.fromkeys(kept)))

    @property
    def project(self) -> str | None:
        """The directory whose files are at stake anyway; a home is none."""
        begun = (self.carried.project, self.cwd)
        return next((p for p in begun if p and p != "/" and p not in self.user_homes), None)


class Input(StrEnum):
    NONE = "none"
    PIPE = "pipe"
    TEXT = "text"
    FILE = "file"


class Feed(Struct, frozen=True):
    """The standard input of a command: its kind, its text if known, and who writes it."""

    kind: Input = Input.NONE
    text: str | None = None
    upstream: "tuple[ShellCommand, ...]" = ()


_BUNDLERS = frozenset({"tar", "bsdtar"})
_LETTERS = {name: words(row) for name, row in TABLES["letters"].items()}


def where(path: str, cwds: tuple[str | None, ...]) -> tuple[str, ...]:
    """Return every place that `path` may lead to from one of several directories."""
    places = [absolute(path, cwd) for cwd in cwds]
    return tuple(dict.fromkeys((*places, *map(real_path, places))))


class ShellCommand(Struct, frozen=True, kw_only=True):
    path: str
    name: str
    args: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    assigns: tuple[tuple[str, str], ...] = ()
    feed: Feed = Feed()
    inner: "tuple[ShellCommand, ...]" = ()
    """Commands whose output is part of this command's words."""
    cwds: tuple[str | None, ...] = (None,)
    """Where it may run, the likeliest last: a `cd` may have failed."""
    look_up: "Callable[[str, tuple[str | None, ...]], tuple[str, ...]]" = where
    """Where paths lead, also through the links on the disk; of a script each is looked up once."""
    found_below: tuple[str, ...] = ()
    """Where a search begins that runs it on what it finds."""
    via: tuple[str, ...] = ()
    """The wrappers it is run by, outermost first."""

    @property
    def cwd(self) -> str | None:
        return self.cwds[-1]

    def where(self, path: str) -> tuple[str, ...]:
        """Return every place that `path` may lead to, also through links."""
        # Elsewhere nobody knows where one is.
        return self.look_up(path, (None,) if "ssh" in self.via else self.cwds)

    @property
    def line(self) -> str:
        """The arguments in one line; spaces inside an argument are replaced."""
        return " ".join([a.replace(" ", "\x03") for a in self.args])

    @property
    def remote(self) -> bool:
        """Whether it runs on another machine or in a container."""
        return "ssh" in self.via or "container" in self.via

    @property
    def computed(self) -> bool:
        """Whether its name is not written out."""
        glob = any(c in self.path for c in "*?[") and self.name not in {"[", "[["}
        return glob or is_unknown(self.path)

    @property
    def piped(self) -> bool:
        return self.feed.kind is Input.PIPE

    def with_argv(self, argv: tuple[str, ...] | list[str], **changes: object) -> "ShellCommand":
        path = argv[0]
        return structs.replace(
            self, path=path, name=base_name(path), args=tuple(argv[1:]), **changes
        )

    @property
    def spelled(self) -> tuple[str, ...]:
        """The arguments, each option and each value a word, if it is known what takes a value.

        The letters with which tar may begin are options, each with its value.
        """
        known = _LETTERS.get(self.name)
        if known is None:
            return self.args
        letters = self.args[0] if self.args and self.name in _BUNDLERS else ""
        if not letters.isalnum():
            return (*_taken_apart(iter(self.args), known),)
        rest = iter(self.args[1:])
        pairs = ((f"-{c}", *islice(rest, f"-{c}" in known)) for c in letters)
        return (*(word for pair in pairs for word in pair), *_taken_apart(rest, known))

    def valued(self) -> Iterator[tuple[str, bool]]:
        """Yield what is spelled, and whether it is known to be the value of an option."""
        known, value = _LETTERS.get(self.name, ()), False
        for word in self.spelled:
            yield word, value
            value = not value and word in known

    def letters(self) -> set[str]:
        return set("".join(a[1:] for a in self._options() if a[:2] != "--"))

    def has_long(self, name: str) -> bool:
        """Return whether the long option `name`, or an abbreviation of it, is given."""
        return any(a[:2] == "--" and name.startswith(a[2:].split("=")[0]) for a in self._options())

    def _options(self) -> Iterator[str]:
        for arg, value in self.valued():
            if arg == "--" and not value:
                return
            if len(arg) > 1 and arg[0] == "-" and not value:
                yield arg

    def operands(self) -> list[str]:
        if "--" not in self.args:
            return [a for a in self.args if len(a) < 2 or a[0] != "-"]
        end = self.args.index("--")
        return [a for a in self.args[:end] if len(a) < 2 or a[0] != "-"] + [*self.args[end + 1 :]]

    def values_of(self, *options: str) -> Iterator[str]:
        """Yield the values given to any of the named options, however they are written."""
        return values_of(self.spelled, *options)


def values_of(args: tuple[str, ...], *options: str) -> Iterator[str]:
    """Yield the values that words give to any of the named options.

    Long options may be shortened; a short one may be glued to its value and stand
    behind others (`-qc'ls'`). It yields too much rather than too little.
    """
    for index, arg in enumerate(args):
        if not arg.startswith(("-", "eval")):
            continue
        following = args[index + 1 : index + 2]
        for option in options:
            if arg == option:
                yield from following
            elif option.startswith("--"):
                name, equals, value = arg.partition("=")
                if option.startswith(name) and len(name) > 2:
                    yield from (value,) if equals else following
            elif len(option) == 2 and arg[1:2] != "-":
                before, found, value = arg[1:].partition(option[1])
                if found and (not before or before.isalnum()):
                    yield from (value.removeprefix("="),) if value else following


def _taken_apart(args: Iterator[str], known: frozenset[str]) -> Iterator[str]:
    """Yield each option of a cluster, and each value, as a word."""
    for arg in args:
        last, value = arg, ""
        for index, letter in enumerate(arg[1:] if arg[:1] == "-" != arg[1:2] else "", 2):
            last = f"-{letter}"
            if {last, f"{last}!"} & known:
                value = arg[index:].removeprefix("=")
                break
            yield from (last,) if index < len(arg) else ()
        yield last
        yield from (value,) if value else islice(args, last in known)
        if last == "--" or f"{last}!" in known:
            yield from args


def takes_next(option: str, valued: list[str]) -> bool | None:
    """Return whether an option takes the next word for its value; None if it is in no list.

    The first letter of a cluster that takes a value has the rest of the word, if there is any.
    `-e?` takes no value but such a rest.
    """
    if option in valued:
        return True
    if option[:2] == "--":
        return any(v.startswith(option) for v in valued) or None
    ends = [i for i, c in enumerate(option) if i and {f"-{c}", f"-{c}?"} & {*valued}]
    return f"-{option[ends[0] :]}" in valued if ends else None


def command_start(
    args: tuple[str, ...], takes_value: str = "", skip: int = 0, *, assigns: bool = True
) -> int | None:
    """Return where a command begins after options, assignments and `skip` operands.

    `takes_value` names the options whose value is the next word. Without `assigns` a word
    like `x=1` is the beginning of a script.
    """
    valued = takes_value.split()
    index = 0
    while index < len(args):
        arg = args[index]
        if arg == "--":
            return index + 1 + skip if index + 1 + skip < len(args) else None
        if len(arg) > 1 and arg[0] == "-":
            index += takes_next(arg, valued) is True
        elif not (assigns and re.match(r"[A-Za-z_]\w*=", arg)):
            if not skip:
                return index
            skip -= 1
        index += 1
    return None


def readings(name: str, args: tuple[str, ...]) -> list[tuple[list[str], tuple[str, ...]]]:
    """Return the operands from each place on where the verb may stand, and what follows there."""
    known = TABLES["valued"].get(name, "").split()
    flags = _FLAGS.union(TABLES["flags"].get(name, "").split()) if known else ()
    operands: list[int] = []
    starts: list[int] = []
    unsure: set[int] = set()
    searching, maybe_value, skip = True, False, False
    for index, arg in enumerate(args):
        if skip:
            skip = False
        elif len(arg) > 1 and arg[0] == "-":
            skip = arg in known
            plain = arg in flags or (known and arg.startswith("--no-"))
            maybe_value = not (skip or plain or "=" in arg)
        else:
            operands.append(index)
            if searching:
                starts.append(index)
            unsure |= {index} if maybe_value else set()
            searching = searching and maybe_value and len(starts) < 4
            maybe_value = False
    found = []
    for start in starts:
        own = operands[operands.index(start) :]
        # What stands between a group of verbs and its verb may be a value as well.
        ways = [own, [own[0], *own[2:]]] if unsure & {*own[1:2]} and own[2:] else [own]
        found += [([args[i] for i in way], args[start + 1 :]) for way in ways]
    return found


_FLAGS = listed("flags")
