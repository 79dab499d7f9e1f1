"""Dialects: Markdown as each kind of platform wants it.

A dialect is a module with the functions of `Dialect`. Text is split by
`weight` before it is rendered: the weight of a text is the sum over its
parts, and neither what `render` shows nor what `plain` returns is ever longer.
"""

from importlib import import_module
from typing import Protocol, cast

from hermes.domain.errors import ConfigError
from hermes.domain.ports.platform import LengthUnit

__all__ = ["DIALECTS", "Dialect", "load_dialect"]

DIALECTS = {
    "discord": "hermes.streaming.markup.discord",
    "plain": "hermes.streaming.markup.plain",
    "slack_mrkdwn": "hermes.streaming.markup.slack_mrkdwn",
    "telegram_html": "hermes.streaming.markup.telegram_html",
}


class Dialect(Protocol):
    """What a dialect module offers."""

    def render(self, markdown: str) -> str:
        """Return `markdown` in this dialect."""
        ...

    def plain(self, markdown: str) -> str:
        """Return `markdown` without any markup."""
        ...

    def visible_length(self, rendered: str, unit: LengthUnit) -> int:
        """Return how long the platform takes `rendered` to be."""
        ...

    def weight(self, markdown: str, unit: LengthUnit) -> int:
        """Return the most that `markdown` can take when it is rendered."""
        ...


def load_dialect(name: str) -> Dialect:
    """Return the dialect called `name`."""
    try:
        return cast("Dialect", import_module(DIALECTS[name]))
    except KeyError:
        raise ConfigError(
            f"There is no text dialect called {name!r}.",
            hint=f"Known dialects: {', '.join(sorted(DIALECTS))}.",
        ) from None
