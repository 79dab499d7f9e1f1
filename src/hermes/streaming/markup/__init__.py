"""Dialects: Markdown as each kind of platform wants it.

A dialect is an object with the four public methods of `plain.Dialect`, found by
the entry points `hermes.dialects`. Text is split by `weight` before it is
rendered: the weight of a text is the sum over its parts, and neither what
`render` shows nor what `plain` returns is ever longer.
"""

from functools import cache
from typing import cast

from hermes.domain.entry_points import entry_points, load_entry_point
from hermes.domain.errors import ConfigError
from hermes.streaming.markup.plain import Dialect

GROUP = "hermes.dialects"


@cache
def load_dialect(name: str) -> Dialect:
    dialects = entry_points(GROUP)
    if name not in dialects:
        raise ConfigError(
            f"There is no text dialect called {name!r}.",
            hint=f"Known dialects: {', '.join(dialects)}.",
        )
    return cast("Dialect", load_entry_point(dialects[name]))
