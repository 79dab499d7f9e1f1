"""Safe patterns: regular expressions that a model, a person or a stranger wrote.

A matcher that backtracks can be kept busy for years by `(a+)+$` and a line of a's, and
with it the event loop and every door. So each search has a deadline, after which it
counts as no match: `found_in` is for threads, which it leaves to the loop while it
searches, and `any_found` for the loop, with one short deadline for all patterns together.

Whether a pattern is taken is a matter of how it is written, never of how busy the machine
is: its length, how often it repeats, and that it does not repeat what repeats.
"""

import logging
import re
import time
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from math import prod

from msgspec import Struct, field

from hermes.domain.errors import ConfigError

SECONDS = 0.05
"""What one search may take in a thread."""
ON_LOOP = 0.005
"""What all searches for one purpose may take on the loop, together."""
_LONGEST_SOURCE = 500
_LONGEST_TEXT = 100_000
_MOST_COPIES = 10_000
"""Bounded repetitions are compiled by copying what they repeat."""
_COUNT = re.compile(r"\{(\d*),?(\d*)\}")
_TOKEN = re.compile(
    r"""
    (?P<comment> \(\?\#[^)]*\)? )
    | (?P<open> \( (?: \? (?: P?<[^>=!]*> | <?[=!] | [>|] | [a-zA-Z0-9-]*: ) )? )
    | (?P<close> \) )
    | (?P<either> \| )
    | (?P<endless> [*+] | \{\d*,\} )
    | (?P<times> \? | \{\d*,?\d*\} )
    | (?P<atom> \\. | \[\^?\]?(?:\\.|[^\]\\])*\] | . )
    """,
    re.VERBOSE | re.DOTALL,
)

log = logging.getLogger(__name__)


class SafePattern:
    """One expression, compiled and bounded in time; `ConfigError` if it is wrong."""

    def __init__(self, source: str, *, ignore_case: bool = False) -> None:
        import regex  # noqa: PLC0415 - 30 ms, and few have patterns

        if len(source) > _LONGEST_SOURCE:
            raise _unusable(f"{source[:20]}…", f"it has more than {_LONGEST_SOURCE} characters")
        counts = [max(int(n or 1) for n in found) for found in _COUNT.findall(source)]
        if prod(counts) > _MOST_COPIES:
            raise _unusable(source, "it repeats too much")
        if _repeats_what_repeats(source):
            raise _unusable(source, "it repeats what repeats, which can take for ever")
        try:
            self._expression = regex.compile(source, regex.IGNORECASE if ignore_case else 0)
        except (regex.error, RecursionError, OverflowError, ValueError) as error:
            raise _unusable(source, f"it is not a regular expression ({error})") from None
        self.source = source
        self.too_slow = False
        """Whether a search had to be given up."""

    def found_in(self, text: str, seconds: float = SECONDS) -> bool:
        """Tell whether `text` contains a match; False if that cannot be told in time."""
        try:
            part = text[:_LONGEST_TEXT]
            return self._expression.search(part, timeout=seconds, concurrent=True) is not None
        except TimeoutError:
            if not self.too_slow:
                log.warning("the pattern %r takes too long; it may miss matches", self.source)
            self.too_slow = True
            return False

    def __repr__(self) -> str:
        return f"SafePattern({self.source!r})"


def any_found(patterns: Iterable[SafePattern], *texts: str) -> bool:
    """Tell whether one of `patterns` is in one of `texts`, as far as that can be told at once."""
    end = time.thread_time() + ON_LOOP
    for pattern in patterns:
        for text in texts:
            left = end - time.thread_time()
            if left <= 0:
                return False
            if pattern.found_in(text, left):
                return True
    return False


class _Group(Struct):
    """What stands between two parentheses."""

    atoms: list[str] = field(default_factory=list)
    """All that it matches, of the groups in it too."""
    fixed: list[str] = field(default_factory=list)
    """What of it is there exactly once each time."""
    endless: bool = False
    branches: bool = False

    def may_repeat(self) -> bool:
        """Tell whether one time ends where the next begins: in `(a+,)*`, but not in `(a+,?)*`."""
        return not self.endless or (
            not self.branches and any(self._separates(each) for each in self.fixed)
        )

    def _separates(self, atom: str) -> bool:
        mark = atom.removeprefix("\\")
        literal = len(mark) == 1 and (atom == mark or not mark.isalnum())
        return literal and sum(_matches(each, mark) for each in self.atoms) == 1


def _repeats_what_repeats(source: str) -> bool:
    groups = [_Group()]
    for kind, token, after in _tokens(source):
        match kind:
            case "open":
                groups.append(_Group())
            case "either":
                groups[-1].branches = True
            case "atom":
                groups[-1].atoms.append(token)
                if not after:
                    groups[-1].fixed.append(token)
            case "endless":
                groups[-1].endless = True
            case "close" if len(groups) > 1:
                inner = groups.pop()
                if after not in ("", "?") and not inner.may_repeat():
                    return True
                groups[-1].atoms += inner.atoms
                groups[-1].endless |= inner.endless
    return False


def _tokens(source: str) -> Iterator[tuple[str, str, str]]:
    """Yield what a pattern is made of: the kind, the text and the repetition behind it."""
    tokens = [each for each in _TOKEN.finditer(source) if each.lastgroup != "comment"]
    for token, after in zip_longest(tokens, tokens[1:]):
        repeats = after is not None and after.lastgroup in ("endless", "times")
        yield token.lastgroup or "", token[0], after[0] if repeats else ""


def _matches(atom: str, character: str) -> bool:
    import regex  # noqa: PLC0415 - as above

    if len(atom) == 1 and atom != ".":
        return atom.lower() == character.lower() and atom not in "^$"
    try:
        return regex.fullmatch(atom, character, regex.DOTALL | regex.IGNORECASE) is not None
    except regex.error:
        return True


def _unusable(source: str, why: str) -> ConfigError:
    return ConfigError(
        f"The pattern {source!r} cannot be used: {why}.",
        hint=r"Write a short regular expression, e.g. ^hermes\b",
    )
