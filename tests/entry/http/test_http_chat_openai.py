"""The real `openai` package against the door."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.chat import (
    ChatCompletionChunk,
    ChatCompletionFunctionToolParam,
    ChatCompletionMessageParam,
)

from fakes.core import ScriptedTools, returns
from fakes.http_door import KEY, HttpDoor, http_door
from hermes.domain.messages import FinishReason
from hermes.domain.ports.model import FailureKind, ModelFailure
from hermes.domain.runs import RunQuery, RunState
from hermes.entry.http.api import chat
from hermes.entry.http.endpoint import operations
from hermes.testing.model import Reply, ScriptedModel, Step, call, calls, say, thinks

WEATHER: ChatCompletionFunctionToolParam = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tells the weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
HI: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Hi"}]


def looking() -> ScriptedTools:
    tools = ScriptedTools()
    tools.add("look", returns("nothing"))
    return tools


@asynccontextmanager
async def served(
    folder: Path, *script: Step, **more: Any
) -> AsyncIterator[tuple[openai.AsyncOpenAI, HttpDoor]]:
    model = ScriptedModel(script)
    async with asyncio.timeout(30):
        async with http_door(folder, model, endpoints=operations(chat), **more) as door:
            base_url = f"{door.base_url}/v1"
            async with openai.AsyncOpenAI(api_key=KEY, base_url=base_url, max_retries=0) as client:
                yield client, door


async def read_into(said: list[str], stream: openai.AsyncStream[ChatCompletionChunk]) -> None:
    async for chunk in stream:
        said.append(chunk.choices[0].delta.content or "")


async def test_an_answer(tmp_path: Path) -> None:
    async with served(tmp_path, say("Hello")) as (client, _):
        answer = await client.chat.completions.create(model="hermes", messages=HI)
        assert answer.choices[0].message.content == "Hello"
        assert answer.choices[0].finish_reason == "stop"
        assert answer.model == "hermes"
        assert answer.usage is not None
        assert answer.usage.total_tokens == 15
        assert answer.usage.prompt_tokens_details is not None
        assert answer.usage.prompt_tokens_details.cached_tokens == 0


async def test_a_stream_through_tools_as_most_programs_read_it(tmp_path: Path) -> None:
    script = (calls(call("look"), text="Let me look."), thinks("hm", "Not", "hing."))
    async with served(tmp_path, *script, tools=looking()) as (client, _):
        stream = await client.chat.completions.create(model="hermes", messages=HI, stream=True)
        text, reasons = "", []
        async for chunk in stream:
            # No check for a chunk without choices: most programs have none.
            text += chunk.choices[0].delta.content or ""
            reasons.append(chunk.choices[0].finish_reason)
        assert text == "Let me look.\n\nNothing."
        assert [reason for reason in reasons if reason] == ["stop"]


async def test_usage_at_the_end_of_a_stream(tmp_path: Path) -> None:
    async with served(tmp_path, say("Hello")) as (client, _):
        stream = await client.chat.completions.create(
            model="hermes", messages=HI, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
        assert chunks[-1].choices == []
        assert chunks[-1].usage is not None
        assert chunks[-1].usage.total_tokens == 15


async def test_the_stream_helper_puts_everything_together(tmp_path: Path) -> None:
    script = (calls(call("look"), text="Let me look."), thinks("hm", "Not", "hing."))
    async with served(tmp_path, *script, tools=looking()) as (client, _):
        async with client.chat.completions.stream(model="hermes", messages=HI) as stream:
            kinds = {event.type async for event in stream}
            final = await stream.get_final_completion()
        assert "content.delta" in kinds
        assert final.choices[0].message.content == "Let me look.\n\nNothing."
        assert final.choices[0].finish_reason == "stop"


@pytest.mark.parametrize("streaming", [True, False])
async def test_tools_of_the_client(tmp_path: Path, streaming: bool) -> None:
    script = (calls(call("weather", city="Rome")), say("Sunny."))
    async with served(tmp_path, *script) as (client, _):
        talk: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Weather in Rome?"}]
        if streaming:
            async with client.chat.completions.stream(
                model="hermes", messages=talk, tools=[WEATHER]
            ) as stream:
                first = (await stream.get_final_completion()).choices[0]
        else:
            whole = await client.chat.completions.create(
                model="hermes", messages=talk, tools=[WEATHER]
            )
            first = whole.choices[0]  # type: ignore[assignment]
        assert first.finish_reason == "tool_calls"
        assert first.message.tool_calls is not None
        [made] = first.message.tool_calls
        assert made.type == "function"
        assert json.loads(made.function.arguments) == {"city": "Rome"}
        talk.append(
            {
                "role": "assistant",
                "content": first.message.content,
                "tool_calls": [
                    {
                        "id": made.id,
                        "type": "function",
                        "function": {"name": "weather", "arguments": made.function.arguments},
                    }
                ],
            }
        )
        talk.append({"role": "tool", "tool_call_id": made.id, "content": "25 degrees"})
        second = await client.chat.completions.create(
            model="hermes", messages=talk, tools=[WEATHER]
        )
        assert second.choices[0].message.content == "Sunny."


async def test_a_failure_in_a_stream_is_an_error_with_its_reason(tmp_path: Path) -> None:
    failure = ModelFailure(FailureKind.SERVER, "The model is gone.")
    script = (calls(call("look"), text="Let me look."), failure)
    async with served(tmp_path, *script, tools=looking()) as (client, _):
        stream = await client.chat.completions.create(model="hermes", messages=HI, stream=True)
        said: list[str] = []
        with pytest.raises(openai.APIError, match="The model is gone"):
            await read_into(said, stream)
        assert "".join(said) == "Let me look."


async def test_errors_are_the_exceptions_that_programs_expect(tmp_path: Path) -> None:
    failure = ModelFailure(FailureKind.RATE_LIMIT, "The model is busy.")
    async with served(tmp_path, failure) as (client, _):
        with pytest.raises(openai.NotFoundError) as unknown:
            await client.chat.completions.create(model="gpt-4o", messages=HI)
        assert unknown.value.code == "model_not_found"
        with pytest.raises(openai.BadRequestError) as wrong:
            await client.chat.completions.create(model="hermes", messages=HI, n=2)
        assert wrong.value.param == "n"
        with pytest.raises(openai.InternalServerError) as failed:
            await client.chat.completions.create(model="hermes", messages=HI)
        assert failed.value.status_code == 502
        assert failed.value.code == "agent_incomplete"
        with pytest.raises(openai.AuthenticationError):
            await client.with_options(api_key="wrong-key-0123456789").chat.completions.create(
                model="hermes", messages=HI
            )


async def test_headers_of_ours_can_be_sent_and_read(tmp_path: Path) -> None:
    async with served(tmp_path, say("Hello, Ann."), say("Ann.")) as (client, _):
        raw = await client.chat.completions.with_raw_response.create(
            model="hermes", messages=[{"role": "user", "content": "I am Ann."}]
        )
        again = await client.chat.completions.create(
            model="hermes",
            messages=[{"role": "user", "content": "Who am I?"}],
            extra_headers={"X-Hermes-Session-Id": raw.headers["x-hermes-session-id"]},
        )
        assert again.choices[0].message.content == "Ann."


async def test_a_stream_that_is_closed_early_interrupts_its_turn(tmp_path: Path) -> None:
    slow = Reply(pieces=("Long",), before_end=asyncio.Event())
    async with served(tmp_path, slow) as (client, door):
        stream = await client.chat.completions.create(model="hermes", messages=HI, stream=True)
        async for chunk in stream:
            if chunk.choices[0].delta.content:
                break
        await stream.close()
        [run] = await door.ledger.runs(RunQuery())
        assert (await door.runs.wait(run)).state is RunState.INCOMPLETE


async def test_thoughts_and_the_outcome_are_told_without_streaming(tmp_path: Path) -> None:
    cut = Reply(pieces=("Half",), finish=FinishReason.LENGTH)
    down = ModelFailure(FailureKind.SERVER, "The model is down.")
    async with served(tmp_path, thinks("Hm.", "Hello"), cut, down) as (client, door):
        raw = client.chat.completions.with_raw_response
        answer = await raw.create(model="hermes", messages=HI)
        message = answer.parse().choices[0].message
        assert (message.content, message.to_dict()["reasoning_content"]) == ("Hello", "Hm.")
        assert flags(answer.headers) == ("true", "false", None)
        part = await raw.create(model="hermes", messages=HI, max_tokens=5)
        assert flags(part.headers) == ("false", "true", "output_truncated")
        body = {"model": "hermes", "messages": HI}
        failed = await door.client.post("/v1/chat/completions", json=body)
        assert failed.status_code == 502
        assert flags(failed.headers) == ("false", "false", "The model is down.")


def flags(headers: Any) -> tuple[str | None, ...]:
    return tuple(headers.get(f"x-hermes-{name}") for name in ("completed", "partial", "error"))


async def test_continue_goes_on_from_the_words_of_the_agent(tmp_path: Path) -> None:
    script = (say("One, two"), say(", three."), say("Four."))
    async with served(tmp_path, *script) as (client, door):
        chat = client.chat.completions.with_raw_response
        first = await chat.create(model="hermes", messages=HI)
        talk: list[Any] = [*HI, {"role": "assistant", "content": "One, two"}]
        more = await chat.create(model="hermes", messages=talk)
        assert more.parse().choices[0].message.content == ", three."
        talk = [*HI, {"role": "assistant", "content": "One, two, three."}]
        last = await chat.create(
            model="hermes", messages=[*talk, {"role": "user", "content": "On"}]
        )
        assert len({each.headers["x-hermes-session-id"] for each in (first, more, last)}) == 1
        shown = (await door.ledger.history(last.headers["x-hermes-session-id"]))[:3]
        words = [getattr(each.message, "text", "") for each in shown]
        assert words == ["", "One, two", ", three."]


async def test_system_messages_alone_and_files(tmp_path: Path) -> None:
    async with served(tmp_path, say("Welcome!"), say("Read.")) as (client, door):
        only: Any = [{"role": "system", "content": "Greet the visitor."}]
        answer = await client.chat.completions.create(model="hermes", messages=only)
        assert answer.choices[0].message.content == "Welcome!"
        data = "data:text/plain;base64,aGVsbG8="
        file = {"type": "file", "file": {"filename": "note.txt", "file_data": data}}
        asked: Any = [{"role": "user", "content": [{"type": "text", "text": "Read"}, file]}]
        await client.chat.completions.create(model="hermes", messages=asked)
        assert door.media.kept == [(b"hello", "text/plain")]


async def test_files_of_an_answer_are_data_urls_and_the_chat_goes_on(tmp_path: Path) -> None:
    answer = (
        "Here you are:\nMED",
        "IA:/work/chart.png\nMEDIA:/work/notes.txt\n",
        "MEDIA:/etc/x.key",
    )
    async with served(tmp_path, say(*answer), say("Glad."), say(*answer)) as (client, door):
        door.media.answers["/work/chart.png"] = b"\x89PNG\r\n\x1a\n"
        door.media.answers["/work/notes.txt"] = b"hello"
        chat = client.chat.completions.with_raw_response
        first = await chat.create(model="hermes", messages=HI)
        text = first.parse().choices[0].message.content or ""
        assert text == (
            "Here you are:\n\n\n![chart.png](data:image/png;base64,iVBORw0KGgo=)"
            "\n\n[notes.txt](data:text/plain;base64,aGVsbG8=)\n\n[x.key]"
        )
        talk: list[Any] = [*HI, {"role": "assistant", "content": text}]
        again = await chat.create(
            model="hermes", messages=[*talk, {"role": "user", "content": "Thanks"}]
        )
        assert again.headers["x-hermes-session-id"] == first.headers["x-hermes-session-id"]
        said: list[str] = []
        await read_into(
            said, await client.chat.completions.create(model="hermes", messages=HI, stream=True)
        )
        assert "".join(said) == text
        assert not any("MED" in each for each in said)


async def test_arguments_for_the_client_are_streamed_as_they_come(tmp_path: Path) -> None:
    rome, oslo = call("weather", city="Rome"), call("weather", city="Oslo")
    hold = asyncio.Event()
    script = Reply(pieces=("Let me see.",), tool_calls=(rome, oslo), before_end=hold)
    async with served(tmp_path, script) as (client, door):
        stream = await client.chat.completions.create(
            model="hermes", messages=HI, tools=[WEATHER], stream=True
        )
        pieces: dict[int, list[str]] = {}
        ids: list[str] = []
        async for chunk in stream:
            for part in chunk.choices[0].delta.tool_calls or ():
                assert part.function is not None
                pieces.setdefault(part.index, []).append(part.function.arguments or "")
                ids += [part.id] if part.id else []
            if sum(map(len, pieces.values())) == 4:
                hold.set()  # all of it came while the model was still at it
        assert ["".join(each) for each in pieces.values()] == ['{"city":"Rome"}', '{"city":"Oslo"}']
        [run] = await door.ledger.runs(RunQuery())
        assert run.outcome is not None
        assert ids == [each.id for each in run.outcome.handed]


async def test_only_calls_that_are_allowed_are_streamed(tmp_path: Path) -> None:
    rome, oslo = call("weather", city="Rome"), call("weather", city="Oslo")
    async with served(tmp_path, calls(rome, oslo)) as (client, _):
        async with client.chat.completions.stream(
            model="hermes", messages=HI, tools=[WEATHER], parallel_tool_calls=False
        ) as stream:
            final = await stream.get_final_completion()
        made = final.choices[0].message.tool_calls or []
        assert [each.function.arguments for each in made] == ['{"city":"Rome"}']
