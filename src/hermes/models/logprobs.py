"""Probabilities of the tokens of an answer: JSON that is passed on as it came.

With 20 alternatives a token has 190 values. Nobody here looks at them, so they are neither
decoded nor counted: to skip them takes a hundredth of the time, and to keep them a tenth of
the memory.
"""

from typing import Any

import msgspec
from msgspec import Raw, Struct

from hermes.domain.nesting import nested_too_deeply
from hermes.models.bounds import LOGPROBS

NONE = Raw(b"null")
_ON_ONE_LINE = bytes.maketrans(b"\r\n", b"  ")
_OVERHEAD = 64
"""Bytes that keeping a piece takes beside its own."""


class Logprobs:
    """Gathers the tokens of one answer."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0

    def add(self, tokens: Raw) -> None:
        """Keep a JSON list of tokens; anything else, and what nobody could read again, is not."""
        found = bytes(tokens)
        inner = found[1:-1].strip()
        if not (found.startswith(b"[") and inner) or nested_too_deeply(found):
            return
        inner = inner.translate(_ON_ONE_LINE)  # between values only: texts have no line breaks
        self._size += len(inner) + _OVERHEAD
        LOGPROBS.hold(self._size)
        self._pieces.append(inner)

    def text(self) -> str:
        """Return all of them as one JSON list; empty if there are none."""
        whole = b",".join(self._pieces)
        return f"[{whole.decode('utf-8', 'replace')}]" if whole else ""


# -- finding them --------------------------------------------------------------
#
# A list of any length costs nothing if it is read into a struct: what its fields do not take is
# skipped.


def _first(count: int, each: Any) -> Any:
    """Return a type that reads the first elements of a list and skips the others."""
    fields: list[Any] = [(f"at_{n}", each | None, None) for n in range(count)]
    return msgspec.defstruct("_First", fields, array_like=True)


class _Told(Struct):
    logprobs: Raw = NONE


class _Message(Struct):
    content: _first(8, _Told) | str | None = None  # type: ignore[valid-type]


class _Output(Struct):
    output: _first(64, _Message) | None = None  # type: ignore[valid-type]


class _Event(Struct):
    """Where they are in events and documents of both protocols of OpenAI."""

    choices: _first(1, _Told) | None = None  # type: ignore[valid-type]
    logprobs: Raw = NONE
    part: _Told | None = None
    item: _Message | None = None
    response: _Output | None = None
    output: _first(64, _Message) | None = None  # type: ignore[valid-type]


_decoder = msgspec.json.Decoder(_Event, strict=False)


def without_logprobs(data: bytes) -> bytes:
    """Return what else there is in an event, for counting; all of it if that has another form."""
    try:
        event = _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return data
    left, end = list[bytes](), 0
    for found in map(bytes, _found(event)):
        at = data.find(found, end)
        if at < 0:  # in no order that a provider would write: to look for the others takes long
            break
        left.append(data[end:at])
        end = at + len(found)
    return b"0".join([*left, data[end:]])


def _found(part: Any) -> list[Raw]:
    """Return them, wherever they are in what was read."""
    if isinstance(part, Raw):
        return [part] if len(part) > len(NONE) else []
    if not isinstance(part, Struct):
        return []
    inner = (getattr(part, name) for name in part.__struct_fields__)
    return [raw for each in inner for raw in _found(each)]
