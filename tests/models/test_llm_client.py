"""One call against a loopback provider: what works, what is tried, what is told."""

import pytest

from fakes.model import Call, Counts, FakeModelServer, Script, Step
from fakes.model_client import Heard, InstantClock, ask, client_of, route_to
from hermes.domain.messages import (
    AssistantMessage,
    FinishReason,
    ImagePart,
    Reasoning,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from hermes.domain.ports.model import FailureKind, ModelFailure
from hermes.domain.settings.models import Price
from hermes.domain.usage import Usage
from hermes.models.catalog import ModelFacts
from hermes.models.client import RetryPolicy
from hermes.models.credentials import ProviderKey
from hermes.models.providers import ApiMode, Quirks

MODES = list(ApiMode)


@pytest.mark.parametrize("mode", MODES)
async def test_text_reasoning_and_parallel_calls_arrive_in_every_protocol(mode: ApiMode) -> None:
    step = Step(
        text="Reading both files.",
        reasoning="two files",
        calls=[
            Call(name="read_file", arguments={"path": "a"}, id="call_a"),
            Call(name="read_file", arguments={"path": "b"}, id="call_b"),
        ],
        usage=Counts(input=1000, output=50, cache_read=800),
    )
    async with FakeModelServer([step]) as server:
        client, heard = client_of(route_to(server, mode)), Heard()
        reply = await client.complete(ask(), heard)
        await client.close()
    assert reply.message.text == heard.text == "Reading both files."
    assert heard.reasoning == "two files"
    pieces = [heard.arguments(number) for number in (0, 1)]
    assert pieces == ['{"path": "a"}', '{"path": "b"}']
    assert reply.message.reasoning is not None
    assert reply.message.reasoning.text == "two files"
    assert [(c.id, c.name, c.arguments) for c in reply.message.tool_calls] == [
        ("call_a", "read_file", '{"path": "a"}'),
        ("call_b", "read_file", '{"path": "b"}'),
    ]
    assert reply.message.finish is FinishReason.TOOL_CALLS
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (1000, 50)
    assert reply.usage.cache_read_tokens == 800
    assert (reply.provider, reply.model) == ("fake", "fake-1")


@pytest.mark.parametrize("mode", MODES)
async def test_what_a_client_was_told_of_a_call_is_not_begun_again(mode: ApiMode) -> None:
    called = Call(name="weather", arguments={"city": "Rome, the eternal city of seven hills"})
    broken = Step(calls=[called], cut=True)
    async with FakeModelServer([broken, Step(text="never")]) as server:
        client, heard = client_of(route_to(server, mode)), Heard(final=True)
        with pytest.raises(ModelFailure):
            await client.complete(ask(), heard)
        await client.close()
        assert len(server.requests) == 1
    assert heard.arguments(0).startswith('{"city"')


@pytest.mark.parametrize("mode", MODES)
async def test_a_server_that_answers_plain_json_is_understood(mode: ApiMode) -> None:
    step = Step(text="hello", calls=[Call(name="a", arguments={"x": 1})], plain=True)
    async with FakeModelServer([step]) as server:
        client, heard = client_of(route_to(server, mode)), Heard()
        reply = await client.complete(ask(), heard)
        await client.close()
    assert reply.message.text == heard.text == "hello"
    assert [call.name for call in reply.message.tool_calls] == ["a"]


@pytest.mark.parametrize("mode", MODES)
async def test_a_whole_tool_exchange_is_a_history_a_strict_provider_accepts(mode: ApiMode) -> None:
    history = (
        UserMessage(content="look"),
        AssistantMessage(
            text="",
            tool_calls=(
                ToolCall(id="c1", name="read_file", arguments='{"path":"a"}'),
                ToolCall(id="c2", name="read_file", arguments="{broken"),
            ),
            finish=FinishReason.TOOL_CALLS,
        ),
        ToolMessage(
            call_id="c1",
            name="read_file",
            content=(TextPart("seen"), ImagePart(url="data:image/png;base64,aGk=")),
        ),
        ToolMessage(call_id="c2", name="read_file", content=""),
        UserMessage(content="and now?", sender="Ann"),
        AssistantMessage(text="done"),
        UserMessage(content=""),
    )
    if mode is ApiMode.CHAT_COMPLETIONS:
        history = (*history[:-1], UserMessage(content="more"))
    async with FakeModelServer([Step(text="fine")]) as server:
        client = client_of(route_to(server, mode))
        reply = await client.complete(ask(messages=history))
        await client.close()
    assert reply.message.text == "fine"


@pytest.mark.parametrize("mode", MODES)
async def test_the_output_limit_is_told_apart_from_a_normal_end(mode: ApiMode) -> None:
    async with FakeModelServer([Step(text="half a", finish="length")]) as server:
        client = client_of(route_to(server, mode))
        reply = await client.complete(ask())
        await client.close()
    assert reply.message.finish is FinishReason.LENGTH


async def test_the_price_of_a_call_is_computed_from_its_usage() -> None:
    facts = ModelFacts(price=Price(input=2.0, output=10.0, cache_read=0.5))
    counts = Counts(input=1_000_000, output=100_000, cache_read=500_000)
    async with FakeModelServer([Step(text="x", usage=counts)]) as server:
        client = client_of(route_to(server, facts=facts))
        reply = await client.complete(ask())
        await client.close()
    assert reply.cost_usd == pytest.approx(1.0 + 0.25 + 1.0)


async def test_a_server_without_usage_gives_a_reply_all_the_same() -> None:
    async with FakeModelServer([Step(text="x", usage=None)]) as server:
        client = client_of(route_to(server))
        reply = await client.complete(ask())
        await client.close()
    assert reply.usage == Usage()


RETRIED = [
    (Step(status=500), FailureKind.SERVER),
    (Step(status=503), FailureKind.OVERLOADED),
    (Step(status=529, body={"error": {"type": "overloaded_error"}}), FailureKind.OVERLOADED),
    (Step(status=429), FailureKind.RATE_LIMIT),
    (Step(text="some text to cut", reset="middle"), FailureKind.CONNECTION),
    (Step(text="x", reset="before"), FailureKind.CONNECTION),
    (Step(text="some text to cut", cut=True), FailureKind.CONNECTION),
    (Step(text="some text to cut", truncate=True), FailureKind.MALFORMED),
    (Step(text="some text to cut", malformed=True), FailureKind.MALFORMED),
    (Step(text="", usage=None), FailureKind.EMPTY),
    (
        Step(text="some text to cut", stream_error={"error": {"code": 502, "message": "upstream"}}),
        FailureKind.SERVER,
    ),
]


@pytest.mark.parametrize(("step", "kind"), RETRIED)
async def test_a_passing_fault_is_tried_again_and_text_starts_over(
    step: Step, kind: FailureKind
) -> None:
    async with FakeModelServer([step, Step(text="the answer")]) as server:
        clock, heard = InstantClock(), Heard()
        client = client_of(route_to(server), clock=clock)
        reply = await client.complete(ask(), heard)
        await client.close()
    assert reply.message.text == heard.text == "the answer"
    assert heard.notices == ["retry"]
    assert len(clock.slept) == 1
    if step.text and step.reset != "before":
        assert heard.restarts == 1


@pytest.mark.parametrize(("step", "kind"), RETRIED)
async def test_a_lasting_fault_ends_in_a_failure_that_says_what_to_do(
    step: Step, kind: FailureKind
) -> None:
    async with FakeModelServer(Script(default=step)) as server:
        clock = InstantClock()
        client = client_of(route_to(server), clock=clock, policy=RetryPolicy(max_retries=3))
        with pytest.raises(ModelFailure) as failure:
            await client.complete(ask())
        await client.close()
    assert failure.value.kind is kind
    assert failure.value.hint
    assert len(server.requests) == 1 + len(clock.slept) <= 4
    assert len(clock.slept) >= 2


@pytest.mark.parametrize(
    "event",
    [
        {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
    ],
)
async def test_an_error_inside_an_anthropic_stream_is_tried_again(event: dict[str, object]) -> None:
    steps = [Step(text="some text to cut", stream_error=event), Step(text="fine")]
    async with FakeModelServer(steps) as server:
        heard = Heard()
        client = client_of(route_to(server, ApiMode.ANTHROPIC_MESSAGES))
        reply = await client.complete(ask(), heard)
        await client.close()
    assert (reply.message.text, heard.text) == ("fine", "fine")


async def test_a_failed_response_is_tried_again() -> None:
    failed = {
        "type": "response.failed",
        "response": {"status": "failed", "error": {"code": "server_error", "message": "oops"}},
    }
    steps = [Step(text="some text", stream_error=failed), Step(text="fine")]
    async with FakeModelServer(steps) as server:
        client = client_of(route_to(server, ApiMode.RESPONSES))
        reply = await client.complete(ask())
        await client.close()
    assert reply.message.text == "fine"


FINAL = [
    (Step(status=400, body={"error": {"message": "messages[0] is odd"}}), FailureKind.BAD_REQUEST),
    (Step(status=402), FailureKind.BILLING),
    (Step(status=403, body="Forbidden"), FailureKind.AUTH),
    (
        Step(status=404, body={"error": {"message": "model 'fake-1' not found"}}),
        FailureKind.MODEL_NOT_FOUND,
    ),
    (Step(status=301, headers={"location": "https://x.invalid"}), FailureKind.BAD_REQUEST),
    (Step(finish="content_filter", text=""), FailureKind.POLICY),
]


@pytest.mark.parametrize(("step", "kind"), FINAL)
async def test_what_cannot_be_cured_by_waiting_is_not_tried_again(
    step: Step, kind: FailureKind
) -> None:
    async with FakeModelServer(Script(default=step)) as server:
        clock = InstantClock()
        client = client_of(route_to(server), clock=clock)
        with pytest.raises(ModelFailure) as failure:
            await client.complete(ask())
        await client.close()
    assert failure.value.kind is kind
    assert clock.slept == []
    assert len(server.requests) == 1


@pytest.mark.parametrize("mode", list(ApiMode))
@pytest.mark.parametrize(
    "step",
    [
        Step(finish="content_filter", text=""),
        Step(status=400, body={"error": {"code": "content_filter", "message": "Filtered."}}),
    ],
)
async def test_an_answer_that_is_withheld_is_known_as_such(mode: ApiMode, step: Step) -> None:
    script = Script(default=step)
    async with FakeModelServer(script) as server, FakeModelServer(script) as other:
        client = client_of(route_to(server, mode), route_to(other, mode))
        with pytest.raises(ModelFailure) as failure:
            await client.complete(ask())
        await client.close()
    assert (failure.value.kind, failure.value.code) == (FailureKind.POLICY, "content_filter")
    assert len(server.requests) == len(other.requests) == 1, "another provider may say more"


@pytest.mark.parametrize(
    "step",
    [
        Step(
            status=400,
            body={"error": {"message": "too long", "code": "context_length_exceeded"}},
        ),
        Step(status=400, body={"error": {"message": "prompt is too long: 210000 tokens"}}),
        Step(status=413, body="Payload Too Large"),
    ],
)
async def test_an_overflow_is_raised_at_once_so_that_the_core_can_compress(step: Step) -> None:
    async with FakeModelServer([step]) as server, FakeModelServer() as other:
        client = client_of(route_to(server), route_to(other))
        with pytest.raises(ModelFailure) as failure:
            await client.complete(ask())
        await client.close()
    assert failure.value.kind is FailureKind.CONTEXT_OVERFLOW
    assert len(server.requests) == 1
    assert other.requests == []


async def test_connections_are_kept_for_the_next_call() -> None:
    async with FakeModelServer() as server:
        client = client_of(route_to(server))
        for _ in range(5):
            await client.complete(ask())
        await client.close()
    assert len(server.requests) == 5
    assert server.connections == 1


async def test_an_unreachable_server_is_a_connection_failure_with_its_address() -> None:
    async with FakeModelServer() as server:
        route = route_to(server)
    clock = InstantClock()
    client = client_of(route, clock=clock)
    with pytest.raises(ModelFailure) as failure:
        await client.complete(ask())
    await client.close()
    assert failure.value.kind is FailureKind.CONNECTION
    assert route.base_url in failure.value.message
    assert len(clock.slept) == 3


@pytest.mark.parametrize("key", ["sk-ant-oat01-abc", "sk-ant-api03-abc"])
async def test_anthropic_tokens_and_keys_travel_in_their_own_headers(key: str) -> None:
    async with FakeModelServer() as server:
        route = route_to(
            server,
            ApiMode.ANTHROPIC_MESSAGES,
            provider="anthropic",
            keys=(ProviderKey(secret=key),),
        )
        client = client_of(route)
        await client.complete(ask())
        await client.close()
    headers = server.requests[0].headers
    if "oat" in key:
        assert headers["authorization"] == f"Bearer {key}"
        assert "oauth" in headers["anthropic-beta"]
    else:
        assert headers["x-api-key"] == key
        assert "authorization" not in headers


async def test_deepseek_gets_its_reasoning_back_with_tool_calls_even_when_empty() -> None:
    messages = (
        UserMessage(content="a"),
        AssistantMessage(
            tool_calls=(ToolCall(id="c", name="t", arguments="{}"),),
            reasoning=Reasoning(text="thought", protocol="chat_completions"),
        ),
        ToolMessage(call_id="c", name="t", content="r"),
        AssistantMessage(tool_calls=(ToolCall(id="d", name="t", arguments="{}"),)),
        ToolMessage(call_id="d", name="t", content="r"),
    )
    async with FakeModelServer() as server:
        client = client_of(route_to(server, quirks=Quirks(replay="content")))
        await client.complete(ask(messages=messages))
        await client.close()
    sent = [m for m in server.requests[0].body["messages"] if m["role"] == "assistant"]
    assert [message["reasoning_content"] for message in sent] == ["thought", ""]
