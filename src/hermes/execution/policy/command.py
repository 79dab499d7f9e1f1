"""One command as it would be executed, and the questions that rules ask about it."""

import posixpath
import re
from collections.abc import Iterator
from enum import StrEnum
from importlib.resources import files

from msgspec import Struct, structs

from hermes.domain.approvals import Gate
from hermes.execution.policy.reader.expansion import is_unknown


def words(text: str) -> frozenset[str]:
    """Return the words of a line: names and options, written without quotes and commas."""
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
"""The sections of `tables.txt`: values by name."""


def listed(name: str) -> frozenset[str]:
    """Return a row of the section `words`."""
    return words(TABLES["words"][name])


def base_name(path: str) -> str:
    """Return the last component of a command's path."""
    return posixpath.basename(path.rstrip("/")) or path if "/" in path else path


class Finding(Struct, frozen=True):
    """One reason not to run a script without asking."""

    reason: str
    grant: str = ""
    """The pattern that would allow it; empty if only this very script can be granted."""
    gate: Gate = Gate.ASK


UNREADABLE = Finding("it cannot be read as a shell script")
TOO_COMPLICATED = Finding("it is too long or too deeply nested to be judged")


class Ground(Struct, frozen=True, kw_only=True):
    """Where a script would run."""

    user_home: str
    hermes_home: str
    cwd: str | None = None
    protected: tuple[str, ...] = ()


class Input(StrEnum):
    """The kind of standard input that a command reads."""

    NONE = "none"
    PIPE = "pipe"
    TEXT = "text"
    FILE = "file"


class Feed(Struct, frozen=True):
    """The standard input of a command: its kind, its text if known, and who writes it."""

    kind: Input = Input.NONE
    text: str | None = None
    upstream: "tuple[ShellCommand, ...]" = ()


class ShellCommand(Struct, frozen=True, kw_only=True):
    """A command with its arguments, its input and its redirections."""

    path: str
    name: str
    """The last component of the path."""
    args: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    assigns: tuple[tuple[str, str], ...] = ()
    feed: Feed = Feed()
    inner: "tuple[ShellCommand, ...]" = ()
    """Commands whose output is part of this command's words."""
    cwd: str | None = None
    via: tuple[str, ...] = ()
    """The wrappers it is run by, outermost first."""

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
        return is_unknown(self.path)

    @property
    def piped(self) -> bool:
        return self.feed.kind is Input.PIPE

    def with_argv(self, argv: tuple[str, ...] | list[str], **changes: object) -> "ShellCommand":
        path = argv[0]
        return structs.replace(
            self, path=path, name=base_name(path), args=tuple(argv[1:]), **changes
        )

    def letters(self) -> set[str]:
        """Return the letters of all short options."""
        return set("".join(a[1:] for a in self._options() if a[:2] != "--"))

    def has_long(self, name: str) -> bool:
        """Return whether the long option `name`, or an abbreviation of it, is given."""
        return any(a[:2] == "--" and name.startswith(a[2:].split("=")[0]) for a in self._options())

    def _options(self) -> Iterator[str]:
        for arg in self.args:
            if arg == "--":
                return
            if len(arg) > 1 and arg[0] == "-":
                yield arg

    def operands(self) -> list[str]:
        """Return the arguments that are not options."""
        if "--" not in self.args:
            return [a for a in self.args if len(a) < 2 or a[0] != "-"]
        end = self.args.index("--")
        return [a for a in self.args[:end] if len(a) < 2 or a[0] != "-"] + [*self.args[end + 1 :]]

    def values_of(self, *options: str) -> Iterator[str]:
        """Yield the values given to any of the named options."""
        for index, arg in enumerate(self.args):
            if not arg.startswith(("-", "eval")):
                continue
            for option in options:
                if arg == option:
                    yield from self.args[index + 1 : index + 2]
                elif option.startswith("--"):
                    if arg.startswith(option + "="):
                        yield arg[len(option) + 1 :]
                elif len(option) == 2 and arg[1:2] != "-":
                    yield from self._in_cluster(index, option)

    def _in_cluster(self, index: int, option: str) -> Iterator[str]:
        """Yield the value of a short option that is glued to it or ends a cluster like `-abc`."""
        arg = self.args[index]
        if arg.startswith(option):
            yield arg[2:].removeprefix("=")
            return
        match = re.match(rf"-[A-Za-z]+?{re.escape(option[1])}([/~@.$].*)?$", arg)
        if match is None:
            return
        if match.group(1):
            yield match.group(1)
        else:
            yield from self.args[index + 1 : index + 2]


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
            if arg in valued or (arg[1] != "-" and len(arg) > 2 and "-" + arg[-1] in valued):
                index += 1
        elif not (assigns and re.match(r"[A-Za-z_]\w*=", arg)):
            if not skip:
                return index
            skip -= 1
        index += 1
    return None
