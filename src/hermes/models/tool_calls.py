"""Tool calls as models write them: assembled from fragments, then repaired within limits.

The rule is one slot per `index`. Servers break it: some send no index, some no
id, some number every parallel call 0, some repeat the name with each fragment,
some send whole calls, some send arguments as an object.

Only mechanical damage is repaired: code fences, trailing commas, Python
literals, nothing at all. What was cut off is never closed: half a command
would run as if it were whole. What is still not a JSON object afterwards stays
unchanged, and the loop tells the model.
"""

import re
from collections.abc import Callable

import msgspec

from hermes.domain.ids import new_call_id
from hermes.domain.messages import ToolCall
from hermes.domain.nesting import nested_too_deeply, values_in
from hermes.models.bounds import (
    ARGUMENT_VALUES,
    CALLS,
    COMPARED_CHARS,
    NAME_CHARS,
    REPAIRED_CHARS,
)

_KEPT_CHARS = 2000
_FENCE = "```"
_LANGUAGE = re.compile(r"[a-zA-Z]*")
_LITERALS = {"True": "true", "False": "false", "None": "null"}
_WORD = re.compile(r"[A-Za-z_]+")
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])


def repair_calls(calls: tuple[ToolCall, ...]) -> tuple[ToolCall, ...]:
    """Return the calls with ids that are unique, and JSON objects as arguments where possible."""
    seen: set[str] = set()
    repaired: list[ToolCall] = []
    left, values_left = REPAIRED_CHARS, ARGUMENT_VALUES
    for call in calls:
        call_id = call.id if call.id and call.id not in seen else new_call_id()
        seen.add(call_id)
        arguments = call.arguments
        values = values_in(arguments.encode("utf-8", "replace"), values_left)
        if values > values_left:
            arguments = _beginning(arguments)
        elif not _is_object(arguments) and len(arguments) <= left:
            left -= len(arguments)
            arguments = _repaired(arguments)
        values_left -= min(values, values_left)
        if nested_too_deeply(arguments.encode("utf-8", "replace")):
            arguments = _beginning(arguments)
        repaired.append(ToolCall(id=call_id, name=call.name.strip(), arguments=arguments))
    return tuple(repaired)


def _beginning(text: str) -> str:
    """Return the beginning of arguments that hold up or break whoever reads them, as a string.

    That is what has too many values, or is nested too deeply.
    """
    return msgspec.json.encode(text[:_KEPT_CHARS].encode("utf-8", "replace").decode()).decode()


def _repaired(text: str) -> str:
    stripped = text.strip()
    if stripped in {"", "null", "None", '""'}:
        return "{}"
    candidate = _unfenced(stripped)
    for attempt in (candidate, _inner_string(candidate), _mended(candidate)):
        if attempt and _is_object(attempt):
            return attempt
    return text


def _unfenced(text: str) -> str:
    if not (text.startswith(_FENCE) and text.endswith(_FENCE)):
        return text
    inner = text.removeprefix(_FENCE).removesuffix(_FENCE)
    return _LANGUAGE.sub("", inner, count=1).strip()


def _is_object(text: str) -> bool:
    try:
        _object.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return False
    return True


def _inner_string(text: str) -> str:
    """Return the object that was encoded twice, as a string inside a string."""
    try:
        inner = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return ""
    return inner if isinstance(inner, str) else ""


