"""Bytes to updates, as much of them as makes sense.

The strict way first. An update that does not fit is read field by field, and
what does not fit is left out: a new kind of quote must not cost the message it
is attached to.
"""

import json
from typing import Any

import msgspec

from hermes.entry.chat.telegram.wire import MessageWire, UpdateId, UpdateWire

__all__ = ["decode_update", "update_number"]

_UPDATE = msgspec.json.Decoder(UpdateWire)
_NUMBER = msgspec.json.Decoder(UpdateId)
_BAD = (msgspec.MsgspecError, ValueError, RecursionError, TypeError)
_FIELDS = {field.encode_name: field for field in msgspec.structs.fields(MessageWire)}


def update_number(raw: bytes) -> int | None:
    """Return an update's number, or None if it has none."""
    try:
        return _NUMBER.decode(raw).update_id
    except _BAD:
        document = _loose(raw)
        number = document.get("update_id")
        return number if isinstance(number, int) else None


def decode_update(raw: bytes) -> UpdateWire | None:
    """Return the update, or None if it makes no sense at all."""
    try:
        return _UPDATE.decode(raw)
    except _BAD:
        return _salvage(_loose(raw))


def _loose(raw: bytes) -> dict[str, Any]:
    try:
        document = json.loads(raw)
    except _BAD:
        return {}
    return _clean(document) if isinstance(document, dict) else {}


def _clean(value: Any, depth: int = 0) -> Any:
    """Take half characters (lone surrogates) out: nothing downstream can store them."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if depth > 20:
        return None
    if isinstance(value, dict):
        return {_clean(key): _clean(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_clean(item, depth + 1) for item in value]
    return value


def _salvage(document: dict[str, Any]) -> UpdateWire | None:
    for name in ("message", "channel_post"):
        inner = document.get(name)
        if isinstance(inner, dict):
            document = {**document, name: _fitting(inner)}
    try:
        return msgspec.convert(document, UpdateWire)
    except _BAD:
        return None


def _fitting(message: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name, value in message.items():
        field = _FIELDS.get(name)
        if field is None:
            continue
        try:
            msgspec.convert(value, field.type)
        except _BAD:
            continue
        kept[name] = value
    return kept
