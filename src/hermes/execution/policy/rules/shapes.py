"""Rules as data: a command name, what its arguments look like, why that needs a person."""

import re
from collections.abc import Iterable

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


class Shapes:
    """A table of shapes, indexed by command name."""

    def __init__(self, family: str, rows: Iterable[Shape]) -> None:
        self._family = family
        self._rows: dict[str, list[tuple[re.Pattern[str], Shape]]] = {}
        for row in rows:
            compiled = re.compile(row.arguments)
            for name in row.names.split():
                self._rows.setdefault(name, []).append((compiled, row))

    def check(self, call: Call) -> Iterable[Danger]:
        """Yield a danger for every row that fits."""
        for compiled, row in self._rows.get(call.name, ()):
            match = compiled.search(call.line)
            if match is None:
                continue
            words = match.group().split()
            pattern = row.pattern or " ".join([call.name, *words[:1]])
            yield Danger(self._family, row.reason, pattern)
