"""Finding a value in a payload by its dotted path."""

from typing import Any, Final

__all__ = ["MISSING", "Missing", "look_up"]


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
