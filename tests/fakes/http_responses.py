"""The responses endpoints on loopback, and how tests read their streams."""

import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import httpx2

from fakes.http_door import HttpDoor, http_door
from fakes.responses_schema import event_errors, resource_errors
from hermes.domain.ports.model import Model
from hermes.entry.http.api import conversations, responses, responses_window
from hermes.entry.http.endpoint import operations

__all__ = ["create", "output_text", "read_events", "responses_door", "streamed", "user"]


def responses_door(
    folder: Path, model: Model, **more: Any
) -> AbstractAsyncContextManager[HttpDoor]:
    modules = (responses, responses_window, conversations)
    offered = [each for module in modules for each in operations(module)]
    return http_door(folder, model, endpoints=offered, **more)


def user(content: Any) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": content}


async def create(
    client: httpx2.AsyncClient, headers: dict[str, str] | None = None, **body: Any
) -> dict[str, Any]:
    """Create a response that must be well-formed, and return it."""
    answer = await client.post("/v1/responses", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    value: dict[str, Any] = answer.json()
    assert resource_errors(value) == []
    return value


async def read_events(lines: AsyncIterator[str]) -> AsyncIterator[dict[str, Any]]:
    """Yield events that must be well-formed; the stream must end with its mark."""
    name, ended = "", False
    async for line in lines:
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line == "data: [DONE]":
            ended = True
        elif line.startswith("data: "):
            event: dict[str, Any] = json.loads(line.removeprefix("data: "))
            assert event["type"] == name
            assert event_errors(event) == []
            yield event
    assert ended


async def streamed(
    client: httpx2.AsyncClient, headers: dict[str, str] | None = None, **body: Any
) -> list[dict[str, Any]]:
    """Create a response and return all of its events."""
    asked = {**body, "stream": True}
    async with client.stream("POST", "/v1/responses", json=asked, headers=headers) as answer:
        assert answer.status_code == 200, await answer.aread()
        return [event async for event in read_events(answer.aiter_lines())]


def output_text(resource: dict[str, Any]) -> str:
    return "".join(
        part["text"]
        for item in resource["output"]
        if item["type"] == "message"
        for part in item["content"]
    )
