"""Answers as bytes, with the headers that every answer has."""

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from hermes.entry.http.endpoint import EVENT_STREAM, JsonAnswer, TextAnswer

__all__ = ["JSON", "ON_EVERY_ANSWER", "ON_STREAMS", "Rendered", "encoded", "rendered"]

JSON = b"application/json"
ON_EVERY_ANSWER: dict[bytes, bytes] = {
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-resource-policy": b"same-origin",
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'",
    b"cache-control": b"no-store",
}
ON_STREAMS: dict[bytes, bytes] = {
    **ON_EVERY_ANSWER,
    b"content-type": EVENT_STREAM.encode() + b"; charset=utf-8",
    b"cache-control": b"no-cache, no-store",
    b"x-accel-buffering": b"no",
}


class Rendered(Struct, frozen=True):
    """An answer as it goes out."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes


def rendered(answer: JsonAnswer | TextAnswer) -> Rendered:
    """Return a value or a text as it goes out."""
    if isinstance(answer, JsonAnswer):
        body, kind = msgspec.json.encode(answer.value), JSON
    else:
        body, kind = answer.text.encode(), answer.media_type.encode()
    headers = ON_EVERY_ANSWER | {b"content-type": kind} | encoded(answer.headers)
    return Rendered(answer.status, headers, b"" if answer.status == 204 else body)


def encoded(headers: Mapping[str, str]) -> dict[bytes, bytes]:
    """Return headers as bytes; a value can hold nothing that would end its line."""
    return {
        name.lower().encode(): "".join(c if c.isprintable() else " " for c in value).encode()
        for name, value in headers.items()
    }
