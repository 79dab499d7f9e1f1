"""Lenient decoding: bytes to a struct, as much of it as makes sense.

The strict way first. A document that does not fit is read field by field, and what does not
fit is left out and named in the log: a new kind of quote must not cost the message it is
attached to. Half characters, broken bytes and senseless nesting are mended before that.
"""

import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar, get_args, get_origin

import msgspec
from msgspec.structs import fields

from hermes.domain.wording import clean_value

_LOG = logging.getLogger(__name__)
UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError, TypeError, OverflowError)
_TOKENS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)
_DEEPEST = 60
T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)


def decode_leniently(raw: bytes, wanted: type[S]) -> S | None:
    """Return a struct, or None if it makes no sense at all; the log names what is left out."""
    try:
        return msgspec.json.decode(raw, type=wanted)
    except UNREADABLE:
        left_out: list[str] = []
        document = _fitting(loose_document(raw), wanted, "", left_out)
    try:
        found = msgspec.convert(document, wanted)
    except UNREADABLE:
        return None
    if left_out:
        what = {each: document.get(each) for each in wanted.__struct_fields__[:1]}
        _LOG.warning("Left out of %s, for its unknown shape: %s", what, ", ".join(left_out))
    return found


def read_leniently(document: Any, wanted: type[S]) -> S | None:
    """Return a struct of what a library has decoded already, or None."""
    return None if document is None else decode_leniently(msgspec.json.encode(document), wanted)


def read_mended(raw: bytes, read: Callable[[bytes], T]) -> T:
    """Read a JSON object strictly, or else mended: one bad part must not cost all the others."""
    try:
        return read(raw)
    except UNREADABLE:
        return read(msgspec.json.encode(loose_document(raw)))


def decode_updates(
    raws: Iterable[bytes], wanted: type[S], number_field: str
) -> tuple[list[S], int | None]:
    """Decode updates one by one; return those that make sense, and the number after the last."""
    updates, numbers = list[S](), list[int]()
    for raw in map(bytes, raws):
        update = decode_leniently(raw, wanted)
        if update is not None:
            updates.append(update)
        number = getattr(update, number_field, None) or loose_document(raw).get(number_field)
        if isinstance(number, int):
            numbers.append(number)
        if update is None:
            _LOG.warning("Skipped update %s, which makes no sense", number)
    return updates, max(numbers) + 1 if numbers else None


def loose_document(raw: bytes) -> dict[str, Any]:
    """Return a JSON object without half characters; empty if it is none."""
    try:
        document = json.loads(
            b"".join(_shallow(raw)).decode("utf-8", "replace"),
            strict=False,
            parse_int=lambda digits: int(digits) if len(digits) < 19 else float(digits),
            parse_constant=lambda _name: None,
        )
    except UNREADABLE:
        return {}
    return clean_value(document) if isinstance(document, dict) else {}


def texts_in(document: Any, *names: str) -> tuple[str, ...]:
    """Return the texts in an object under these names; empty where there is none."""
    found = document if isinstance(document, dict) else {}
    return tuple(text if isinstance(text := found.get(name), str) else "" for name in names)


def _shallow(raw: bytes) -> Iterator[bytes]:
    """Yield a JSON text with null in place of what is nested too deep to be read."""
    depth = start = 0
    for token in _TOKENS.finditer(raw):
        if token[0] in b"[{":
            depth += 1
            if depth == _DEEPEST:
                yield raw[start : token.start()] + b"null"
        elif token[0] in b"]}":
            if depth == _DEEPEST:
                start = token.end()
            depth -= 1
    yield raw[start:]


def _fitting(document: Any, wanted: Any, path: str, left_out: list[str]) -> Any:
    """Return `document` without the parts that do not fit `wanted`, which are noted by name."""
    struct, item = _inside(wanted)
    if struct is not None and isinstance(document, dict):
        kept: dict[str, Any] = {}
        for each in fields(struct):
            if each.encode_name in document:
                name = f"{path}.{each.encode_name}".lstrip(".")
                value = _fitting(document[each.encode_name], each.type, name, left_out)
                if _fits(value, each.type):
                    kept[each.encode_name] = value
                else:
                    left_out.append(name)
        return kept
    if item is not None and isinstance(document, list):
        mended = [_fitting(each, item, path, left_out) for each in document]
        return [each for each in mended if _fits(each, item)]
    return document


def _inside(wanted: Any) -> tuple[type[msgspec.Struct] | None, Any]:
    """Return the struct that a type is or may be, or the type of its items."""
    if get_origin(wanted) is tuple:
        return None, get_args(wanted)[0]
    for each in (wanted, *get_args(wanted)):
        if isinstance(each, type) and issubclass(each, msgspec.Struct):
            return each, None
    return None, None


def _fits(value: Any, wanted: Any) -> bool:
    try:
        msgspec.convert(value, wanted)
    except UNREADABLE:
        return False
    return True
