"""Taking secrets out of whole answers, wherever in them they stand."""

from collections.abc import Callable
from typing import Any

import msgspec

__all__ = ["redacted"]


def redacted(value: Any, redact: Callable[[str], str]) -> Any:
    """Return a value as JSON has it, with every text in it redacted; keys stay."""
    return _clean(msgspec.to_builtins(value), redact)


def _clean(value: Any, redact: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {name: _clean(each, redact) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(each, redact) for each in value]
    return value
