"""Rules as data: a command name, what its arguments look like, why that needs a person."""

import re
from collections.abc import Iterable
from functools import cache

from msgspec import Struct

from hermes.execution.policy.calls import Call, Danger

__all__ = ["Shape", "Shapes"]


class Shape(Struct, frozen=True):
    """One row: `names` are separated by spaces; `arguments` is searched in `Call.line`."""

    names: str
    arguments: str
    reason: str
    pattern: str = ""
    """What a grant allows; by default the name and the first word that matched."""


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Compile on first use: most runs meet few of the commands in the tables."""
    return re.compile(pattern)


class Shapes:
    """A table of shapes, indexed by command name."""

    def __init__(self, family: str, rows: Iterable[Shape]) -> None:
        self._family = family
        self._rows: dict[str, list[Shape]] = {}
        for row in rows:
            for name in row.names.split():
                self._rows.setdefault(name, []).append(row)

    def check(self, call: Call) -> Iterable[Danger]:
        """Yield a danger for every row that fits."""
        for row in self._rows.get(call.name, ()):
            match = _compiled(row.arguments).search(call.line)
            if match is None:
                continue
            words = match.group().split()
            pattern = row.pattern or " ".join([call.name, *words[:1]])
            yield Danger(self._family, row.reason, pattern)
