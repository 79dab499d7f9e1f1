"""Lenient decoding: bytes to a struct, as much of it as makes sense.

The strict way first. A document that does not fit is read field by field, and what does not
fit is left out: a new kind of quote must not cost the message it is attached to.
"""

import json
from typing import Any, TypeVar

import msgspec
from msgspec.structs import fields

from hermes.domain.wording import clean_value

_BAD = (msgspec.MsgspecError, ValueError, RecursionError, TypeError)
S = TypeVar("S", bound=msgspec.Struct)


def decode_leniently(raw: bytes, wanted: type[S], mend: type[msgspec.Struct]) -> S | None:
    """Return a struct, or None if it makes no sense at all.

    Where a field of `wanted` holds a `mend`, the fields of that one that do not fit are dropped.
    """
    try:
        return msgspec.json.decode(raw, type=wanted)
    except _BAD:
        document = loose_document(raw)
    mended = {each.encode_name for each in fields(wanted) if _holds(each.type, mend)}
    for name in mended:
        if isinstance(document.get(name), dict):
            document[name] = _fitting(document[name], mend)
    try:
        return msgspec.convert(document, wanted)
    except _BAD:
        return None


def loose_document(raw: bytes) -> dict[str, Any]:
    """Return a JSON object without half characters; empty if it is none."""
    try:
        document = json.loads(raw)
    except _BAD:
        return {}
    return clean_value(document) if isinstance(document, dict) else {}


def _holds(field: Any, wanted: type) -> bool:
    return field is wanted or wanted in getattr(field, "__args__", ())


def _fitting(document: dict[str, Any], wanted: type[msgspec.Struct]) -> dict[str, Any]:
    known = {field.encode_name: field for field in fields(wanted)}
    kept: dict[str, Any] = {}
    for name, value in document.items():
        if name not in known:
            continue
        try:
            msgspec.convert(value, known[name].type)
        except _BAD:
            continue
        kept[name] = value
    return kept
