"""Rows of the database to values of the domain, and back.

A row becomes a struct column by column, with one conversion for all of them; text
goes into columns of its own, where it can be searched and read with any SQLite tool,
and what has structure goes beside it as JSON. Only messages are taken apart by hand:
a row holds one of three kinds, and reading a history is what everything waits for.
"""

from collections.abc import Callable, Mapping, Sequence
from sqlite3 import Row
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from hermes.domain.messages import (
    AssistantMessage,
    Content,
    FinishReason,
    InputKind,
    Message,
    Part,
    Reasoning,
    ToolCall,
    ToolMessage,
    ToolOutcome,
    UserMessage,
    content_text,
)
from hermes.domain.session import StoredMessage
from hermes.domain.wording import clean_text, clean_value
from hermes.state.search_text import MAX_SEARCHED, calls_text

T = TypeVar("T")

_dumps = msgspec.json.Encoder().encode
_parts = msgspec.json.Decoder(tuple[Part, ...])
_calls = msgspec.json.Decoder(tuple[ToolCall, ...])
_reasoning = msgspec.json.Decoder(Reasoning)


def reader(
    kind: type[T],
    *,
    json: Mapping[str, Any] | None = None,
    inner: Sequence[str] = (),
    renamed: Mapping[str, str] | None = None,
) -> Callable[[Row], T]:
    """Return a function that makes a `kind` of a row.

    `json` names the columns that hold JSON, and of what type; `inner` the fields that
    are structs of further columns of the same row; `renamed` maps columns to fields.
    """
    decoders = [(name, msgspec.json.Decoder(of).decode) for name, of in (json or {}).items()]
    renames = list((renamed or {}).items())

    def read(row: Row) -> T:
        # Not dict(row): that looks every name up from the first column on.
        values: dict[str, Any] = dict(zip(row.keys(), row, strict=True))
        for name, decode in decoders:
            if values[name] is not None:
                values[name] = decode(values[name])
        for column, field in renames:
            values[field] = values[column]
        for name in inner:
            values[name] = values
        # Not strict: SQLite has no booleans.
        return msgspec.convert(values, kind, strict=False)

    return read


def columns(value: Struct) -> dict[str, Any]:
    """Return the fields of a struct as values for columns of the same names."""
    return {name: _column(getattr(value, name)) for name in value.__struct_fields__}


def dump(value: Any) -> str:
    try:
        return _dumps(value).decode()
    except UnicodeEncodeError:
        return _dumps(clean_value(msgspec.to_builtins(value))).decode()


def _column(value: Any) -> Any:
    if value is None or isinstance(value, int | float):
        return value
    return clean_text(value) if isinstance(value, str) else dump(value)


# -- messages ----------------------------------------------------------------

_NOTHING: dict[str, Any] = dict.fromkeys(
    (
        *("role", "content", "parts", "kind", "sender", "tool_calls", "calls_text"),
        *("tool_call_id", "tool_name", "outcome", "finish_reason", "reasoning"),
    )
)


def message_columns(message: Message) -> dict[str, Any]:
    own: dict[str, Any]
    match message:
        case UserMessage(sender=sender):
            own = _content_columns(message.content) | {"role": "user", "kind": message.kind}
            own["sender"] = sender and clean_text(sender)
        case AssistantMessage(tool_calls=calls, reasoning=reasoning):
            own = {"role": "assistant", "content": clean_text(message.text)}
            own["tool_calls"] = dump(calls) if calls else None
            own["calls_text"] = clean_text(calls_text(message))[:MAX_SEARCHED] if calls else None
            own["finish_reason"] = message.finish
            own["reasoning"] = None if reasoning is None else dump(reasoning)
        case ToolMessage():
            own = _content_columns(message.content) | {"role": "tool", "outcome": message.outcome}
            own |= {"tool_call_id": message.call_id, "tool_name": clean_text(message.name)}
    return _NOTHING | own


def read_message(row: Row) -> StoredMessage:
    return StoredMessage(
        id=row["id"],
        session_id=row["session_id"],
        turn_id=row["turn_id"],
        seq=row["seq"],
        at=row["timestamp"],
        message=_message(row),
        active=bool(row["active"]),
    )


def read_calls(text: str | None) -> tuple[ToolCall, ...]:
    return () if text is None else _calls.decode(text)


def _message(row: Row) -> Message:
    match row["role"]:
        case "user":
            return UserMessage(
                content=_content(row), kind=InputKind(row["kind"]), sender=row["sender"]
            )
        case "assistant":
            reasoning = row["reasoning"]
            return AssistantMessage(
                text=row["content"],
                tool_calls=read_calls(row["tool_calls"]),
                reasoning=None if reasoning is None else _reasoning.decode(reasoning),
                finish=FinishReason(row["finish_reason"]),
            )
        case _:
            return ToolMessage(
                call_id=row["tool_call_id"],
                name=row["tool_name"],
                content=_content(row),
                outcome=ToolOutcome(row["outcome"]),
            )


def _content(row: Row) -> Content:
    return row["content"] if row["parts"] is None else _parts.decode(row["parts"])


def _content_columns(content: Content) -> dict[str, str | None]:
    parts = None if isinstance(content, str) else dump(content)
    return {"content": clean_text(content_text(content)), "parts": parts}
