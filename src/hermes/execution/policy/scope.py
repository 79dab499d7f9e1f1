"""What is known about variables while a script is read.

A variable keeps every value that the script gives it. A *choice* picks one
of them for the command at hand, so that each command is judged once for each
value that could reach it.
"""

import re
from itertools import product

from msgspec import Struct, field

__all__ = ["COMPUTED", "UNKNOWN", "UNKNOWN_QUOTED", "Scope", "is_unknown"]

UNKNOWN = "\x00"
"""Stands for an unquoted value that is not known: it may be several words or none."""
UNKNOWN_QUOTED = "\x01"
"""Stands for a quoted value that is not known: exactly one word."""
COMPUTED = "\x02"
"""Stands for the output of a command."""

_MAX_VALUES = 40
_MAX_CHOICES = 40
_MAX_ITEMS = 500
_MAX_LENGTH = 16_384
_PLAIN = re.compile(r"[A-Za-z0-9_][\w.-]*")


def is_unknown(text: str) -> bool:
    """Return whether part of `text` is not statically known."""
    return UNKNOWN in text or UNKNOWN_QUOTED in text or COMPUTED in text


def _is_plain(text: str) -> bool:
    return _PLAIN.fullmatch(text) is not None or is_unknown(text)


class Scope(Struct):
    """Variables, arrays and positional parameters."""

    values: dict[str, tuple[str, ...]] = field(default_factory=dict)
    arrays: dict[str, tuple[str, ...]] = field(default_factory=dict)
    positional: tuple[str, ...] | None = None
    choice: dict[str, str] = field(default_factory=dict)
    overflow: bool = False
    """Whether something was left out that could matter."""

    def assign(self, name: str, value: str) -> None:
        """Add one more value that `name` may have."""
        known = self.values.get(name, ())
        if value in known:
            return
        if len(value) > _MAX_LENGTH:
            self.overflow, value = True, COMPUTED
        if len(known) >= _MAX_VALUES:
            self.overflow = self.overflow or not _is_plain(value)
            value = COMPUTED
        self.values[name] = tuple(dict.fromkeys((*known, value)))

    def assign_array(self, name: str, items: tuple[str, ...], *, append: bool) -> None:
        """Set or extend an array."""
        before = self.arrays.get(name, ()) if append else ()
        if before[-len(items) :] != items or not items:
            self.overflow = self.overflow or len(before) + len(items) > _MAX_ITEMS
            self.arrays[name] = (*before, *items)[:_MAX_ITEMS]

    def get(self, name: str) -> str | None:
        """Return the chosen value of a variable, or None if it is not known."""
        if name.isdigit() and name != "0":
            index = int(name) - 1
            if self.positional is None:
                return None
            return self.positional[index] if index < len(self.positional) else ""
        chosen = self.choice.get(name)
        if chosen is not None:
            return chosen
        known = self.values.get(name)
        if known:
            return known[-1]
        items = self.arrays.get(name)
        return items[0] if items else None

    def choices(self, names: set[str]) -> list[dict[str, str]]:
        """Return every combination of values of the named variables, within a limit."""
        several = [n for n in sorted(names) if len(self.values.get(n, ())) > 1]
        if not several:
            return [{}]
        total = 1
        for name in several:
            total *= len(self.values[name])
        if total > _MAX_CHOICES:
            values = [v for n in several for v in self.values[n]]
            self.overflow = self.overflow or not all(_is_plain(v) for v in values)
            longest = max(len(self.values[n]) for n in several)
            columns = [(self.values[n] * longest)[:longest] for n in several]
            return [dict(zip(several, row, strict=True)) for row in zip(*columns, strict=True)]
        return [
            dict(zip(several, row, strict=True))
            for row in product(*(self.values[n] for n in several))
        ]
