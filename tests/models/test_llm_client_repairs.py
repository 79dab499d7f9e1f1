"""What a provider refuses is left out once; what a model breaks is mended."""

import pytest
from msgspec.structs import replace

from fakes.model import Call, FakeModelServer, Script, Step
from fakes.model_client import Heard, ask, client_of, route_to
from hermes.domain.messages import (
    AssistantMessage,
    ImagePart,
    Reasoning,
    TextPart,
    UserMessage,
)
from hermes.domain.ports.model import ModelFailure
from hermes.domain.tools import ToolSpec
from hermes.models.providers import ApiMode


async def test_images_are_left_out_once_when_they_are_refused() -> None:
    refusal = Step(status=400, body={"error": {"message": "This model does not support images"}})
    image = ImagePart(url="data:image/png;base64,aGk=")
    messages = (UserMessage(content=(TextPart("what is this?"), image)),)
    async with FakeModelServer([refusal, Step(text="no idea")]) as server:
        heard = Heard()
        client = client_of(route_to(server))
        await client.complete(ask(messages=messages), heard)
        await client.close()
    assert heard.notices == ["repair"]
    assert b"aGk=" in server.requests[0].raw
    assert b"aGk=" not in server.requests[1].raw
    assert server.requests[1].body["messages"][-1]["content"] == "what is this?\n[image]"


async def test_signed_reasoning_is_left_out_once_when_it_is_refused() -> None:
    details = ({"type": "thinking", "thinking": "hm", "signature": "old"},)
    thought = Reasoning(text="hm", details=details, protocol="anthropic_messages")
    messages = (
        UserMessage(content="a"),
        AssistantMessage(text="b", reasoning=thought),
        UserMessage(content="c"),
    )
    message = "messages.1.content.0: Invalid `signature` in `thinking` block"
    refusal = Step(status=400, body={"error": {"type": "x", "message": message}})
    async with FakeModelServer([refusal, Step(text="fine")]) as server:
        client = client_of(route_to(server, ApiMode.ANTHROPIC_MESSAGES))
        await client.complete(ask(messages=messages))
        await client.close()
    assert b'"signature":"old"' in server.requests[0].raw
    assert b"signature" not in server.requests[1].raw


@pytest.mark.parametrize(
    ("mode", "field"),
    [
        (ApiMode.CHAT_COMPLETIONS, "stream_options"),
        (ApiMode.CHAT_COMPLETIONS, "temperature"),
        (ApiMode.RESPONSES, "temperature"),
        (ApiMode.ANTHROPIC_MESSAGES, "temperature"),
        (ApiMode.RESPONSES, "reasoning"),
    ],
)
async def test_a_parameter_that_is_not_supported_is_left_out(mode: ApiMode, field: str) -> None:
    effort = "high" if field == "reasoning" else None
    async with FakeModelServer(Script(default=Step(text="fine", refuse_field=field))) as server:
        client = client_of(route_to(server, mode))
        request = ask(temperature=0.2, reasoning_effort=effort)
        reply = await client.complete(request)
        await client.close()
    assert reply.message.text == "fine"
    assert field in server.requests[0].body
    assert field not in server.requests[1].body


async def test_the_form_of_the_answer_is_never_left_out() -> None:
    step = Step(text="fine", refuse_field="response_format")
    async with FakeModelServer(Script(default=step)) as server:
        client = client_of(route_to(server))
        with pytest.raises(ModelFailure, match="response_format"):
            await client.complete(ask(json_object=True))
        await client.close()
    assert len(server.requests) == 1


async def test_the_output_limit_is_renamed_for_servers_that_want_the_other_name() -> None:
    step = Step(text="fine", refuse_field="max_tokens")
    async with FakeModelServer(Script(default=step)) as server:
        client = client_of(route_to(server))
        await client.complete(ask(max_tokens=500))
        await client.close()
    assert server.requests[1].body["max_completion_tokens"] == 500


async def test_a_refusal_that_names_no_field_is_tried_without_reasoning_effort() -> None:
    refusal = Step(status=400, body={"error": {"message": "Extra inputs are not permitted"}})
    async with FakeModelServer([refusal, Step(text="fine")]) as server:
        client = client_of(route_to(server))
        reply = await client.complete(ask(reasoning_effort="low"))
        await client.close()
    assert reply.message.text == "fine"
    assert ["reasoning_effort" in each.body for each in server.requests] == [True, False]


async def test_a_server_that_refuses_streaming_is_asked_without() -> None:
    async with FakeModelServer(Script(default=Step(text="fine", refuse_stream=True))) as server:
        client, heard = client_of(route_to(server)), Heard()
        reply = await client.complete(ask(), heard)
        await client.close()
    assert reply.message.text == heard.text == "fine"
    assert [request.body["stream"] for request in server.requests] == [True, False]


async def test_broken_arguments_are_repaired_and_ids_made_unique() -> None:
    calls = [
        Call(name="a", arguments='{"x": 1,}', id="same"),
        Call(name="b", arguments="", id="same"),
        Call(name="c", arguments="{'y': True}", id=""),
        Call(name="d", arguments="no json at all", id="d"),
    ]
    async with FakeModelServer([Step(calls=calls)]) as server:
        client = client_of(route_to(server))
        reply = await client.complete(ask())
        await client.close()
    got = reply.message.tool_calls
    assert [call.arguments for call in got] == ['{"x": 1}', "{}", '{"y": true}', "no json at all"]
    assert len({call.id for call in got}) == 4
    assert all(call.id for call in got)


@pytest.mark.parametrize("finish", ["length", "tool_calls", "stop"])
async def test_arguments_that_were_cut_are_not_closed(finish: str) -> None:
    calls = [Call(name="write_file", arguments='{"content": "half of th', id="c")]
    async with FakeModelServer([Step(calls=calls, finish=finish)]) as server:
        client = client_of(route_to(server))
        reply = await client.complete(ask())
        await client.close()
    assert reply.message.tool_calls[0].arguments == '{"content": "half of th'


@pytest.mark.parametrize("mode", list(ApiMode))
async def test_strictness_that_is_refused_is_left_out(mode: ApiMode) -> None:
    refusal = Step(status=400, body={"error": {"message": "tools.0.strict: Extra inputs"}})
    tool = ToolSpec(name="look", toolset="t", parameters={"type": "object"}, strict=True)
    async with FakeModelServer([refusal, Step(text="fine")]) as server:
        client = client_of(route_to(server, mode))
        await client.complete(replace(ask(), tools=(tool,)))
        await client.close()
    assert b'"strict":true' in server.requests[0].raw
    assert b'"strict":true' not in server.requests[1].raw
