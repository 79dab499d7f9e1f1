"""What the fake model server says, as data that also fits into a JSON file.

    {"steps": [{"calls": [{"name": "read_file", "arguments": {"path": "a"}}]}, {"text": "done"}],
     "rules": [{"contains": "weather", "steps": [{"calls": [...]}, {"text": "sunny"}]}],
     "default": {"text": "ok"}}

`steps` are used up in order of arrival. A rule matches on the last user text;
its step is chosen by how many assistant messages came after that text, so that
chains of tool calls work for any number of sessions at once.
"""

from typing import Any

import msgspec
from msgspec import Struct, field

__all__ = ["Call", "Counts", "Rule", "Script", "Step", "load_script"]


class Call(Struct, kw_only=True, forbid_unknown_fields=True):
    name: str
    arguments: Any = field(default_factory=dict)
    """An object, or a string that is sent as it is."""
    id: str | None = None
    """None: a fresh one. Empty: none at all."""


class Counts(Struct, kw_only=True, forbid_unknown_fields=True):
    input: int = 100
    output: int = 20
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0


class Step(Struct, kw_only=True, forbid_unknown_fields=True):
    text: str = ""
    reasoning: str = ""
    calls: list[Call] = field(default_factory=list)
    echo: bool = False
    """Answer with the last user text."""
    finish: str = ""
    """Overrides the finish reason, in chat completions words."""
    usage: Counts | None = field(default_factory=Counts)
    piece_chars: int = 4
    delay: float = 0.0
    """Seconds before the first byte."""
    interval: float = 0.0
    """Seconds between pieces."""
    tokens_per_second: float = 0.0

    status: int = 200
    body: Any = None
    """Of an error; a string is sent as it is."""
    headers: dict[str, str] = field(default_factory=dict)
    stall: str = ""
    """`before` the headers, `first` after them, in the `middle` or before the `end` of the
    body: until the client leaves or `release()`."""
    reset: str = ""
    """`before` or `middle`: the connection is reset (RST)."""
    truncate: bool = False
    """End the body cleanly, but before the answer has ended."""
    cut: bool = False
    """Close the connection in the middle of the body."""
    malformed: bool = False
    empty: bool = False
    plain: bool = False
    """Answer a streaming request with one JSON document."""
    refuse_stream: bool = False
    """HTTP 400 if the request asks for streaming; otherwise answer."""
    refuse_field: str = ""
    """HTTP 400 if the request has this field; otherwise answer."""
    stream_error: dict[str, Any] | None = None
    """Sent in the middle of the stream."""
    raw: str = ""
    """A recorded body, sent as it is as an event stream."""


class Rule(Struct, kw_only=True, forbid_unknown_fields=True):
    contains: str = ""
    model: str = ""
    steps: list[Step] = field(default_factory=list)
    """The last one is repeated."""


class Script(Struct, kw_only=True, forbid_unknown_fields=True):
    steps: list[Step] = field(default_factory=list)
    rules: list[Rule] = field(default_factory=list)
    default: Step = field(default_factory=lambda: Step(text="ok"))
    strict: bool = True
    """Refuse histories that a real provider refuses."""
    keys: list[str] = field(default_factory=list)
    """Accepted API keys; empty accepts everything."""
    models: list[str] = field(default_factory=lambda: ["fake-1"])


def load_script(text: bytes) -> Script:
    return msgspec.json.decode(text, type=Script)
