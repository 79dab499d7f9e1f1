"""Reading what was typed: a command, or text for the model.

    /name arguments     a command
    //text              the text `/text`
    /usr/bin is ...     text: a path is not a command name

Arguments are kept as typed (`rest`) for commands that take prose, and split
into `words` with shell quoting for the others. A quote that is never closed
is an ordinary character: people write apostrophes.
"""

import re
import shlex

from msgspec import Struct

__all__ = ["Invocation", "Prose", "parse", "split_words"]

_COMMAND = re.compile(
    r"/(?P<name>[A-Za-z][A-Za-z0-9_-]*)(?:@[A-Za-z0-9_]+)?(?P<rest>\s.*)?", re.DOTALL
)


class Prose(Struct, frozen=True):
    """Text for the model."""

    text: str


class Invocation(Struct, frozen=True, kw_only=True):
    """A command as it was typed."""

    name: str
    rest: str = ""
    """Everything after the name, outer blanks removed."""

    @property
    def words(self) -> tuple[str, ...]:
        """The arguments, split with shell quoting."""
        return split_words(self.rest)


def parse(text: str) -> Invocation | Prose:
    """Tell a command from text."""
    stripped = text.strip()
    if stripped.startswith("//"):
        return Prose(stripped[1:])
    match = _COMMAND.fullmatch(stripped)
    if match is None:
        return Prose(text)
    return Invocation(name=match["name"].lower(), rest=(match["rest"] or "").strip())


def split_words(rest: str) -> tuple[str, ...]:
    """Split arguments; an unclosed quote is an ordinary character."""
    try:
        return tuple(shlex.split(rest))
    except ValueError:
        return tuple(rest.split())
