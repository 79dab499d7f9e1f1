"""Transcripts as JSON Lines, one OpenAI chat message a line.

The mirror in `sessions/<id>.jsonl` is for people and their tools and only ever
grows; the ledger is what counts. Whether it is written is decided by
`sessions.write_jsonl`.
"""

import asyncio
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from hermes.domain.errors import StoreError
from hermes.domain.messages import (
    AssistantMessage,
    FilePart,
    Message,
    Part,
    TextPart,
    ToolMessage,
    UserMessage,
    content_text,
    openai_call,
    openai_part,
)
from hermes.domain.session import StoredMessage
from hermes.domain.wording import clean_text


def openai_message(message: Message) -> dict[str, Any]:
    match message:
        case UserMessage():
            named = {} if message.sender is None else {"name": message.sender}
            content = message.content
            parts = content if isinstance(content, str) else [_part(part) for part in content]
            return {"role": "user", **named, "content": parts}
        case AssistantMessage(tool_calls=()):
            return {"role": "assistant", "content": message.text}
        case AssistantMessage():
            calls = [openai_call(call) for call in message.tool_calls]
            return {"role": "assistant", "content": message.text or None, "tool_calls": calls}
        case ToolMessage():
            said = content_text(message.content)
            return {"role": "tool", "tool_call_id": message.call_id, "content": said}


def _part(part: Part) -> dict[str, Any]:
    text = TextPart(f"[file: {part.path}]") if isinstance(part, FilePart) else part
    return openai_part(text)


class TranscriptMirror:
    """Appends what was said to a file for each session."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def append(self, session_id: str, messages: Iterable[StoredMessage]) -> None:
        lines = [_jsonl_line(openai_message(stored.message)) for stored in messages]
        if lines:
            await asyncio.to_thread(self._write, session_id, "".join(lines))

    def _write(self, session_id: str, text: str) -> None:
        path = transcript_path(self._folder, session_id)
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            with os.fdopen(os.open(path, flags, 0o600), "ab", buffering=0) as file:
                file.write(text.encode())
        except OSError as error:
            raise StoreError(
                f"The transcript {path} cannot be written ({error.strerror}).",
                hint="Check the folder's permissions and the free space, "
                "or set sessions.write_jsonl to false.",
            ) from error


def transcript_path(folder: Path, session_id: str) -> Path:
    """Return where the transcript of a session is; any id gives a name inside the folder."""
    name = quote(clean_text(session_id), safe=" @+=,_-")
    return folder / f"{name[:200]}.jsonl"


def _jsonl_line(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode() + "\n"
    except UnicodeEncodeError:
        # A lone surrogate: only the escaped form can carry it.
        return json.dumps(value, separators=(",", ":")) + "\n"
