"""The meaning of a key: the sentence under its field in the schema.

The sentences are read from the source on request, so they cost nothing
otherwise and cannot drift from the code.
"""

import ast
import inspect
import textwrap
from typing import Any, get_args, get_origin

import msgspec
from msgspec import Struct

from hermes.config.check import bare, fields_by_name, struct_of
from hermes.config.document import Path, parse_document
from hermes.domain.errors import ConfigError
from hermes.domain.settings import Settings


def type_of(path: Path) -> Any:
    """Return the type the schema gives a key, or None where it knows nothing."""
    kind: Any = Settings
    for name in path:
        kind = bare(kind)
        section = struct_of(kind)
        if section is not None:
            info = fields_by_name(section).get(name)
            kind = info.type if info is not None else None
        elif get_origin(kind) is dict:
            kind = get_args(kind)[1]
        elif get_origin(kind) is tuple:
            kind = get_args(kind)[0]
        else:
            return None
    return kind


def parse_value(path: Path, text: str) -> Any:
    """Read a value from the command line as YAML or JSON, minding the key's type."""
    try:
        value = parse_document(f"value: {text}".encode(), "value").data["value"]
    except ConfigError:
        return text
    if isinstance(value, str) and not text.lstrip().startswith(('"', "'")):
        value = text
    kind = type_of(path)
    if kind is None or struct_of(kind) is not None:
        return value
    for candidate in (value, text):
        try:
            msgspec.convert(candidate, kind)
        except msgspec.ValidationError:
            continue
        return candidate
    return value


def meaning_of(path: Path) -> str:
    """Return the sentence that explains a key; empty where the schema has none."""
    section = struct_of(Settings if len(path) == 1 else type_of(path[:-1]))
    if section is not None and path[-1] in fields_by_name(section):
        name = fields_by_name(section)[path[-1]].name
        for kind in section.__mro__:
            if found := _sentences(kind).get(name):
                return found
    own = struct_of(type_of(path))
    return "" if own is None else (inspect.getdoc(own) or "")


def default_of(path: Path) -> object:
    """Return the default of a key; None where there is none."""
    value: object = Settings()
    for depth, name in enumerate(path):
        if isinstance(value, Struct) and name in fields_by_name(type(value)):
            value = getattr(value, fields_by_name(type(value))[name].name)
        elif isinstance(value, dict) and name in value:
            value = value[name]
        else:
            kind = struct_of(type_of(path[: depth + 1]))
            known = fields_by_name(kind).values() if kind else ()
            value = None if kind is None or any(info.required for info in known) else kind()
    return value


def _sentences(kind: type) -> dict[str, str]:
    if not issubclass(kind, Struct) or not kind.__module__.startswith("hermes."):
        return {}
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(body, ast.ClassDef)
    found: dict[str, str] = {}
    for field, after in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            text = _literal(after)
            if text:
                found[field.target.id] = text
    return found


def _literal(node: ast.stmt) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        value = node.value.value
        return inspect.cleandoc(value) if isinstance(value, str) else ""
    return ""
