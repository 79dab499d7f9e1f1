"""Checker: plain data to typed `Settings`, with every problem reported.

It walks struct by struct and leaf by leaf: a wrong leaf is reported and keeps
its default, so one run reports all problems. Unknown keys are warnings.
"""

import types
from functools import cache
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
import yaml
from msgspec import NODEFAULT, Struct
from msgspec.structs import FieldInfo, fields

from hermes.config.document import ConfigProblem, Document, Path, format_key
from hermes.domain.entry_points import entry_points
from hermes.domain.settings import Settings
from hermes.domain.settings.section import is_secret_name

_WORDS_OF_BOOLEANS = {False: ("off", "no", "false"), True: ("on", "yes", "true")}
_NAMES = {
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "true or false",
    type(None): "null",
    dict: "a mapping",
    tuple: "a list",
    list: "a list",
}


@cache
def fields_by_name(kind: type[Struct]) -> dict[str, FieldInfo]:
    """Return the fields of a section by the name they have in the file."""
    return {info.encode_name: info for info in fields(kind)}


def bare(kind: Any) -> Any:
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def struct_of(kind: Any) -> type[Struct] | None:
    """Return the section that a field of type `kind` holds, if it holds one."""
    kind = bare(kind)
    if isinstance(kind, type) and issubclass(kind, Struct):
        return kind
    if get_origin(kind) in {Union, types.UnionType}:
        return next((found for arg in get_args(kind) if (found := struct_of(arg))), None)
    return None


def offered(kind: Any) -> Any:
    """Return the name of an entry point as a choice of what is installed; else `kind`."""
    metas = (arg for arg in get_args(kind) if isinstance(arg, msgspec.Meta) and arg.extra)
    group = next((meta.extra.get("entry_points") for meta in metas if meta.extra), None)
    return Literal[tuple(entry_points(group))] if group else kind


def describe(kind: Any) -> str:
    """Say in words what values a type accepts."""
    kind = offered(kind)
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        bounds = [_bounds(arg) for arg in args[1:] if isinstance(arg, msgspec.Meta)]
        return describe(args[0]) + "".join(bounds)
    if origin is Literal:
        return "one of " + ", ".join(str(arg) for arg in args if arg != "")
    if origin in {Union, types.UnionType}:
        return " or ".join(describe(arg) for arg in args)
    plain = origin or kind
    if isinstance(plain, type) and issubclass(plain, Struct):
        return "a mapping"
    return _NAMES.get(plain, "any value")


def _bounds(meta: msgspec.Meta) -> str:
    if meta.ge is not None and meta.le is not None:
        return f" from {meta.ge:g} to {meta.le:g}"
    return f" of at least {meta.ge:g}" if meta.ge is not None else ""


@cache
def known_keys() -> dict[Path, str]:
    """Return the keys that are known and have no effect, each with what to use instead."""
    text = FilePath(__file__).with_name("known_keys.yaml").read_text("utf-8")
    found = yaml.load(text, Loader=yaml.CSafeLoader)
    return {tuple(key.split(".")): reason for key, reason in found.items()}


def without_effect(path: Path) -> str | None:
    for known, reason in known_keys().items():
        if len(known) == len(path) and all(a in {"*", b} for a, b in zip(known, path, strict=True)):
            return reason
    return None


