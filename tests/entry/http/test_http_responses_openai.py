"""The `openai` package, unmodified, against `/v1/responses`."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from pydantic import BaseModel

from fakes.core import ScriptedTools, returns
from fakes.http_door import KEY, HttpDoor, http_door
from fakes.http_responses import responses_door
from hermes.domain.approvals import ApprovalKind, ApprovalRequest
from hermes.domain.events import (
    ApprovalAsked,
    MessageCompleted,
    TextDelta,
    TextReset,
    TurnEvent,
    TurnFinished,
)
from hermes.domain.messages import AssistantMessage
from hermes.domain.ports.model import Model
from hermes.domain.turn import TurnError, TurnState
from hermes.domain.usage import Usage
from hermes.entry.http.endpoint import Answer, Call, Endpoint, StreamAnswer
from hermes.streaming.wire.response_resource import ResponseResource
from hermes.streaming.wire.responses import ResponseStream
from hermes.testing.model import Reply, ScriptedModel, call, calls, say, thinks

TOOL: Any = {
    "type": "function",
    "name": "get_weather",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}


@asynccontextmanager
async def openai_at(
    folder: Path, model: Model, **more: Any
) -> AsyncIterator[tuple[HttpDoor, AsyncOpenAI]]:
    async with responses_door(folder, model, **more) as door:
        client = AsyncOpenAI(api_key=KEY, base_url=f"{door.base_url}/v1", max_retries=0)
        async with client, asyncio.timeout(20):
            yield door, client


async def test_create_and_retrieve(tmp_path: Path) -> None:
    async with openai_at(tmp_path, ScriptedModel([thinks("Hm.", "Hello.")])) as (_, client):
        made = await client.responses.create(model="hermes", input="Hi", metadata={"a": "b"})
        assert made.output_text == "Hello."
        assert [item.type for item in made.output] == ["reasoning", "message"]
        assert made.usage is not None
        assert made.usage.total_tokens == 15
        assert (await client.responses.retrieve(made.id)).to_dict() == made.to_dict()


async def test_streamed_events(tmp_path: Path) -> None:
    async with openai_at(tmp_path, ScriptedModel([say("Hel", "lo.")])) as (_, client):
        stream = await client.responses.create(model="hermes", input="Hi", stream=True)
        events = [event async for event in stream]
        deltas = [e.delta for e in events if e.type == "response.output_text.delta"]
        assert "".join(deltas) == "Hello."
        assert events[-1].type == "response.completed"


async def test_the_stream_helper_with_tools_of_the_agent(tmp_path: Path) -> None:
    tools = ScriptedTools()
    tools.add("look", returns("a file"))
    model = ScriptedModel([calls(call("look", path="a"), text="Looking."), say("Found ", "it.")])
    async with openai_at(tmp_path, model, tools=tools) as (_, client):
        async with client.responses.stream(model="hermes", input="Look") as stream:
            snapshots = [
                event.snapshot
                async for event in stream
                if event.type == "response.output_text.delta"
            ]
            final = await stream.get_final_response()
        assert snapshots[-1] == "Found it."
        assert final.output_text == "Looking.Found it."
        kinds = [item.type for item in final.output]
        assert kinds == ["message", "mcp_call", "message"]


def playing(*events: TurnEvent) -> Endpoint:
    """Return an endpoint that answers with the stream of these turn events."""

    async def handler(made: Call[Any, Any]) -> Answer:
        base = ResponseResource(id="resp_1", created_at=1, status="in_progress", model="hermes")
        fold = ResponseStream(base)
        sent = [*fold.begin(), *[one for event in events for one in fold.feed(event)]]

        async def chunks() -> AsyncIterator[bytes]:
            for event in sent:
                yield event.frame()

        return StreamAnswer(chunks=chunks())

    return Endpoint(
        name="play", method="POST", path="/v1/responses", summary="", tag="", handler=handler
    )


async def test_restarts_and_approvals_do_not_confuse_the_stream_helper(tmp_path: Path) -> None:
    request = ApprovalRequest(
        id="ap_1",
        kind=ApprovalKind.APPROVAL,
        agent_id="main",
        session_id="s",
        turn_id="t",
        call_id="c",
        tool="terminal",
        arguments_hash="",
        subject="make",
        reason="",
        pattern="",
        choices=("once", "deny"),
        created_at=1.0,
    )
    endpoint = playing(
        TextDelta("One thing"),
        TextReset(),
        ApprovalAsked(request=request),
        TextDelta("Another"),
        MessageCompleted(message_id=1, message=AssistantMessage(text="Another")),
        TurnFinished(
            outcome=TurnState.DONE, text="Another", usage=Usage(), cost_usd=None, model_calls=1
        ),
    )
    async with http_door(tmp_path, ScriptedModel(), endpoints=[endpoint]) as door:
        client = AsyncOpenAI(api_key=KEY, base_url=f"{door.base_url}/v1", max_retries=0)
        async with client, client.responses.stream(model="hermes", input="Hi") as stream:
            kinds = [event.type async for event in stream]
            final = await stream.get_final_response()
        assert "hermes:approval.request" in kinds
        assert final.output_text == "Another"


async def test_an_error_in_the_stream_is_raised(tmp_path: Path) -> None:
    stopping = TurnError(code="shutdown", message="Hermes is stopping.")
    endpoint = playing(
        TurnFinished(
            outcome=TurnState.INTERRUPTED,
            text="",
            usage=Usage(),
            cost_usd=None,
            model_calls=0,
            error=stopping,
        )
    )
    async with http_door(tmp_path, ScriptedModel(), endpoints=[endpoint]) as door:
        client = AsyncOpenAI(api_key=KEY, base_url=f"{door.base_url}/v1", max_retries=0)
        async with client:
            stream = await client.responses.create(model="hermes", input="Hi", stream=True)
            with pytest.raises(openai.APIError, match="Hermes is stopping"):
                async for _ in stream:
                    pass


async def test_a_round_of_client_tools(tmp_path: Path) -> None:
    model = ScriptedModel([calls(call("get_weather", city="Bern")), say("Sunny.")])
    async with openai_at(tmp_path, model) as (_, client):
        async with client.responses.stream(model="hermes", input="?", tools=[TOOL]) as stream:
            first = await stream.get_final_response()
        (item,) = first.output
        assert item.type == "function_call"
        assert item.parsed_arguments == {"city": "Bern"}
        second = await client.responses.create(
            model="hermes",
            previous_response_id=first.id,
            input=[{"type": "function_call_output", "call_id": item.call_id, "output": "sunny"}],
            tools=[TOOL],
        )
        assert second.output_text == "Sunny."


class Number(BaseModel):
    number: int


async def test_structured_output_is_parsed(tmp_path: Path) -> None:
    model = ScriptedModel([say('{"number": 42}')])
    async with openai_at(tmp_path, model) as (_, client):
        parsed = await client.responses.parse(model="hermes", input="?", text_format=Number)
        assert parsed.output_parsed == Number(number=42)
        assert model.requests[0].response_schema is not None


async def test_background_poll_resume_and_cancel(tmp_path: Path) -> None:
    hold = asyncio.Event()
    model = ScriptedModel([say("Hel", "lo."), Reply(pieces=("Half",), before_end=hold)])
    async with openai_at(tmp_path, model) as (_, client):
        stream = await client.responses.create(
            model="hermes", input="Hi", background=True, stream=True
        )
        events = [event async for event in stream]
        done = events[-1]
        assert done.type == "response.completed"
        rest = await client.responses.retrieve(
            done.response.id, stream=True, starting_after=events[3].sequence_number
        )
        resumed = [event.to_dict() async for event in rest]
        assert resumed == [event.to_dict() for event in events[4:]]
        async with client.responses.stream(response_id=done.response.id) as again:
            assert (await again.get_final_response()).output_text == "Hello."
        second = await client.responses.create(model="hermes", input="Hi", background=True)
        assert second.status in ("queued", "in_progress")
        assert (await client.responses.cancel(second.id)).status == "cancelled"


async def test_input_items_and_deletion(tmp_path: Path) -> None:
    async with openai_at(tmp_path, ScriptedModel([say("Ok.")])) as (_, client):
        made = await client.responses.create(
            model="hermes",
            input=[{"role": "user", "content": f"message {number}"} for number in range(5)],
        )
        listed = [
            item.to_dict()
            async for item in client.responses.input_items.list(made.id, limit=2, order="asc")
        ]
        assert [item["content"] for item in listed] == [
            [{"type": "input_text", "text": f"message {number}"}] for number in range(5)
        ]
        await client.responses.delete(made.id)
        with pytest.raises(openai.NotFoundError) as caught:
            await client.responses.retrieve(made.id)
        assert caught.value.code == "response_not_found"


async def test_a_conversation_and_its_errors(tmp_path: Path) -> None:
    async with openai_at(tmp_path, ScriptedModel(default=say("Ok."))) as (_, client):
        made = await client.responses.create(model="hermes", input="Hi", conversation="talk")
        assert made.conversation is not None
        assert made.conversation.id == "talk"
        with pytest.raises(openai.BadRequestError) as caught:
            await client.responses.create(
                model="hermes", input="Hi", tools=[{"type": "web_search"}]
            )
        assert caught.value.param == "tools[0].type"


async def test_arguments_for_the_client_are_streamed_as_they_come(tmp_path: Path) -> None:
    hold = asyncio.Event()
    made = call("get_weather", city="Rome")
    model = ScriptedModel([Reply(pieces=("Hm.",), tool_calls=(made,), before_end=hold)])
    async with openai_at(tmp_path, model) as (_, client):
        events: list[Any] = []
        async for event in await client.responses.create(
            model="hermes", input="Weather?", tools=[TOOL], stream=True
        ):
            events.append(event)
            if [each.type for each in events].count(DELTA) == 2:
                hold.set()  # both came while the model was still at it
        said = [each.delta for each in events if each.type == DELTA]
        assert "".join(said) == '{"city":"Rome"}'
        message, called = events[-1].response.output
        assert (message.type, called.type, called.arguments) == (
            "message",
            "function_call",
            '{"city":"Rome"}',
        )
        assert (await client.responses.retrieve(events[-1].response.id)).output[1] == called


DELTA = "response.function_call_arguments.delta"
