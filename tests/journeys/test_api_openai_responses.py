"""The real `openai` package and `/v1/responses` of a real gateway process."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
import pytest_asyncio
from openai import AsyncOpenAI
from openai.types.responses import Response

from fakes.api_clients import OWN_CALLS, WEATHER, ClientWorld, client_world
from fakes.api_gateway import KEY

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.xdist_group("openai_python"),
]

TOOL: Any = {"type": "function", "strict": True, **WEATHER}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ClientWorld]:
    async with client_world(tmp_path_factory.mktemp("responses")) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def client(world: ClientWorld) -> AsyncIterator[AsyncOpenAI]:
    made = AsyncOpenAI(api_key=KEY, base_url=world.base_url, max_retries=0, timeout=20)
    async with made, asyncio.timeout(30):
        yield made


async def ended(client: AsyncOpenAI, response: Response) -> Response:
    """Poll a background response until it has ended."""
    while response.status in ("queued", "in_progress"):
        await asyncio.sleep(0.02)
        response = await client.responses.retrieve(response.id)
    return response


async def test_a_response_is_stored_continued_and_deleted(
    client: AsyncOpenAI, world: ClientWorld
) -> None:
    first = await client.responses.create(
        model="hermes", input="think", instructions="Be brief.", metadata={"a": "b"}
    )
    assert [item.type for item in first.output] == ["reasoning", "message"]
    assert first.output_text == "Thought."
    second = await client.responses.create(
        model="hermes", input="echo again", previous_response_id=first.id
    )
    assert second.previous_response_id == first.id
    assert b"Thought." in world.asked("echo again")[0].raw
    assert (await client.responses.retrieve(first.id)).metadata == {"a": "b"}
    await client.responses.delete(second.id)
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(second.id)


async def test_a_conversation_has_a_name(client: AsyncOpenAI, world: ClientWorld) -> None:
    for text in ("echo first in the garden", "echo second in the garden"):
        made = await client.responses.create(model="hermes", input=text, conversation="garden")
        assert made.conversation is not None
        assert made.conversation.id == "garden"
    assert b"first in the garden" in world.asked("echo second in the garden")[-1].raw


async def test_a_streamed_response(client: AsyncOpenAI) -> None:
    stream = await client.responses.create(model="hermes", input="Hi", stream=True)
    events = [event async for event in stream]
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == "Hello from the agent."
    assert len(deltas) > 1, "the answer came in one piece"
    assert events[0].type == "response.created"
    assert events[-1].type == "response.completed"


@pytest.mark.parametrize("streaming", [True, False])
async def test_a_response_with_tools_of_the_client(client: AsyncOpenAI, streaming: bool) -> None:
    async def turn(**more: Any) -> Any:
        common: Any = {"model": "hermes", "tools": [TOOL], **more}
        if not streaming:
            return await client.responses.create(**common)
        async with client.responses.stream(**common) as stream:
            return await stream.get_final_response()

    first = await turn(input="weather in Rome")
    [made] = [item for item in first.output if item.type == "function_call"]
    assert made.name == "weather"
    assert sum(item.type == "mcp_call" for item in first.output) == 2
    output = {"type": "function_call_output", "call_id": made.call_id, "output": "25 degrees"}
    second = await turn(input=[output], previous_response_id=first.id)
    assert second.output_text == "Sunny in Rome."


async def test_a_background_response_is_polled_or_cancelled(
    client: AsyncOpenAI, world: ClientWorld
) -> None:
    made = await client.responses.create(model="hermes", input="Hi", background=True)
    assert made.status in ("queued", "in_progress")
    assert (await ended(client, made)).output_text == "Hello from the agent."
    world.model.disconnected.clear()
    second = await client.responses.create(
        model="hermes", input="stall in the background", background=True
    )
    await world.until_asked("stall in the background")
    assert (await client.responses.cancel(second.id)).status == "cancelled"
    async with asyncio.timeout(10):
        await world.model.disconnected.wait()


async def test_a_long_turn_as_a_response(client: AsyncOpenAI) -> None:
    async with client.responses.stream(model="hermes", input="long") as stream:
        numbers = [event.sequence_number async for event in stream]
        final = await stream.get_final_response()
    assert numbers == list(range(len(numbers)))
    assert final.output_text == "All of it is done."
    kinds = [item.type for item in final.output]
    assert kinds.count("mcp_call") == OWN_CALLS
    assert "function_call" not in kinds
