"""Payloads: the values that templates fill in and filters look at.

A template has places for values, `{a.b.0.c}` and `{__raw__}`. Only a dotted
path can stand in braces: nothing is evaluated, and what is filled in is not
looked at again. A place whose value is missing stays as it is written.

A filter says which deliveries of a route matter:

    {field: payload.action, equals: opened}
    {any: [{field: event, in: [push, release]}, {not: {field: headers.x-a, exists: true}}]}

A list means that all must hold. Filters are checked when they are loaded; a
filter that cannot work is an error then and not a delivery lost later.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from hermes.domain.errors import ConfigError, HermesError
from hermes.domain.patterns import SafePattern

MISSING: Final = object()
"""There is no such value; unlike None, which a payload may hold."""
MAX_VALUE = 2000
"""Characters of an object or a list in a text."""
MAX_RAW = 4000
"""Characters of the whole payload in a text."""
MAX_TEXT = 100_000
"""Characters of a rendered text."""
MAX_DEPTH = 20
MAX_LIST_BYTES = 4 * 1024 * 1024
_PLACE = re.compile(r"\{([^{}\s]{1,200})\}")
_POSITION = re.compile(r"[0-9]{1,9}")


def look_up(value: Any, path: str) -> Any:
    """Return what `path` names: keys of objects and positions in lists, nothing else."""
    for step in path.split("."):
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and _POSITION.fullmatch(step) and int(step) < len(value):
            value = value[int(step)]
        else:
            return MISSING
    return value


def as_text(value: Any) -> str:
    """Return a value of a payload as text: text as it is, everything else as JSON."""
    return value if isinstance(value, str) else as_json(value, MAX_VALUE)


def as_json(value: Any, limit: int = MAX_RAW) -> str:
    return _shortened(msgspec.json.encode(value).decode(), limit)


def _shortened(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: max(limit - 1, 0)]}…"[:limit]


def render(template: str, payload: Any, quote: Callable[[str], str] = str) -> str:
    """Fill in the values of `payload`, each passed through `quote` first."""
    room = MAX_TEXT

    def fill(match: re.Match[str]) -> str:
        nonlocal room
        value = as_json(payload) if match[1] == "__raw__" else look_up(payload, match[1])
        if value is MISSING:
            return match[0]
        text = _shortened(quote(as_text(value)), max(room, 0))
        room -= len(text)
        return text

    return _PLACE.sub(fill, template)


# -- filters -----------------------------------------------------------------


class Facts(Struct, frozen=True, kw_only=True):
    payload: Any
    event: str
    headers: Mapping[str, str]


Condition = Callable[[Facts], bool]


class Filter:
    """A condition on deliveries, checked and ready for use; files it names are below `home`."""

    def __init__(self, raw: Any, home: Path) -> None:
        self._home = home.resolve()
        self._condition = self._read(raw, 0)

    def holds(self, facts: Facts) -> bool:
        """Ask it in a thread: it may read lists from files, and raise `HermesError` over them."""
        return self._condition(facts)

    def _read(self, raw: Any, depth: int) -> Condition:
        if depth > MAX_DEPTH:
            raise _bad("is nested too deeply")
        if isinstance(raw, list):
            return _every([self._read(each, depth + 1) for each in raw])
        if not isinstance(raw, Mapping) or not raw:
            raise _bad("is neither an object nor a list of objects")
        if "field" in raw:
            return self._fields(raw)
        if len(raw) != 1:
            raise _bad("needs a `field`, or exactly one of `all`, `any`, `not`")
        (word, inner), *_ = raw.items()
        match word:
            case "all" | "any" if isinstance(inner, list) and inner:
                parts = [self._read(each, depth + 1) for each in inner]
                if word == "all":
                    return _every(parts)
                return lambda facts: any(holds(facts) for holds in parts)
            case "not":
                holds = self._read(inner, depth + 1)
                return lambda facts: not holds(facts)
        raise _bad(f"has `{word}` where a `field`, `all: [...]`, `any: [...]` or `not` is expected")

    def _fields(self, raw: Mapping[str, Any]) -> Condition:
        value_of = _field(raw["field"])
        checks = [self._check(word, wanted) for word, wanted in raw.items() if word != "field"]
        if not checks:
            raise _bad(f"says nothing about `{raw['field']}`")

        def holds(facts: Facts) -> bool:
            value = value_of(facts)
            return all(check(value) for check in checks)

        return holds

    def _check(self, word: str, wanted: Any) -> Callable[[Any], bool]:
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
                return lambda value: (value is not MISSING) is present
            case "regex" if isinstance(wanted, str):
                regex = SafePattern(wanted)
                return lambda value: value is not MISSING and regex.found_in(as_text(value))
            case "in_file":
                path = self._below_home(wanted)
                return lambda value: value is not MISSING and as_text(value) in _list_in(path)
            case "in" | "exists" | "missing" | "regex":
                raise _bad(f"has a value for `{word}` that cannot be used")
        words = "equals, not_equals, contains, in, in_file, regex, exists, missing"
        raise _bad(f"has `{word}`; there are {words}")

    def _below_home(self, name: Any) -> Path:
        if not isinstance(name, str) or not name:
            raise _bad("has an `in_file` that is not the name of a file")
        path = (self._home / name).resolve()
        if not path.is_relative_to(self._home):
            raise _bad(f"names the file {name}, which is not below the Hermes home")
        return path


def _every(parts: list[Condition]) -> Condition:
    return lambda facts: all(holds(facts) for holds in parts)


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


def _same(value: Any, wanted: Any) -> bool:
    """Compare as JSON does: 1 and 1.0 are the same, 1 and true are not."""
    if isinstance(value, bool) is not isinstance(wanted, bool):
        return False
    return value is not MISSING and bool(value == wanted)


def _contains(value: Any, wanted: Any) -> bool:
    if isinstance(value, list):
        return any(_same(each, wanted) for each in value)
    return isinstance(value, str | dict) and isinstance(wanted, str) and wanted in value


def _list_in(path: Path) -> frozenset[str]:
    """Read a list: JSON, or one value a line."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_LIST_BYTES).decode("utf-8").strip()
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
