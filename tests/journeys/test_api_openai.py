"""The real `openai` package against a real gateway process."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
import pytest_asyncio
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionChunk, ChatCompletionMessageParam
from pydantic import BaseModel

from fakes.api_clients import (
    MARK,
    MAX_RUNS,
    OWN_CALLS,
    PIXEL,
    WEATHER,
    ClientWorld,
    CutLine,
    client_world,
)
from fakes.api_gateway import KEY

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.xdist_group("openai_python"),
]

CHAT_TOOL: Any = {"type": "function", "function": WEATHER}


class Person(BaseModel):
    name: str
    age: int


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ClientWorld]:
    folder = tmp_path_factory.mktemp("openai")
    api = {"enabled": True, "extra": {"key": KEY, "port": 0, "keepalive_seconds": 0.2}}
    async with client_world(folder, platforms={"api_server": api}) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def client(world: ClientWorld) -> AsyncIterator[AsyncOpenAI]:
    made = AsyncOpenAI(api_key=KEY, base_url=world.base_url, max_retries=0, timeout=20)
    async with made, asyncio.timeout(30):
        yield made


def user(text: str) -> list[ChatCompletionMessageParam]:
    return [{"role": "user", "content": text}]


async def text_of(stream: openai.AsyncStream[ChatCompletionChunk]) -> str:
    """Read a stream like most programs: without a check for chunks of another kind."""
    return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])


# -- models and chat completions -----------------------------------------------------


async def test_the_agent_is_a_model(client: AsyncOpenAI) -> None:
    assert [model.id async for model in client.models.list()] == ["hermes"]
    assert (await client.models.retrieve("hermes")).owned_by == "hermes"


async def test_a_chat_with_its_history_and_instructions(
    client: AsyncOpenAI, world: ClientWorld
) -> None:
    answer = await client.chat.completions.create(
        model="hermes",
        messages=[
            {"role": "system", "content": "Speak like a sailor."},
            {"role": "user", "content": "I am Ann."},
            {"role": "assistant", "content": "Ahoy, Ann."},
            {"role": "user", "content": "echo who am I"},
        ],
    )
    assert answer.choices[0].message.content == "echo who am I"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.model == "hermes"
    assert answer.usage is not None
    assert answer.usage.total_tokens == 120
    [asked] = world.asked("echo who am I")
    assert b"Ahoy, Ann." in asked.raw
    assert b"Speak like a sailor." in asked.raw


async def test_a_stream_with_usage_at_its_end(client: AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(
        model="hermes", messages=user("Hi"), stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    said = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(said) == "Hello from the agent."
    assert sum(bool(piece) for piece in said) > 1, "the answer came in one piece"
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == 120


async def test_the_synchronous_client(world: ClientWorld) -> None:
    def talk() -> tuple[str, str, str]:
        with openai.OpenAI(api_key=KEY, base_url=world.base_url, timeout=20) as client:
            whole = client.chat.completions.create(model="hermes", messages=user("echo a"))
            pieces = client.chat.completions.create(
                model="hermes", messages=user("echo b"), stream=True
            )
            said = "".join(chunk.choices[0].delta.content or "" for chunk in pieces)
            response = client.responses.create(model="hermes", input="echo c")
            return whole.choices[0].message.content or "", said, response.output_text

    assert await asyncio.to_thread(talk) == ("echo a", "echo b", "echo c")


async def test_a_session_goes_on_under_its_id_or_its_name(
    client: AsyncOpenAI, world: ClientWorld
) -> None:
    first = await client.chat.completions.with_raw_response.create(
        model="hermes", messages=user("echo my cat is Tom")
    )
    by_id = {"X-Hermes-Session-Id": first.headers["x-hermes-session-id"]}
    await client.chat.completions.create(
        model="hermes", messages=user("echo by id"), extra_headers=by_id
    )
    by_name = {"X-Hermes-Session-Key": "cats"}
    for text in ("echo my cat is Tim", "echo by name"):
        await client.chat.completions.create(
            model="hermes", messages=user(text), extra_headers=by_name
        )
    assert b"my cat is Tom" in world.asked("echo by id")[0].raw
    assert b"my cat is Tim" in world.asked("echo by name")[0].raw


@pytest.mark.parametrize("streaming", [True, False])
async def test_tools_of_the_client_between_tools_of_the_agent(
    client: AsyncOpenAI, world: ClientWorld, streaming: bool
) -> None:
    talk = user(f"weather in Rome, streaming {streaming}")

    async def turn() -> Any:
        common: Any = {"model": "hermes", "messages": talk, "tools": [CHAT_TOOL]}
        if not streaming:
            return (await client.chat.completions.create(**common)).choices[0]
        async with client.chat.completions.stream(**common) as stream:
            return (await stream.get_final_completion()).choices[0]

    first = await turn()
    assert first.finish_reason == "tool_calls"
    # As a whole an answer is the last thing said; a stream has shown the rest before that.
    assert first.message.content == ("Let me see." if streaming else None)
    [made] = first.message.tool_calls
    assert made.function.name == "weather"
    assert json.loads(made.function.arguments) == {"city": "Rome"}
    talk.append(first.message.model_dump(include={"role", "content", "tool_calls"}))
    talk.append({"role": "tool", "tool_call_id": made.id, "content": "25 degrees"})
    second = await turn()
    assert second.message.content == "Sunny in Rome."
    last = world.asked(f"streaming {streaming}")[-1].raw
    assert b"25 degrees" in last
    assert last.count(MARK.encode()) >= 2, "the agent forgot its own call or its result"


async def test_the_tools_of_the_agent_are_chosen_by_name(
    client: AsyncOpenAI, world: ClientWorld
) -> None:
    async def ask(names: str) -> list[str]:
        text = f"hello with {names}"
        headers = {"X-Hermes-Tools": names}
        await client.chat.completions.create(
            model="hermes", messages=user(text), extra_headers=headers
        )
        return [tool["function"]["name"] for tool in world.asked(text)[0].body["tools"]]

    assert await ask("terminal,read_file") == ["read_file", "terminal"]
    with pytest.raises(openai.BadRequestError, match=r"`termnial`.*terminal \(process, terminal\)"):
        await ask("termnial")


async def test_an_answer_in_a_given_shape(client: AsyncOpenAI, world: ClientWorld) -> None:
    chat = await client.chat.completions.parse(
        model="hermes", messages=user("a person, please"), response_format=Person
    )
    assert chat.choices[0].message.parsed == Person(name="Ada", age=36)
    response = await client.responses.parse(
        model="hermes", input="another person, please", text_format=Person
    )
    assert response.output_parsed == Person(name="Ada", age=36)
    for text in ("a person, please", "another person, please"):
        assert world.asked(text)[0].body["response_format"]["type"] == "json_schema"


async def test_the_model_sees_a_picture(client: AsyncOpenAI, world: ClientWorld) -> None:
    await client.chat.completions.create(
        model="hermes",
        messages=[
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "echo chat picture"},
                    {"type": "image_url", "image_url": {"url": PIXEL, "detail": "low"}},
                ],
            }
        ],
    )
    await client.responses.create(
        model="hermes",
        input=[
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "echo response picture"},
                    {"type": "input_image", "image_url": PIXEL, "detail": "low"},
                ],
            }
        ],
    )
    for text in ("echo chat picture", "echo response picture"):
        [asked] = world.asked(text)
        shown = [part for part in asked.body["messages"][-1]["content"] if "image_url" in part]
        assert [part["image_url"] for part in shown] == [{"url": PIXEL, "detail": "low"}]


# -- long turns ----------------------------------------------------------------------


async def test_a_long_turn_keeps_its_stream_open(client: AsyncOpenAI, world: ClientWorld) -> None:
    async def read_raw() -> list[str]:
        async with client.chat.completions.with_streaming_response.create(
            model="hermes", messages=user("long, raw"), stream=True
        ) as answer:
            return [line async for line in answer.iter_lines()]

    async def read_usually() -> str:
        stream = await client.chat.completions.create(
            model="hermes", messages=user("long, usual"), stream=True
        )
        return await text_of(stream)

    lines, text = await asyncio.gather(read_raw(), read_usually())
    assert text == "All of it is done."
    assert lines.count("event: hermes.tool.progress") == 2 * OWN_CALLS
    assert any(line.startswith(":") for line in lines), "no keep-alive in a second of silence"
    data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    assert data[-1] == "[DONE]"
    chunks = [json.loads(each) for each in data[:-1]]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert "".join(delta.get("content", "") for delta in deltas) == "All of it is done."
    done = [chunk for chunk in chunks if chunk.get("status") == "completed"]
    assert len({chunk["toolCallId"] for chunk in done}) == OWN_CALLS


async def test_leaving_a_stream_interrupts_the_turn(
    client: AsyncOpenAI, world: ClientWorld
) -> None:
    world.model.disconnected.clear()
    stream = await client.chat.completions.create(
        model="hermes", messages=user("stall, I leave"), stream=True
    )
    async for chunk in stream:
        if chunk.choices[0].delta.content:
            break
    await stream.close()
    async with asyncio.timeout(10):
        await world.model.disconnected.wait()


async def test_giving_up_on_an_answer_interrupts_the_turn(
    client: AsyncOpenAI, world: ClientWorld
) -> None:
    world.model.disconnected.clear()
    with pytest.raises(openai.APITimeoutError):
        await client.with_options(timeout=0.5).chat.completions.create(
            model="hermes", messages=user("stall, I give up")
        )
    async with asyncio.timeout(10):
        await world.model.disconnected.wait()
    assert len(world.asked("stall, I give up")) == 1


@pytest.mark.parametrize("streaming", [True, False])
async def test_a_retry_with_an_idempotency_key_does_not_run_the_turn_twice(
    world: ClientWorld, streaming: bool
) -> None:
    """The package repeats a request by itself when the connection breaks before an answer."""
    name = f"once, streaming {streaming}"
    line = CutLine(world.gateway.port)
    async with line.laid() as address, AsyncOpenAI(api_key=KEY, base_url=address) as client:

        async def ask() -> str:
            common: Any = {"model": "hermes", "messages": user(name)}
            common["extra_headers"] = {"Idempotency-Key": name}
            if streaming:
                return await text_of(await client.chat.completions.create(**common, stream=True))
            answer = await client.chat.completions.create(**common)
            return str(answer.choices[0].message.content)

        async with asyncio.timeout(20), asyncio.TaskGroup() as group:
            asking = group.create_task(ask())
            await world.until_asked(name, times=2)
            line.cut.set()
        assert asking.result() == "Done once."
    assert line.connections == 2
    assert len(world.asked(name)) == 2, "a turn that calls one tool asks its model twice"


# -- errors --------------------------------------------------------------------------


async def test_errors_are_the_exceptions_that_programs_expect(
    client: AsyncOpenAI, world: ClientWorld
) -> None:
    create = client.chat.completions.create
    with pytest.raises(openai.AuthenticationError):
        await client.with_options(api_key="wrong-key-0123456789").models.list()
    with pytest.raises(openai.NotFoundError) as unknown:
        await create(model="gpt-5", messages=user("Hi"))
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve("resp_unknown")
    with pytest.raises(openai.BadRequestError) as wrong:
        await create(model="hermes", messages=user("Hi"), n=2)
    assert wrong.value.param == "n"
    with pytest.raises(openai.InternalServerError) as failed:
        await create(model="hermes", messages=user("fail"))
    assert failed.value.code == "agent_incomplete"
    watcher = await world.new_key("watcher", "--action", "observe")
    with pytest.raises(openai.PermissionDeniedError) as forbidden:
        await client.with_options(api_key=watcher).responses.create(model="hermes", input="Hi")
    assert forbidden.value.code == "action_not_allowed"
    headers = {"Idempotency-Key": "used for two requests"}
    await create(model="hermes", messages=user("one"), extra_headers=headers)
    with pytest.raises(openai.ConflictError):
        await create(model="hermes", messages=user("two"), extra_headers=headers)


async def test_a_failure_in_a_stream_is_raised_with_its_reason(client: AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(
        model="hermes", messages=user("fail"), stream=True
    )
    with pytest.raises(openai.APIError) as failed:
        await text_of(stream)
    assert failed.value.code == "agent_incomplete"


async def test_too_many_runs_are_a_rate_limit(client: AsyncOpenAI) -> None:
    started = [
        await client.responses.create(model="hermes", input="stall, fill up", background=True)
        for _ in range(MAX_RUNS)
    ]
    try:
        with pytest.raises(openai.RateLimitError) as refused:
            await client.responses.create(model="hermes", input="one too many")
        assert refused.value.response.headers["retry-after"] == "1"
    finally:
        for each in started:
            await client.responses.cancel(each.id)
