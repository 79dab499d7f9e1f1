"""What type a key has, and reading its value from the command line."""

from typing import Any, get_args, get_origin

import msgspec

from hermes.config.check import bare, fields_by_name, struct_of
from hermes.config.document import parse_document
from hermes.config.keys import Path
from hermes.domain.errors import ConfigError
from hermes.domain.settings import Settings

__all__ = ["parse_value", "type_of"]


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