class Checker:
    """Checks one document; ask for `errors`, `warnings` and `unused` afterwards."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self.errors: list[ConfigProblem] = []
        self.warnings: list[ConfigProblem] = []
        self.unused: list[ConfigProblem] = []
        """Keys with a value that have no effect in this version."""
        self.unknown: list[str] = []

    def config(self) -> Settings:
        built = self._struct(Settings, self._document.data, ())
        assert isinstance(built, Settings)
        return built

    def _struct(self, kind: type[Struct], value: Any, path: Path) -> Any:
        if not isinstance(value, dict):
            self._wrong(path, "a mapping of keys to values", value)
            return NODEFAULT
        known = fields_by_name(kind)
        given: dict[str, Any] = {}
        for key, item in value.items():
            if key not in known:
                self._unknown(kind, (*path, key), item)
                continue
            built = self._field(known[key], item, (*path, key))
            if built is not NODEFAULT:
                given[known[key].name] = built
        missing = [n for n, info in known.items() if info.required and value.get(n) is None]
        for name in missing:
            self.errors.append(self._problem((*path, name), "is missing"))
        complete = all(info.name in given for info in known.values() if info.required)
        return kind(**given) if complete else NODEFAULT

    def _field(self, info: FieldInfo, value: Any, path: Path) -> Any:
        """Build a field; what the file leaves out of a section is as in its parent's default."""
        built = self._value(info.type, value, path)
        if not isinstance(value, dict) or built is NODEFAULT:
            return built
        if isinstance(info.default, Struct):
            return _over(info.default, built, value)
        base = {} if info.default_factory is NODEFAULT else info.default_factory()
        if not isinstance(base, dict) or not isinstance(built, dict):
            return built
        return base | {
            key: _over(base[key], item, value[key]) if key in base else item
            for key, item in built.items()
        }

    def _value(self, kind: Any, value: Any, path: Path) -> Any:
        if value is None:
            return self._null(kind, path)
        kind = _collection(kind, value)
        origin, args = get_origin(kind), get_args(kind)
        section = struct_of(kind)
        if section is not None:
            return self._struct(section, value, path)
        if origin is dict and args[1] is not Any:
            return self._mapping(args[1], value, path)
        if origin is tuple and args[0] is not Any:
            return self._sequence(args[0], value, path)
        return self._leaf(kind, value, path)

    def _null(self, kind: Any, path: Path) -> Any:
        kind = bare(kind)
        if kind is Any or type(None) in get_args(kind):
            return None
        mark = self._document.marks.get(path)
        plain = struct_of(kind) is None and get_origin(kind) not in {dict, tuple}
        if plain and mark is not None and mark.text:
            self.warnings.append(self._problem(path, "is null; the default is used"))
        return NODEFAULT

    def _mapping(self, kind: Any, value: Any, path: Path) -> Any:
        if not isinstance(value, dict):
            return self._wrong(path, "a mapping of keys to values", value)
        built = {key: self._value(kind, item, (*path, key)) for key, item in value.items()}
        return {key: item for key, item in built.items() if item is not NODEFAULT}

    def _sequence(self, kind: Any, value: Any, path: Path) -> Any:
        if not isinstance(value, list):
            return self._wrong(path, "a list", value)
        built = (self._value(kind, item, (*path, str(at))) for at, item in enumerate(value))
        return tuple(item for item in built if item is not NODEFAULT)

    def _leaf(self, kind: Any, value: Any, path: Path) -> Any:
        kind = offered(kind)
        for candidate, strict in self._readings(value, path):
            try:
                return msgspec.convert(candidate, kind, strict=strict)
            except msgspec.ValidationError:
                continue
        return self._wrong(path, describe(kind), value, kind)

    def _readings(self, value: Any, path: Path) -> list[tuple[Any, bool]]:
        """List what a scalar may mean, the literal reading first."""
        readings: list[tuple[Any, bool]] = [(value, True)]
        mark = self._document.marks.get(path)
        if isinstance(value, str):
            return [*readings, (value, False), (_boolean(value), True)]
        if mark is not None and mark.text is not None:
            readings.append((mark.text, False))
        if isinstance(value, bool):
            readings += [(word, True) for word in _WORDS_OF_BOOLEANS[value]]
        elif isinstance(value, int | float):
            readings.append((str(value), True))
        return readings

    def _wrong(self, path: Path, expected: str, value: Any, kind: Any = None) -> Any:
        secret = any(is_secret_name(name) for name in path)
        found = "a value that is not shown" if secret else _found(value)
        text = f"should be {expected}, but is {found}{_meant(kind, value)}"
        self.errors.append(self._problem(path, text))
        return NODEFAULT

    def _problem(self, path: Path, text: str) -> ConfigProblem:
        return ConfigProblem(where=self._document.origin(path), key=format_key(path), text=text)

    def _unknown(self, kind: type[Struct], path: Path, value: Any) -> None:
        if path[-1].startswith(("_", "x-")):
            return
        reason = without_effect(path)
        if reason is not None:
            if value not in (None, "", {}, []):
                self.unused.append(self._problem(path, f"has no effect here: {reason}"))
            return
        self.unknown.append(format_key(path))
        meant = close_match(path[-1], list(fields_by_name(kind)))
        self.warnings.append(self._problem(path, f"is not a known key and has no effect{meant}"))


def _collection(kind: Any, value: Any) -> Any:
    """Return the list or mapping that a union has for the value, and any other type as it is."""
    plain = bare(kind)
    if get_origin(plain) in {tuple, dict}:
        return plain
    if get_origin(plain) not in {Union, types.UnionType}:
        return kind
    others = [arg for arg in get_args(plain) if arg is not type(None)]
    if {get_origin(arg) for arg in others} == {tuple, dict}:
        fitting = dict if isinstance(value, dict) else tuple
        others = [arg for arg in others if get_origin(arg) is fitting]
    return others[0] if len(others) == 1 and get_origin(others[0]) in {tuple, dict} else kind


def _over(default: Struct, built: Struct, given: dict[str, Any]) -> Struct:
    names = fields_by_name(type(default))
    taken = {names[key].name: getattr(built, names[key].name) for key in given if key in names}
    return msgspec.structs.replace(default, **taken)


def close_match(name: str, names: list[str]) -> str:
    import difflib  # noqa: PLC0415 - costs milliseconds, needed for mistakes only

    close = difflib.get_close_matches(name, names, n=1, cutoff=0.7)
    return f"; did you mean `{close[0]}`?" if close else ""


def _meant(kind: Any, value: Any) -> str:
    if get_origin(kind) is not Literal or not isinstance(value, str):
        return ""
    return close_match(value, [str(arg) for arg in get_args(kind)])


def _boolean(text: str) -> bool | str:
    folded = text.strip().lower()
    if folded in {"1", "true", "yes", "on"}:
        return True
    return False if folded in {"0", "false", "no", "off"} else text


def _found(value: Any) -> str:
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, bool):
        return str(value).lower()
    shown = str(value)
    return (
        repr(shown if len(shown) <= 60 else f"{shown[:60]}…") if isinstance(value, str) else shown
    )
