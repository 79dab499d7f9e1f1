"""Normal form: every value at the place that the schema has for it.

`model` may be a plain string, some keys may be under `gateway:`, a few keys
have older names, and environment variables stand for keys (`places.yaml`).
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path as FilePath
from typing import Any

import yaml

from hermes.config.check import fields_by_name
from hermes.config.document import Document, Mark, Path, parse_key
from hermes.domain.entry_points import entry_points
from hermes.domain.platforms import credentials
from hermes.domain.settings import Settings
from hermes.domain.settings.doors import Platform
from hermes.domain.settings.execution import Terminal

PLATFORMS = "hermes.platforms"
"""The group of entry points that chat platforms declare themselves in."""


@cache
def _places() -> dict[str, dict[str, str]]:
    """Return `places.yaml`: keys that have moved, and variables that stand for keys."""
    text = FilePath(__file__).with_name("places.yaml").read_text("utf-8")
    found: dict[str, dict[str, str]] = yaml.load(text, Loader=yaml.CSafeLoader)
    return found


def proper(path: Path) -> Path:
    """Return the proper place of a key that has an older name."""
    names = {parse_key(old): parse_key(new) for old, new in _places()["moved"].items()}
    return names.get(path, path)


def normalize(document: Document) -> None:
    data = document.data
    if isinstance(data.get("model"), str | int | float):
        _assign_with_marks(document, ("model",), ("model", "model"), data["model"])
    for old, new in _places()["moved"].items():
        _move(document, parse_key(old), parse_key(new))
    _streaming_mode(document)
    _platform_extras(document)


def _platform_extras(document: Document) -> None:
    """Move what only one platform knows to `platforms.<name>.extra`.

    That is its other keys there, and the older block `<name>:` at the root.
    """
    platforms = document.data.get("platforms")
    for name, platform in platforms.items() if isinstance(platforms, dict) else ():
        own = set(platform) - set(Platform.__struct_fields__) if isinstance(platform, dict) else ()
        for key in own:
            _move(document, ("platforms", name, key), ("platforms", name, "extra", key))
    blocks = [key for key, value in document.data.items() if _may_be_block(key, value)]
    if blocks:
        named = {*entry_points(PLATFORMS), *(platforms if isinstance(platforms, dict) else ())}
        for name in named.intersection(blocks):
            document.data[name] = document.data[name] or {}
            _move(document, (name,), ("platforms", name, "extra"))


def _may_be_block(key: str, value: Any) -> bool:
    return key not in Settings.__struct_fields__ and (value is None or isinstance(value, dict))


def _streaming_mode(document: Document) -> None:
    """Read the alias `streaming.mode`, which also switches streaming on or off."""
    old = ("streaming", "mode")
    mode = lookup(document.data, old)
    if mode is not None and lookup(document.data, ("streaming", "enabled")) is None:
        mark = Mark(document.origin(old))
        assign(document, ("streaming", "enabled"), mode not in (False, "off"), mark)
    _move(document, old, ("streaming", "transport"))


def lookup(data: Any, path: Path) -> Any:
    for name in path:
        if isinstance(data, list) and name.isdecimal() and int(name) < len(data):
            data = data[int(name)]
        elif isinstance(data, dict) and name in data:
            data = data[name]
        else:
            return None
    return data


def assign(document: Document, path: Path, value: Any, mark: Mark) -> None:
    data = document.data
    for name in path[:-1]:
        inner = data.get(name)
        data[name] = dict(inner) if isinstance(inner, dict) else {}
        data = data[name]
    data[path[-1]] = value
    document.forget(path)
    document.marks[path] = mark


def merge_over(document: Document, upper: Document) -> None:
    for path, value in _leaves(upper.data, ()):
        assign(document, path, value, Mark(upper.origin(path)))
        for known, mark in upper.marks.items():
            if known[: len(path)] == path:
                document.marks[known] = mark


def _leaves(value: Any, path: Path) -> list[tuple[Path, Any]]:
    if not isinstance(value, dict) or (path and not value):
        return [(path, value)]
    return [leaf for key, item in value.items() for leaf in _leaves(item, (*path, key))]


def _move(document: Document, old: Path, new: Path) -> None:
    parent = lookup(document.data, old[:-1])
    if not isinstance(parent, dict) or old[-1] not in parent:
        return
    value = parent[old[-1]]
    kept = {key: item for key, item in parent.items() if key != old[-1]}
    document.data = _replaced(document.data, old[:-1], kept)
    present = lookup(document.data, new)
    if isinstance(present, dict) and isinstance(value, dict):
        missing = [leaf for leaf in _leaves(value, ()) if lookup(present, leaf[0]) is None]
    else:
        missing = [((), value)] if present is None else []
    for below, item in missing:
        _assign_with_marks(document, (*old, *below), (*new, *below), item)


def _assign_with_marks(document: Document, old: Path, new: Path, value: Any) -> None:
    marks = {path: mark for path, mark in document.marks.items() if path[: len(old)] == old}
    assign(document, new, value, Mark(document.origin(old)))
    for path, mark in marks.items():
        document.marks[(*new, *path[len(old) :])] = mark


def _replaced(data: dict[str, Any], path: Path, value: Any) -> dict[str, Any]:
    if not path:
        assert isinstance(value, dict)
        return value
    return {**data, path[0]: _replaced(data[path[0]], path[1:], value)}


_LISTS = ("allowed_users", "allowed_hosts", "cors_origins")
_WHOLE_NUMBERS = ("port",)


def overrides_in(variables: Mapping[str, str]) -> Iterator[tuple[str, Path, Any]]:
    """Yield (variable, key, value) for each variable that stands for a key."""
    for name, path in variables_for(variables):
        text = variables.get(name, "").strip()
        if text:
            yield name, path, _value(path, text)
    if variables.get("HERMES_YOLO_MODE", "").strip().lower() in {"1", "true", "yes", "on"}:
        yield "HERMES_YOLO_MODE", ("approvals", "mode"), "off"


def variables_for(variables: Iterable[str] = ()) -> Iterator[tuple[str, Path]]:
    """Yield each variable with the key it stands for; those of platforms if they are named."""
    own = _places()["variables"]
    for name, key in own.items():
        yield name, parse_key(key)
    yield "TERMINAL_ENV", ("terminal", "backend")
    for name in fields_by_name(Terminal):
        if name != "backend":
            yield f"TERMINAL_{name.upper()}", ("terminal", name)
    for owner, each in credentials():
        inside = () if each.key in Platform.__struct_fields__ else ("extra",)
        yield each.variable, ("platforms", owner.name, *inside, each.key)
    for name in variables:
        for suffix, key in _places()["platform_variables"].items():
            platform = name.removesuffix(suffix).lower()
            if name.endswith(suffix) and platform and name not in own:
                yield name, ("platforms", platform, *parse_key(key))


def _value(path: Path, text: str) -> Any:
    if text[0] in "[{":
        try:
            return json.loads(text)
        except ValueError:
            return text
    if path[-1] in _LISTS or (path[0] == "terminal" and _is_list(path[-1])):
        return [item.strip() for item in text.split(",") if item.strip()]
    # `extra` has no schema that would turn text into a number.
    return int(text) if path[-1] in _WHOLE_NUMBERS and text.isdecimal() else text


def _is_list(field: str) -> bool:
    return isinstance(fields_by_name(Terminal)[field].default, tuple)
