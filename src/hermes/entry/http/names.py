"""Names that clients choose for what they send: conversations, calls, functions, repeats.

They are kept and compared as they are, never redacted; so none may be what redaction takes out.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct

from hermes.entry.http.endpoint import CallHeaders
from hermes.entry.http.errors import Problem
from hermes.entry.http.request import HEADERS

_NAMES = frozenset({"conversation", "session_id", "id", "call_id", "tool_call_id", "name"})
_LARGE = 64 * 1024
Redact = Callable[[str], str]


async def check_names(headers: CallHeaders, body: Any, redact: Redact) -> None:
    """Raise a 400 that says where a secret stands in place of a name, and never which."""
    told = ((name, getattr(headers, field)) for field, name, _, _ in HEADERS)
    names = [*((where, text) for where, text in told if text), *_names(body, "")]
    large = sum(len(text) for _, text in names) > _LARGE
    found = await asyncio.to_thread(_secret, names, redact) if large else _secret(names, redact)
    if found:
        text = f"`{found}` holds a secret. Names are kept as they are: choose another one."
        raise Problem(400, text, code="secret_in_name", param=found)


def _secret(names: list[tuple[str, str]], redact: Redact) -> str:
    joined = "\n".join(text for _, text in names)
    if not joined or redact(joined) == joined:
        return ""
    return next((where for where, text in names if redact(text) != text), "")


def _names(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, tuple | list):
        for number, item in enumerate(value):
            if isinstance(item, Struct):
                yield from _names(item, f"{path}[{number}]")
    elif isinstance(value, Struct):
        for field in value.__struct_fields__:
            inside = getattr(value, field)
            here = f"{path}.{field}" if path else field
            if isinstance(inside, str):
                if inside and field in _NAMES:
                    yield here, inside
            else:
                yield from _names(inside, here)
