"""One command as it would be executed, and questions that rules ask about it."""

import posixpath
import re
from collections.abc import Iterator
from enum import StrEnum

from msgspec import Struct

from hermes.domain.approvals import Gate
from hermes.execution.policy.scope import is_unknown

__all__ = ["Call", "Danger", "Ground", "Source", "make_call"]


class Danger(Struct, frozen=True):
    """One reason not to run a script without asking."""

    family: str
    reason: str
    pattern: str = ""
    """What a grant would allow; empty if only this very script can be granted."""
    gate: Gate = Gate.ASK


class Ground(Struct, frozen=True, kw_only=True):
    """Where a script would run."""

    user_home: str
    hermes_home: str
    cwd: str | None = None
    protected: tuple[str, ...] = ()


class Source(StrEnum):
    """What a command reads on its standard input."""

    NONE = "none"
    PIPE = "pipe"
    TEXT = "text"
    FILE = "file"


class Call(Struct, frozen=True, kw_only=True):
    """A command with its arguments, fed and redirected."""

    name: str
    """The last component of the command's path."""
    path: str
    args: tuple[str, ...]
    line: str
    """The arguments in one line; spaces inside an argument are replaced."""
    writes: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    assigns: tuple[tuple[str, str], ...] = ()
    source: Source = Source.NONE
    stdin: str | None = None
    """What it reads, if that is known."""
    upstream: "tuple[Call, ...]" = ()
    inner: "tuple[Call, ...]" = ()
    """Commands whose output is part of this command's words."""
    cwd: str | None = None
    via: tuple[str, ...] = ()
    """The wrappers it is run by, outermost first."""

    def letters(self) -> set[str]:
        """Return the letters of all short options."""
        found: set[str] = set()
        for arg in self.args:
            if arg == "--":
                break
            if len(arg) > 1 and arg[0] == "-" and arg[1] != "-":
                found.update(arg[1:])
        return found

    def has_long(self, name: str) -> bool:
        """Return whether the long option `name`, or an abbreviation of it, is given."""
        for arg in self.args:
            if arg == "--":
                return False
            if arg.startswith("--") and len(arg) > 2 and name.startswith(arg[2:].split("=")[0]):
                return True
        return False

    def operands(self) -> list[str]:
        """Return the arguments that are not options."""
        found: list[str] = []
        options = True
        for arg in self.args:
            if options and arg == "--":
                options = False
            elif not (options and len(arg) > 1 and arg[0] == "-"):
                found.append(arg)
        return found

    def values_of(self, *options: str) -> Iterator[str]:
        """Yield the values given to any of the named options."""
        for index, arg in enumerate(self.args):
            for option in options:
                if arg == option and index + 1 < len(self.args):
                    yield self.args[index + 1]
                elif option.startswith("--") and arg.startswith(option + "="):
                    yield arg[len(option) + 1 :]
                elif len(option) == 2 and arg.startswith(option) and len(arg) > 2:
                    yield arg[2:].removeprefix("=")
                elif len(option) == 2 and arg[:1] == "-" and arg[1:2] != "-":
                    yield from self._in_cluster(index, option[1])

    def _in_cluster(self, index: int, letter: str) -> Iterator[str]:
        """Yield the value of an option that stands at the end of `-abc`."""
        match = re.match(rf"-[A-Za-z]+?{re.escape(letter)}([/~@.$].*)?$", self.args[index])
        if match is None:
            return
        if match.group(1):
            yield match.group(1)
        elif index + 1 < len(self.args):
            yield self.args[index + 1]

    @property
    def remote(self) -> bool:
        """Whether it runs on another machine or in a container."""
        return "ssh" in self.via or "container" in self.via

    @property
    def computed(self) -> bool:
        """Whether the command's own name is not known."""
        return is_unknown(self.path)


def make_call(argv: list[str], base: Call | None = None, **changes: object) -> Call:
    """Build a call from words; what is not given is taken from `base`."""
    path = argv[0]
    fields: dict[str, object] = {}
    if base is not None:
        fields = {f: getattr(base, f) for f in Call.__struct_fields__}
    fields.update(changes)
    fields.update(
        name=posixpath.basename(path.rstrip("/")) or path,
        path=path,
        args=tuple(argv[1:]),
        line=" ".join([a.replace(" ", "\x03") for a in argv[1:]]),
    )
    return Call(**fields)  # type: ignore[arg-type]
