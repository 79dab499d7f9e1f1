"""Looking at the effective configuration, key by key and without secrets."""

import json
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from hermes.config.check import fields_by_name
from hermes.config.keys import Path, format_key
from hermes.config.loader import LoadedConfig
from hermes.config.meaning import default_of
from hermes.config.schema.base import masked
from hermes.domain.errors import NotFound

__all__ = ["effective", "leaves", "plain", "shown"]


def effective(loaded: LoadedConfig, path: Path) -> Any:
    """Return the value of a key; raise `NotFound` if there is no such key."""
    value: Any = loaded.config
    for depth, name in enumerate(path):
        found, value = _step(value, name)
        if not found:
            missing = format_key(path[: depth + 1])
            raise NotFound(
                f"There is no configuration key `{missing}`.",
                hint="List all keys with: hermes config show --all",
            )
    return value


def leaves(loaded: LoadedConfig, *, everything: bool) -> Iterator[tuple[Path, Any]]:
    """Yield each key with its value; only what differs from the default if not `everything`."""
    for path, value in _walk(loaded.config, ()):
        if path != ("_config_version",) and (everything or value != default_of(path)):
            yield path, value


def plain(loaded: LoadedConfig, path: Path, value: Any) -> Any:
    """Return a value as JSON-able data with everything secret masked."""
    data = masked(path[-1] if path else "", msgspec.to_builtins(value))
    return _whole(loaded.redactor().redact_value(data))


def shown(data: Any) -> str:
    """Write a value on one line for people."""
    return data if isinstance(data, str) and data else json.dumps(data, ensure_ascii=False)


def _whole(data: Any) -> Any:
    """Write 60.0 as 60: that is how people write it in the file."""
    if isinstance(data, dict):
        return {key: _whole(item) for key, item in data.items()}
    if isinstance(data, list):
        return [_whole(item) for item in data]
    return int(data) if isinstance(data, float) and data.is_integer() else data


def _step(value: Any, name: str) -> tuple[bool, Any]:
    if isinstance(value, Struct):
        info = fields_by_name(type(value)).get(name)
        return (False, None) if info is None else (True, getattr(value, info.name))
    if isinstance(value, dict):
        return name in value, value.get(name)
    if isinstance(value, tuple | list) and name.isdecimal() and int(name) < len(value):
        return True, value[int(name)]
    return False, None


def _walk(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, Struct):
        for name, info in fields_by_name(type(value)).items():
            yield from _walk(getattr(value, info.name), (*path, name))
    elif isinstance(value, dict) and value:
        for name, item in value.items():
            yield from _walk(item, (*path, str(name)))
    else:
        yield path, value
