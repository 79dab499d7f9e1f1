"""`/v1/responses` over a WebSocket: the `openai` package, and frames as they are."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from openai import AsyncOpenAI
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from fakes.http_door import KEY, HttpDoor, bearer
from fakes.http_responses import responses_door
from fakes.responses_schema import event_errors
from hermes.domain.ports.ledger import SessionQuery
from hermes.domain.ports.model import FailureKind, ModelFailure
from hermes.domain.runs import RunKind, RunQuery
from hermes.entry.http.settings import HttpSettings
from hermes.testing.model import Reply, ScriptedModel, say

ENDS = ("response.completed", "response.failed", "response.incomplete", "error")


@asynccontextmanager
async def socket(
    door: HttpDoor, path: str = "/v1/responses", **headers: str
) -> AsyncIterator[ClientConnection]:
    address = f"ws://127.0.0.1:{door.port}{path}"
    async with asyncio.timeout(20):
        async with connect(address, additional_headers={**bearer(), **headers}) as made:
            yield made


async def ask(made: ClientConnection, **body: Any) -> list[dict[str, Any]]:
    """Ask for a response and return its events, which must be well-formed."""
    await made.send(json.dumps({"type": "response.create", "model": "hermes", **body}))
    events: list[dict[str, Any]] = []
    while not events or events[-1]["type"] not in ENDS:
        events.append(json.loads(await made.recv()))
        if events[-1]["type"] != "error":
            assert event_errors(events[-1]) == []
    return events


def error(events: list[dict[str, Any]]) -> tuple[int, str]:
    return events[-1]["status"], events[-1]["error"]["code"]


async def test_the_openai_package_talks_over_one_connection(tmp_path: Path) -> None:
    model = ScriptedModel([say("Hel", "lo."), say("Again.")])
    async with responses_door(tmp_path, model) as door:
        client = AsyncOpenAI(api_key=KEY, base_url=f"{door.base_url}/v1", max_retries=0)
        texts, ids = list[str](), list[str]()
        async with client, asyncio.timeout(20), client.responses.connect() as connection:
            for words in ("Hi", "And now?"):
                known: Any = {"previous_response_id": ids[-1]} if ids else {}
                await connection.response.create(model="hermes", input=words, **known)
                async for event in connection:
                    if event.type == "response.output_text.delta":
                        texts.append(event.delta)
                    if event.type == "response.completed":
                        ids.append(event.response.id)
                        break
        assert "".join(texts) == "Hello.Again."
        assert len({(await door.ledger.run(each)).session_id for each in ids}) == 1  # type: ignore[union-attr]


async def test_what_is_not_stored_is_known_to_its_connection_only(tmp_path: Path) -> None:
    model = ScriptedModel(default=say("Ok."))
    async with responses_door(tmp_path, model) as door:
        async with socket(door) as one:
            first = (await ask(one, input="cobalt", store=False))[-1]["response"]
            second = await ask(
                one, input="What was it?", store=False, previous_response_id=first["id"]
            )
            assert second[-1]["type"] == "response.completed"
            assert "cobalt" in str(model.requests[-1].messages)
            async with socket(door) as other:
                lost = await ask(other, input="x", store=False, previous_response_id=first["id"])
                assert error(lost) == (400, "previous_response_not_found")
                assert (await ask(other, input="New"))[-1]["type"] == "response.completed"
        await until(lambda: _kept(door))
        [left] = await door.ledger.runs(RunQuery(kinds=(RunKind.RESPONSE,)))
        assert left.request["store"] is True


async def _kept(door: HttpDoor) -> bool:
    """Tell whether nothing is left but one conversation."""
    sessions = await door.ledger.sessions(SessionQuery())
    return sum(bool(each.message_count) for each in sessions) == 1


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(10):
        while not await true():  # noqa: ASYNC110 - the ledger sets no event
            await asyncio.sleep(0.005)


async def test_a_continuation_that_fails_forgets_what_it_continued(tmp_path: Path) -> None:
    broken = ModelFailure(FailureKind.SERVER, "The model is down.")
    model = ScriptedModel([say("Ok."), say("Ok."), broken])
    async with responses_door(tmp_path, model) as door, socket(door) as made:
        first = (await ask(made, input="ember", store=False))[-1]["response"]["id"]
        output = {"type": "function_call_output", "call_id": "call_x", "output": "?"}
        wrong = await ask(made, input=[output], store=False, previous_response_id=first)
        assert error(wrong) == (400, "tool_call_not_found")
        stale = await ask(made, input="Go on", store=False, previous_response_id=first)
        assert error(stale) == (400, "previous_response_not_found")
        next_id = (await ask(made, input="Anew", store=False))[-1]["response"]["id"]
        failed = await ask(made, input="Go on", store=False, previous_response_id=next_id)
        assert failed[-1]["type"] == "response.failed"
        stale = await ask(made, input="Go on", store=False, previous_response_id=next_id)
        assert error(stale) == (400, "previous_response_not_found")


async def test_requests_wait_for_each_other_and_nonsense_is_named(tmp_path: Path) -> None:
    model = ScriptedModel(default=say("Ok."))
    async with responses_door(tmp_path, model) as door, socket(door) as made:
        for words in ("one", "two"):
            await made.send(json.dumps({"type": "response.create", "input": words}))
        events: list[dict[str, Any]] = []
        while [each["type"] for each in events].count("response.completed") < 2:
            events.append(json.loads(await made.recv()))
        half = len(events) // 2
        assert [each["sequence_number"] for each in events] == [*range(half), *range(half)]
        for sent, code in (
            ("not json", "invalid_json"),
            ('{"type": "hologram"}', "invalid_value"),
            ('{"type": "response.create", "background": true}', "unsupported_value"),
            ('{"type": "response.create", "input": 3}', "invalid_request"),
            ('{"type": "response.create", "model": "nobody", "input": "x"}', "model_not_found"),
        ):
            await made.send(sent)
            told = json.loads(await made.recv())
            assert (told["type"], told["error"]["code"]) == ("error", code)


async def test_whoever_leaves_ends_the_response(tmp_path: Path) -> None:
    never = asyncio.Event()
    model = ScriptedModel([Reply(pieces=("Never.",), before=never)])
    async with responses_door(tmp_path, model) as door:
        async with socket(door) as made:
            await made.send(json.dumps({"type": "response.create", "input": "Hi"}))
            await model.called(1)

        async def ended() -> bool:
            return (await door.ledger.runs(RunQuery()))[0].outcome is not None

        await until(ended)
        assert model.cancelled == 1


async def test_the_handshake_needs_a_key_a_path_and_an_origin(tmp_path: Path) -> None:
    async with responses_door(tmp_path, ScriptedModel()) as door:
        for path, headers, status in (
            ("/v1/responses", {"authorization": "Bearer wrong"}, 401),
            ("/v1/responses/compact", {}, 405),
            ("/v1/nowhere", {}, 404),
            ("/v1/responses", {"origin": "https://evil.example"}, 403),
        ):
            with pytest.raises(InvalidStatus) as refused:
                async with socket(door, path, **headers):
                    pass
            assert refused.value.response.status_code == status
            assert json.loads(refused.value.response.body or b"")["error"]["code"]


async def test_a_key_that_is_taken_back_ends_the_talk(tmp_path: Path) -> None:
    async with responses_door(tmp_path, ScriptedModel(default=say("Ok."))) as door:
        async with socket(door) as made:
            assert (await ask(made, input="Hi"))[-1]["type"] == "response.completed"
            door.owner_keys.clear()
            assert error(await ask(made, input="Hi")) == (401, "invalid_api_key")


async def test_a_connection_ends_when_it_is_old(tmp_path: Path) -> None:
    settings = HttpSettings(port=0, socket_seconds=0.1, max_body_bytes=2048)
    async with responses_door(tmp_path, ScriptedModel(), settings=settings) as door:
        async with socket(door) as made:
            told = json.loads(await made.recv())
            assert told["error"]["code"] == "websocket_connection_limit_reached"
            with pytest.raises(ConnectionClosed):
                await made.recv()


async def test_a_stopping_server_lets_the_answer_end(tmp_path: Path) -> None:
    go = asyncio.Event()
    model = ScriptedModel([Reply(pieces=("Done.",), before=go)])
    async with responses_door(tmp_path, model) as door:
        async with socket(door) as made, socket(door) as idle:
            await made.send(json.dumps({"type": "response.create", "input": "Hi"}))
            await model.called(1)
            async with asyncio.TaskGroup() as group:
                group.create_task(door.server.stop())
                with pytest.raises(ConnectionClosed):
                    await idle.recv()
                go.set()
                events = [json.loads(each) async for each in made]
            assert events[-1]["type"] == "response.completed"


async def test_large_messages_close_the_connection(tmp_path: Path) -> None:
    settings = replace(HttpSettings(port=0), max_body_bytes=2048)
    async with responses_door(tmp_path, ScriptedModel(), settings=settings) as door:
        async with socket(door) as made:
            await made.send("x" * 4096)
            with pytest.raises(ConnectionClosed) as closed:
                await made.recv()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1009
