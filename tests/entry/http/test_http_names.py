"""Names that clients choose are kept as they are, so a secret is none."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect

from fakes.http_door import SECRET, HttpDoor, bearer, http_door
from fakes.http_kit import error_of
from hermes.entry.http.api import chat, responses, sessions
from hermes.entry.http.endpoint import operations
from hermes.testing.model import ScriptedModel, say

NAME = f"n-{SECRET}"
CALL = {"type": "function_call", "call_id": NAME, "name": "look", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": NAME, "output": "x"}
MADE = {"id": NAME, "type": "function", "function": {"name": "look", "arguments": "{}"}}
USER = {"role": "user", "content": "hi"}


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[HttpDoor]:
    offered = [each for module in (chat, responses, sessions) for each in operations(module)]
    model = ScriptedModel(default=say("Ok."))
    async with http_door(tmp_path, model, endpoints=offered) as made:
        yield made


@pytest.mark.parametrize(
    ("path", "body", "where"),
    [
        ("/v1/responses", {"input": "hi", "conversation": NAME}, "conversation"),
        ("/v1/responses", {"input": "hi", "conversation": {"id": NAME}}, "conversation.id"),
        ("/v1/responses", {"input": [CALL, RESULT]}, "input[0].call_id"),
        ("/v1/responses", {"input": [USER, RESULT]}, "input[1].call_id"),
        (
            "/v1/chat/completions",
            {"messages": [USER, {"role": "assistant", "tool_calls": [MADE]}]},
            "messages[1].tool_calls[0].id",
        ),
        (
            "/v1/chat/completions",
            {"messages": [USER, {"role": "tool", "tool_call_id": NAME, "content": "x"}]},
            "messages[1].tool_call_id",
        ),
        ("/api/sessions", {"id": NAME}, "id"),
    ],
)
async def test_a_secret_in_place_of_a_name_is_refused(
    door: HttpDoor, path: str, body: dict[str, Any], where: str
) -> None:
    answer = await door.client.post(path, json={"model": "hermes", **body})
    error = error_of(answer, 400)
    assert (error["code"], error["param"]) == ("secret_in_name", where)
    assert SECRET not in answer.text
    fine = json.loads(json.dumps({"model": "hermes", **body}).replace(NAME, "n-1"))
    again = await door.client.post(path, json=fine)
    assert "secret_in_name" not in again.text


@pytest.mark.parametrize(
    "header", ["X-Hermes-Session-Key", "X-Hermes-Session-Id", "Idempotency-Key", "X-Hermes-Task"]
)
async def test_a_secret_in_a_header_that_names_something_is_refused(
    door: HttpDoor, header: str
) -> None:
    body = {"model": "hermes", "messages": [USER]}
    answer = await door.client.post("/v1/chat/completions", json=body, headers={header: NAME})
    assert error_of(answer, 400)["param"] == header
    assert SECRET not in answer.text


async def test_over_a_websocket_the_same_names_are_refused(door: HttpDoor) -> None:
    address = f"ws://127.0.0.1:{door.port}/v1/responses"
    async with connect(address, additional_headers=bearer()) as made:
        asked = {"type": "response.create", "model": "hermes", "input": "hi", "conversation": NAME}
        await made.send(json.dumps(asked))
        told = json.loads(await made.recv())
    assert (told["status"], told["error"]["code"]) == (400, "secret_in_name")


async def test_a_secret_in_what_is_said_is_no_name(door: HttpDoor) -> None:
    body = {"model": "hermes", "messages": [{"role": "user", "content": NAME}]}
    assert (await door.client.post("/v1/chat/completions", json=body)).status_code == 200
