"""Filters: which deliveries of a route matter.

    {field: payload.action, equals: opened}
    {any: [{field: event, in: [push, release]}, {not: {field: headers.x-a, exists: true}}]}

A list means that all must hold. Filters are checked when they are loaded; a
filter that cannot work is an error then and not a delivery lost later.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from hermes.control.webhooks.templates import MISSING, Missing, as_text, look_up
from hermes.domain.errors import ConfigError, HermesError
from hermes.domain.patterns import SafePattern

MAX_DEPTH = 20
MAX_LIST_BYTES = 4 * 1024 * 1024

Lists = Mapping[Path, frozenset[str]]


class Facts(Struct, frozen=True, kw_only=True):
    """What a filter can look at."""

    payload: Any
    event: str
    headers: Mapping[str, str]
    lists: Lists = {}
    """The contents of the files that `in_file` names."""


class Filter(Struct, frozen=True, kw_only=True):
    """A condition, ready for use."""

    holds: Callable[[Facts], bool]
    files: frozenset[Path] = frozenset()
    """What has to be read before `holds` is asked."""


def read_filter(raw: Any, home: Path) -> Filter:
    """Check and compile a filter; files that it names must be below `home`."""
    return _read(raw, home, 0)


def read_lists(files: frozenset[Path]) -> dict[Path, frozenset[str]]:
    """Read the files that a filter needs: JSON lists, or one value a line."""
    return {path: _list_in(path) for path in files}


def _read(raw: Any, home: Path, depth: int) -> Filter:
    if depth > MAX_DEPTH:
        raise _bad("is nested too deeply")
    if isinstance(raw, list):
        return _every([_read(each, home, depth + 1) for each in raw])
    if not isinstance(raw, Mapping) or not raw:
        raise _bad("is neither an object nor a list of objects")
    if "field" in raw:
        return _condition(raw, home)
    if len(raw) != 1:
        raise _bad("needs a `field`, or exactly one of `all`, `any`, `not`")
    (word, inner), *_ = raw.items()
    match word:
        case "all" | "any" if isinstance(inner, list) and inner:
            parts = [_read(each, home, depth + 1) for each in inner]
            return _every(parts) if word == "all" else _some(parts)
        case "not":
            return _negated(_read(inner, home, depth + 1))
    raise _bad(f"has `{word}` where a `field`, `all: [...]`, `any: [...]` or `not` is expected")


def _every(parts: list[Filter]) -> Filter:
    return Filter(holds=lambda facts: all(p.holds(facts) for p in parts), files=_files(parts))


def _some(parts: list[Filter]) -> Filter:
    return Filter(holds=lambda facts: any(p.holds(facts) for p in parts), files=_files(parts))


def _negated(part: Filter) -> Filter:
    return Filter(holds=lambda facts: not part.holds(facts), files=part.files)


def _files(parts: list[Filter]) -> frozenset[Path]:
    return frozenset(path for part in parts for path in part.files)


def _condition(raw: Mapping[str, Any], home: Path) -> Filter:
    value_of = _field(raw["field"])
    words = [word for word in raw if word != "field"]
    if not words:
        raise _bad(f"says nothing about `{raw['field']}`")
    parts = [_test(word, raw[word], value_of, home) for word in words]
    return _every(parts) if len(parts) > 1 else parts[0]


def _field(name: Any) -> Callable[[Facts], Any]:
    if not isinstance(name, str):
        raise _bad("has a `field` that is not text")
    root, _, rest = name.partition(".")
    if name == "event":
        return lambda facts: facts.event
    if name == "payload":
        return lambda facts: facts.payload
    if root == "payload" and rest:
        return lambda facts: look_up(facts.payload, rest)
    if root == "headers" and rest:
        header = rest.lower()
        return lambda facts: facts.headers.get(header, MISSING)
    raise _bad(f"looks at `{name}`; fields are `payload.…`, `event` and `headers.…`")


def _test(word: str, wanted: Any, value_of: Callable[[Facts], Any], home: Path) -> Filter:
    if word == "in_file":
        path = _below(wanted, home)
        return Filter(
            holds=lambda facts: _listed(value_of(facts), facts.lists.get(path, frozenset())),
            files=frozenset({path}),
        )
    check = _check(word, wanted)
    return Filter(holds=lambda facts: check(value_of(facts)))


def _check(word: str, wanted: Any) -> Callable[[Any], bool]:
    match word:
        case "equals":
            return lambda value: _same(value, wanted)
        case "not_equals":
            return lambda value: not _same(value, wanted)
        case "contains":
            return lambda value: _contains(value, wanted)
        case "in" if isinstance(wanted, list):
            return lambda value: any(_same(value, each) for each in wanted)
        case "exists" | "missing" if isinstance(wanted, bool):
            present = wanted if word == "exists" else not wanted
            return lambda value: (not isinstance(value, Missing)) is present
        case "regex" if isinstance(wanted, str):
            regex = SafePattern(wanted)
            return lambda value: not isinstance(value, Missing) and regex.found_in(as_text(value))
        case "in" | "exists" | "missing" | "regex":
            raise _bad(f"has a value for `{word}` that cannot be used")
    raise _bad(
        f"has `{word}`; there are equals, not_equals, contains, in, in_file, regex, exists, missing"
    )


def _same(value: Any, wanted: Any) -> bool:
    """Compare as JSON does: 1 and 1.0 are the same, 1 and true are not."""
    if isinstance(value, bool) is not isinstance(wanted, bool):
        return False
    return not isinstance(value, Missing) and bool(value == wanted)


def _contains(value: Any, wanted: Any) -> bool:
    if isinstance(value, str):
        return isinstance(wanted, str) and wanted in value
    if isinstance(value, list):
        return any(_same(each, wanted) for each in value)
    return isinstance(value, dict) and isinstance(wanted, str) and wanted in value


def _listed(value: Any, values: frozenset[str]) -> bool:
    return not isinstance(value, Missing) and as_text(value) in values


def _below(name: Any, home: Path) -> Path:
    if not isinstance(name, str) or not name:
        raise _bad("has an `in_file` that is not the name of a file")
    root = home.resolve()
    path = (root / name).resolve()
    if not path.is_relative_to(root):
        raise _bad(f"names the file {name}, which is not below the Hermes home")
    return path


def _list_in(path: Path) -> frozenset[str]:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_LIST_BYTES)
        text = data.decode("utf-8").strip()
        if text.startswith("["):
            return frozenset(as_text(each) for each in msgspec.json.decode(text, type=list[Any]))
    except (OSError, ValueError) as error:
        raise HermesError(
            f"The list {path.name} of a webhook filter cannot be read: {error}.",
            hint="Make it a JSON list or a text file with one value a line.",
        ) from error
    lines = (line.strip() for line in text.splitlines())
    return frozenset(line for line in lines if line and not line.startswith("#"))


def _bad(what: str) -> ConfigError:
    return ConfigError(f"A webhook filter {what}.", hint="See docs/how-to/webhooks.md, Filters.")
