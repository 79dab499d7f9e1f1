"""Templates: texts with places for values of the payload: `{a.b.0.c}` and `{__raw__}`.

Only a dotted path can stand in braces: nothing is evaluated, and what is
filled in is not looked at again. A place whose value is missing stays as it
is written.
"""

import re
from collections.abc import Callable
from typing import Any, Final

import msgspec


class Missing:
    """There is no such value; unlike None, which a payload may hold."""


MISSING: Final = Missing()


def look_up(value: Any, path: str) -> Any:
    """Return what `path` names: keys of objects and positions in lists, nothing else."""
    for step in path.split("."):
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and _position(step) < len(value):
            value = value[_position(step)]
        else:
            return MISSING
    return value


def _position(step: str) -> int:
    """Return the position that `step` names; one behind every list if it names none."""
    usable = step.isascii() and step.isdecimal() and len(step) <= 9
    return int(step) if usable else 10**9


MAX_VALUE = 2000
"""Characters of an object or a list in a text."""
MAX_RAW = 4000
"""Characters of the whole payload in a text."""
MAX_TEXT = 100_000
"""Characters of a rendered text."""
_PLACE = re.compile(r"\{([^{}\s]{1,200})\}")


def render(template: str, payload: Any, quote: Callable[[str], str] = str) -> str:
    """Fill in the values of `payload`, each passed through `quote` first."""
    room = MAX_TEXT

    def fill(match: re.Match[str]) -> str:
        nonlocal room
        text = _value(payload, match[1])
        if text is None:
            return match[0]
        text = shortened(quote(text), max(room, 0))
        room -= len(text)
        return text

    return _PLACE.sub(fill, template)


def as_text(value: Any) -> str:
    """Return a value of a payload as text: text as it is, everything else as JSON."""
    return value if isinstance(value, str) else as_json(value, MAX_VALUE)


def as_json(value: Any, limit: int) -> str:
    """Return a value as JSON of at most `limit` characters."""
    return shortened(msgspec.json.encode(value).decode(), limit)


def shortened(text: str, limit: int) -> str:
    """Return at most `limit` characters, showing that some are missing."""
    return text if len(text) <= limit else f"{text[: max(limit - 1, 0)]}…"[:limit]


def _value(payload: Any, path: str) -> str | None:
    if path == "__raw__":
        return as_json(payload, MAX_RAW)
    value = look_up(payload, path)
    return None if isinstance(value, Missing) else as_text(value)
