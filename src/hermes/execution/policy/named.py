"""Names that come out of commands: what a lister was given is what its output may name.

A command that is given such an output (`cat $(ls ~/x)`, `ls ~/x | xargs cat`, `… | while read f`)
is judged as if the paths of the lister were its own words, beside being judged with words that
are computed. What the simplest commands print is known.
"""

import re
from collections.abc import Iterable

from hermes.execution.policy.command import ShellCommand, listed
from hermes.execution.policy.expansion import is_unknown
from hermes.execution.policy.syntax import COMPUTED, Param, Word

PRINTED = "printed"
"""In `via` of a command that is judged with what another one may print."""
INPUT = "<"
"""What stands for the input of a loop among the variables."""
SLOT = re.compile(f"(?:^(?:-\\w)?|[=:@]){COMPUTED}")
"""Where in a word a path may stand that is computed."""
_NAMERS = listed("namers")
_PATH = re.compile(r"[/~.]|[^%=\s]*/[^%\s]*$")
_FORMAT = re.compile(r"%[-\d.]*[a-z]|\\n")
_MAX_PATHS = 20
_NUMERIC = re.compile(
    r"nproc|wc(?: -[lcw])?|id -[ug]|git rev-(?:parse (?:--short(?:=\d+)? )?HEAD|list --count HEAD)"
)
"""Commands that print a number, unless an argument says otherwise."""
_DATE = re.compile(r"\+(?:%[YymdHMSsjFTN][_:.-]?)+|-u|-d|(?!-)[\w :-]+")


def named(commands: Iterable[ShellCommand]) -> tuple[str, ...]:
    """Return the paths that commands are given which print the names of files."""
    words = (_FORMAT.sub("", w) for c in commands if c.name in _NAMERS for w in _given(c))
    paths = dict.fromkeys(w for w in words if _PATH.match(w) and not is_unknown(w))
    return tuple(paths)[:_MAX_PATHS]


def _given(command: ShellCommand) -> Iterable[str]:
    if command.name not in {"find", "gfind"}:
        return command.operands()
    ends = (i for i, a in enumerate(command.args) if a[:1] in {"-", "(", "!"} and a not in _LINKS)
    return command.args[: next(ends, None)]


_LINKS = frozenset({"-H", "-L", "-P"})


def filled(words: Iterable[str], paths: tuple[str, ...]) -> tuple[str, ...]:
    """Return words with each of the paths in the place of what is computed."""
    pairs = ((w, paths if COMPUTED in w else ("",)) for w in words)
    return tuple(word.replace(COMPUTED, path) for word, ways in pairs for path in ways)


class Origins:
    """What the variables of a script may name, as far as commands have told."""

    def __init__(self) -> None:
        self._paths: dict[str, tuple[str, ...]] = {}

    def note(self, name: str, paths: tuple[str, ...]) -> None:
        known = self.known(name)
        self._paths[name] = (*known, *(p for p in paths if p not in known))

    def known(self, name: str) -> tuple[str, ...]:
        return self._paths.get(name, ())

    def of(self, words: Iterable[Word | None], inner: Iterable[ShellCommand]) -> tuple[str, ...]:
        """Return what words may name, by their variables and the commands inside them."""
        parts = (part for word in words if word is not None for part in word.parts)
        known = (self.known(p.name) for p in parts if isinstance(p, Param))
        return tuple(dict.fromkeys((*named(inner), *(path for paths in known for path in paths))))


def printed(command: ShellCommand) -> str | None:
    """Return what a command prints, if it stands there as it is."""
    name, args = command.name, command.args
    if command.writes:
        return None
    text = " ".join(args)
    if name == "echo" and "\\" not in text and not re.match(r"-[neE]+\b", text):
        return text + "\n"
    if name == "cat" and not args:
        return command.feed.text
    if name == "pwd" and command.cwd and len(command.cwds) == 1:
        return command.cwd
    if name == "git" and args == ("rev-parse", "--show-toplevel") and len(command.cwds) == 1:
        return command.cwd
    if name == "git" and args[:2] in {("rev-parse", "--git-dir"), ("rev-parse", "--git-path")}:
        return "/".join((".git", *args[2:]))
    if name == "mktemp" and {*args} <= {"-d", "-q", "-u"}:
        return "/tmp/tmp.made"  # noqa: S108
    return "" if name in {"true", ":"} and not command.reads else None


def prints_number(command: ShellCommand) -> bool:
    """Return whether a command prints a number, or the name of a commit."""
    dated = command.name == "date" and all(map(_DATE.fullmatch, command.args))
    return dated or _NUMERIC.fullmatch(f"{command.name} {command.line}".strip()) is not None
