"""Asking `/v1/chat/completions` and reading what it answers."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2

from fakes.core import ScriptedTools
from fakes.http_door import HttpDoor, http_door
from hermes.domain.messages import (
    AssistantMessage,
    content_text,
)
from hermes.entry.http.api import chat
from hermes.entry.http.endpoint import operations
from hermes.testing.model import ScriptedModel, Step

__all__ = [
    "PATH",
    "PNG",
    "TITLE",
    "WEATHER",
    "ask",
    "body",
    "door_with",
    "history",
    "said",
    "streamed",
    "text_of",
]

PATH = "/v1/chat/completions"
PNG = b"\x89PNG\r\n\x1a\n" + bytes(8)
WEATHER = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}},
}
TITLE = (
    '### Task:\nGenerate a title.\nJSON format: { "title": "x" }\n'
    "<chat_history>\nUSER: Hi\n</chat_history>"
)


@asynccontextmanager
async def door_with(
    folder: Path, *script: Step, tools: ScriptedTools | None = None, **more: Any
) -> AsyncIterator[tuple[HttpDoor, ScriptedModel]]:
    model = ScriptedModel(script)
    async with asyncio.timeout(30):
        async with http_door(
            folder, model, endpoints=operations(chat), tools=tools, **more
        ) as door:
            yield door, model


def body(*messages: Any, **more: Any) -> dict[str, Any]:
    said = [{"role": "user", "content": m} if isinstance(m, str) else m for m in messages]
    return {"model": "hermes", "messages": said, **more}


async def ask(
    client: httpx2.AsyncClient, *messages: Any, headers: dict[str, str] | None = None, **more: Any
) -> httpx2.Response:
    return await client.post(PATH, json=body(*messages, **more), headers=headers)


def text_of(answer: httpx2.Response) -> Any:
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]["message"]["content"]


def streamed(answer: httpx2.Response) -> list[tuple[str | None, Any]]:
    """Return the events of a stream; the last one has to be `[DONE]`."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    blocks = [b for b in answer.text.split("\n\n") if b and not b.startswith(":")]
    assert blocks[-1] == "data: [DONE]"
    found: list[tuple[str | None, Any]] = []
    for block in blocks[:-1]:
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        found.append((fields.get("event"), json.loads(fields["data"])))
    return found


def said(events: list[tuple[str | None, Any]]) -> str:
    return "".join(
        choice["delta"].get("content") or "" for _, data in events for choice in data["choices"]
    )


def history(model: ScriptedModel) -> list[str]:
    """Return what the model was told in its last call."""
    return [
        content_text(m.content) if not isinstance(m, AssistantMessage) else m.text
        for m in model.requests[-1].messages
    ]
