"""Dialects: Markdown as each kind of platform wants it.

A dialect is a module with the functions of `Dialect`, found by the entry points
`hermes.dialects`. Text is split by
`weight` before it is rendered: the weight of a text is the sum over its
parts, and neither what `render` shows nor what `plain` returns is ever longer.
"""

from functools import cache
from typing import Protocol, cast

from hermes.domain.entry_points import entry_points, load_entry_point
from hermes.domain.errors import ConfigError
from hermes.domain.platforms import LengthUnit

GROUP = "hermes.dialects"


class Dialect(Protocol):
    """What a dialect module offers."""

    def render(self, markdown: str) -> str: ...

    def plain(self, markdown: str) -> str: ...

    def visible_length(self, rendered: str, unit: LengthUnit) -> int: ...

    def weight(self, markdown: str, unit: LengthUnit) -> int:
        """Return the most that `markdown` can take when it is rendered."""
        ...


@cache
def load_dialect(name: str) -> Dialect:
    dialects = entry_points(GROUP)
    if name not in dialects:
        raise ConfigError(
            f"There is no text dialect called {name!r}.",
            hint=f"Known dialects: {', '.join(dialects)}.",
        )
    return cast("Dialect", load_entry_point(dialects[name]))