class _Mender:
    """Copies JSON-like text and mends it on the way."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.out: list[str] = []
        self.stack: list[str] = []

    def run(self) -> str:
        position = 0
        while position < len(self.text):
            position = self._token(position)
            if self.out and not self.stack and self.out[-1] in "}]":
                break
        return "".join(self.out)

    def _token(self, at: int) -> int:
        char = self.text[at]
        if char in "\"'":
            return self._string(at)
        if char in "{[":
            self.stack.append("}" if char == "{" else "]")
        elif char in "}]":
            self._drop_comma()
            if not self.stack or self.stack[-1] != char:
                return at + 1
            self.stack.pop()
        elif word := _WORD.match(self.text, at):
            found = word.group()
            self.out.append(_LITERALS.get(found, found))
            return word.end()
        self.out.append(char)
        return at + 1

    def _string(self, at: int) -> int:
        quote = self.text[at]
        out = ['"']
        at += 1
        while at < len(self.text):
            char = self.text[at]
            if char == "\\" and at + 1 < len(self.text):
                pair = self.text[at : at + 2]
                out.append("'" if pair == "\\'" else pair)
                at += 2
                continue
            if char == quote:
                out.append('"')
                at += 1
                break
            out.append(_in_string(char))
            at += 1
        self.out.append("".join(out))
        return at

    def _drop_comma(self) -> None:
        while self.out and self.out[-1].isspace():
            self.out.pop()
        if self.out and self.out[-1] == ",":
            self.out.pop()


def _in_string(char: str) -> str:
    if char == '"':
        return '\\"'
    if char == "\\":
        return ""
    return msgspec.json.encode(char).decode()[1:-1] if char < " " else char


def _mended(text: str) -> str:
    start = text.find("{")
    return _Mender(text[start:]).run() if start >= 0 else ""


class _Slot:
    __slots__ = ("arguments", "id", "index", "name", "number")

    def __init__(self, index: int | None, number: int) -> None:
        self.index = index
        self.number = number
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []


class CallAssembler:
    """Collects fragments; ids may come out empty or twice and are repaired later."""

    def __init__(self, tell: Callable[[int, str, str], None] = lambda *_: None) -> None:
        """`tell` hears of arguments as they come: which call, its name, the piece."""
        self._slots: list[_Slot] = []
        self._newest: dict[int | None, _Slot] = {}
        self._by_id: dict[tuple[int | None, str], _Slot] = {}
        self._compared = 0
        self._tell = tell

    def add(self, index: int | None, call_id: str, name: str, arguments: str) -> None:
        slot = self._find(index, call_id, name)
        if slot is None:
            slot = _Slot(index, len(self._slots))
            self._slots.append(slot)
            CALLS.hold(len(self._slots))
            self._newest[index] = slot
        if call_id and not slot.id:
            slot.id = call_id
            self._by_id.setdefault((slot.index, call_id), slot)
            self._by_id.setdefault((None, call_id), slot)
        if name and name != slot.name:
            slot.name = (slot.name + name)[:NAME_CHARS]
        if arguments:
            slot.arguments.append(arguments)
            self._tell(slot.number, slot.name, arguments)

    def calls(self) -> tuple[ToolCall, ...]:
        return tuple(
            ToolCall(id=slot.id, name=slot.name, arguments="".join(slot.arguments))
            for slot in self._slots
            if slot.name
        )

    def _find(self, index: int | None, call_id: str, name: str) -> _Slot | None:
        if index is None:
            return self._find_unnumbered(call_id, name)
        slot = self._newest.get(index)
        if slot is None:
            return None
        if call_id and slot.id and call_id != slot.id:
            return self._by_id.get((index, call_id))
        if not call_id and name and slot.arguments and self._complete(slot):
            return None
        return slot

    def _find_unnumbered(self, call_id: str, name: str) -> _Slot | None:
        last = self._slots[-1] if self._slots else None
        if call_id:
            return self._by_id.get((None, call_id))
        if last is None or not name:
            return last
        same = last.name == name and not self._complete(last)
        return last if same else None

    def _complete(self, slot: _Slot) -> bool:
        """Tell whether the arguments so far are JSON; no, once very much was read to find out."""
        if self._compared > COMPARED_CHARS:
            return False
        slot.arguments = ["".join(slot.arguments)]
        self._compared += len(slot.arguments[0])
        try:
            msgspec.json.decode(slot.arguments[0], type=msgspec.Raw)
        except (msgspec.MsgspecError, RecursionError):
            return False
        return True
