"""What goes over the wire: stable prefixes, legal histories, the right fields."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.model_check import complaint
from hermes.domain.messages import (
    AssistantMessage,
    FilePart,
    ImagePart,
    InputKind,
    Message,
    Reasoning,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from hermes.domain.ports.model import ModelRequest
from hermes.domain.tools import ToolSpec
from hermes.models.client import protocol_for
from hermes.models.encode_common import LoweredCache
from hermes.models.providers import PROVIDERS, ApiMode, Quirks
from hermes.models.routes import ModelRoute
from hermes.models.wire import Repairs, Sink

MODES = list(ApiMode)
NAMES = {"chat_completions": "chat", "responses": "responses", "anthropic_messages": "anthropic"}
IMAGE = ImagePart(url="data:image/png;base64,aGk=")


def route(mode: ApiMode, **changes: Any) -> ModelRoute:
    fields: dict[str, Any] = {
        "provider": "fake",
        "model": "fake-1",
        "base_url": "http://127.0.0.1:9/v1",
        "api_mode": mode,
        "quirks": Quirks(),
    }
    return ModelRoute(**{**fields, **changes})


def encode(
    mode: ApiMode,
    messages: tuple[Message, ...],
    cache: LoweredCache | None = None,
    to: ModelRoute | None = None,
    **fields: Any,
) -> dict[str, Any]:
    request = ModelRequest(
        system=fields.pop("system", "You help."), messages=messages, session_id="s", **fields
    )
    call = protocol_for(mode).encode(request, to or route(mode), Repairs(), cache or LoweredCache())
    body: dict[str, Any] = json.loads(call.body)
    return body


def pieces(mode: ApiMode, body: dict[str, Any]) -> bytes:
    """Return the history as the model reads it: a run of blocks, without cache marks."""
    if mode is not ApiMode.ANTHROPIC_MESSAGES:
        items = body["messages" if mode is ApiMode.CHAT_COMPLETIONS else "input"]
        return b"".join(json.dumps(item).encode() + b"\n" for item in items)
    out = b""
    for message in body["messages"]:
        for block in message["content"]:
            block.pop("cache_control", None)
            out += json.dumps([message["role"], block]).encode() + b"\n"
    return out


TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12).filter(str.strip)
ARGUMENTS = st.sampled_from(['{"path":"a"}', "{}", "{broken", ""])


@st.composite
def histories(draw: st.DrawFn) -> tuple[Message, ...]:
    messages: list[Message] = []
    number = 0
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(list(InputKind)))
        content: Any = draw(st.one_of(TEXT, st.just((TextPart("see"), IMAGE))))
        messages.append(UserMessage(content=content, kind=kind, sender=draw(st.none() | TEXT)))
        for _ in range(draw(st.integers(0, 2))):
            calls = []
            for _ in range(draw(st.integers(1, 3))):
                number += 1
                calls.append(ToolCall(id=f"c{number}", name="t", arguments=draw(ARGUMENTS)))
            messages.append(
                AssistantMessage(text=draw(st.just("") | TEXT), tool_calls=tuple(calls))
            )
            messages += [
                ToolMessage(
                    call_id=call.id,
                    name="t",
                    content=draw(st.one_of(st.just(""), TEXT, st.just((IMAGE,)))),
                )
                for call in calls
            ]
        messages.append(AssistantMessage(text=draw(TEXT)))
    messages.append(UserMessage(content="last"))
    return tuple(messages)


def boundaries(messages: tuple[Message, ...]) -> list[int]:
    """Return the lengths at which a call may happen: never inside a batch of results."""
    return [
        at
        for at in range(1, len(messages) + 1)
        if not isinstance(messages[at - 1], AssistantMessage)
        and (at == len(messages) or not isinstance(messages[at], ToolMessage))
    ]


@pytest.mark.parametrize("mode", MODES)
@given(messages=histories())
@settings(max_examples=40)
def test_each_request_is_a_byte_prefix_of_the_next(
    mode: ApiMode, messages: tuple[Message, ...]
) -> None:
    cache = LoweredCache()
    previous = b""
    for end in boundaries(messages):
        body = encode(mode, messages[:end], cache)
        now = pieces(mode, body)
        assert now.startswith(previous)
        previous = now


@pytest.mark.parametrize("mode", MODES)
@given(messages=histories())
@settings(max_examples=40)
def test_every_history_is_legal_with_and_without_the_cache(
    mode: ApiMode, messages: tuple[Message, ...]
) -> None:
    cache = LoweredCache()
    for end in boundaries(messages):
        cached = encode(mode, messages[:end], cache)
        assert complaint(NAMES[mode], cached) == ""
        assert cached == encode(mode, messages[:end], LoweredCache())


@pytest.mark.parametrize("mode", MODES)
def test_a_history_that_was_rewritten_is_encoded_anew(mode: ApiMode) -> None:
    cache = LoweredCache()
    old = (UserMessage(content="a"), AssistantMessage(text="b"), UserMessage(content="c"))
    new = (UserMessage(content="summary", kind=InputKind.SUMMARY), UserMessage(content="d"))
    encode(mode, old, cache)
    assert encode(mode, new, cache) == encode(mode, new)
    assert encode(mode, old[:1], cache) == encode(mode, old[:1])


def test_the_cache_forgets_the_oldest_sessions_when_it_is_full() -> None:
    cache = LoweredCache(max_bytes=1000)
    lowered: list[int] = []

    def lower(messages: tuple[Message, ...], start: int) -> list[bytes]:
        lowered.append(len(messages) - start)
        return [b"x" * 400 for _ in messages[start:]]

    messages = (UserMessage(content="a"), AssistantMessage(text="b"))
    for key in ("one", "two", "one"):
        cache.lower(ModelRequest(system="", messages=messages, session_id=key), lower)
    assert lowered == [2, 2, 2]
    cache.lower(ModelRequest(system="", messages=messages, session_id="one"), lower)
    assert lowered[-1] == 0


TOOLS = (
    ToolSpec(name="zeta", description="z", parameters={"type": "object"}, toolset="t"),
    ToolSpec(
        name="alpha",
        description="a",
        parameters={"type": "object", "properties": {"b": {}, "a": {}}},
        toolset="t",
    ),
)


@pytest.mark.parametrize("mode", MODES)
def test_tools_are_sorted_and_their_bytes_do_not_depend_on_order(mode: ApiMode) -> None:
    messages = (UserMessage(content="a"),)
    one = encode(mode, messages, tools=TOOLS)
    two = encode(mode, messages, tools=TOOLS[::-1])
    assert json.dumps(one["tools"]) == json.dumps(two["tools"])
    assert json.dumps(one["tools"]).index("alpha") < json.dumps(one["tools"]).index("zeta")


def test_anthropic_marks_the_system_prompt_and_the_last_three_messages() -> None:
    messages = (
        UserMessage(content="1"),
        AssistantMessage(text="2"),
        UserMessage(content="3"),
        AssistantMessage(text="4"),
        UserMessage(content="5"),
    )
    to = route(ApiMode.ANTHROPIC_MESSAGES, cache_ttl="1h")
    body = encode(ApiMode.ANTHROPIC_MESSAGES, messages, to=to, tools=TOOLS)
    mark = {"type": "ephemeral", "ttl": "1h"}
    assert body["system"][0]["cache_control"] == mark
    assert not any("cache_control" in tool for tool in body["tools"])
    marked = [
        block["text"]
        for message in body["messages"]
        for block in message["content"]
        if block.get("cache_control") == mark
    ]
    assert marked == ["3", "4", "5"]


def test_anthropic_results_come_before_text_and_thinking_comes_first() -> None:
    details = ({"type": "thinking", "thinking": "hm", "signature": "s"},)
    messages = (
        UserMessage(content="go"),
        AssistantMessage(
            text="ok",
            tool_calls=(ToolCall(id="functions.t:0", name="t", arguments='{"a": 1}'),),
            reasoning=Reasoning(text="hm", details=details, protocol="anthropic_messages"),
        ),
        ToolMessage(call_id="functions.t:0", name="t", content="r"),
        UserMessage(content="faster", kind=InputKind.STEER),
    )
    body = encode(ApiMode.ANTHROPIC_MESSAGES, messages)
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]
    kinds = [block["type"] for block in body["messages"][1]["content"]]
    assert kinds == ["thinking", "text", "tool_use"]
    assert body["messages"][1]["content"][2]["input"] == {"a": 1}
    assert [block["type"] for block in body["messages"][2]["content"]] == ["tool_result", "text"]
    ids = {
        body["messages"][1]["content"][2]["id"],
        body["messages"][2]["content"][0]["tool_use_id"],
    }
    assert ids == {"functions_t_0"}


def test_anthropic_skips_empty_answers_and_always_begins_with_the_user() -> None:
    histories: list[tuple[Message, ...]] = [
        (UserMessage(content="a"), AssistantMessage(text=" "), UserMessage(content="b")),
        (AssistantMessage(text=""), AssistantMessage(text="x"), UserMessage(content="b")),
        (AssistantMessage(text="x"), UserMessage(content="b"), AssistantMessage(text="")),
    ]
    for messages in histories:
        cache = LoweredCache()
        for end in range(1, len(messages) + 1):
            body = encode(ApiMode.ANTHROPIC_MESSAGES, messages[:end], cache)
            if body["messages"]:
                assert complaint("anthropic", body) == ""


@pytest.mark.parametrize("mode", MODES)
def test_a_stored_call_that_is_nested_too_deeply_does_not_break_its_history(mode: ApiMode) -> None:
    deep = f'{{"command": {"[" * 3000}{"]" * 3000}}}'
    call = ToolCall(id="c1", name="terminal", arguments=deep)
    messages = (
        UserMessage(content="a"),
        AssistantMessage(tool_calls=(call,)),
        ToolMessage(call_id="c1", name="terminal", content="no"),
        UserMessage(content="b"),
    )
    assert "malformed_arguments" in json.dumps(encode(mode, messages))


@pytest.mark.parametrize("mode", MODES)
def test_reasoning_of_another_protocol_is_not_replayed(mode: ApiMode) -> None:
    foreign = Reasoning(text="t", details=({"type": "alien", "x": "secret"},), protocol="other")
    messages = (
        UserMessage(content="a"),
        AssistantMessage(text="b", reasoning=foreign),
        UserMessage(content="c"),
    )
    to = route(mode, quirks=PROVIDERS["openrouter"].quirks)
    assert "secret" not in json.dumps(encode(mode, messages, to=to))


@pytest.mark.parametrize("mode", MODES)
def test_reasoning_of_the_same_protocol_is_replayed_verbatim(mode: ApiMode) -> None:
    own = Reasoning(text="t", details=({"type": "own", "x": "kept"},), protocol=mode.value)
    messages = (
        UserMessage(content="a"),
        AssistantMessage(text="b", reasoning=own),
        UserMessage(content="c"),
    )
    to = route(mode, quirks=PROVIDERS["openrouter"].quirks)
    assert '{"type": "own", "x": "kept"}' in json.dumps(encode(mode, messages, to=to))


def test_claude_over_openrouter_gets_cache_marks() -> None:
    to = route(
        ApiMode.CHAT_COMPLETIONS,
        provider="openrouter",
        model="anthropic/claude-sonnet-4",
        quirks=PROVIDERS["openrouter"].quirks,
    )
    messages = tuple(UserMessage(content=str(number)) for number in range(5))
    body = encode(ApiMode.CHAT_COMPLETIONS, messages, to=to)
    assert body["messages"][0]["content"][0]["cache_control"] == {"type": "ephemeral"}
    marked = [isinstance(message["content"], list) for message in body["messages"][1:]]
    assert marked == [False, False, True, True, True]


def test_files_are_named_with_the_path_that_tools_can_open() -> None:
    file = FilePart(path="/in/a.pdf", name="a.pdf", media_type="application/pdf")
    body = encode(ApiMode.CHAT_COMPLETIONS, (UserMessage(content=(TextPart("read"), file)),))
    assert body["messages"][-1]["content"] == "read\n[file: a.pdf, application/pdf, at /in/a.pdf]"


def test_who_speaks_and_why_is_said_in_the_text() -> None:
    messages = (
        UserMessage(content="hi", sender="Ann"),
        UserMessage(content="stop that", kind=InputKind.STEER),
        UserMessage(content="you were cut off", kind=InputKind.NOTICE),
    )
    body = encode(ApiMode.CHAT_COMPLETIONS, messages)
    assert [message["content"] for message in body["messages"][1:]] == [
        "[Ann] hi",
        "[Said while you were working] stop that",
        "[Note from Hermes] you were cut off",
    ]


EFFORTS: list[tuple[str, str, dict[str, Any]]] = [
    ("openai", "high", {"reasoning_effort": "high"}),
    ("openai", "max", {"reasoning_effort": "xhigh"}),
    ("openai", "none", {"reasoning_effort": "none"}),
    ("openrouter", "low", {"reasoning": {"effort": "low"}}),
    ("openrouter", "none", {"reasoning": {"enabled": False}}),
    ("deepseek", "none", {"thinking": {"type": "disabled"}}),
    ("deepseek", "ultra", {"thinking": {"type": "enabled"}, "reasoning_effort": "max"}),
    ("", "high", {"reasoning_effort": "high"}),
    ("", "none", {"reasoning_effort": "none"}),
]


@pytest.mark.parametrize(("style", "effort", "expected"), EFFORTS)
def test_effort_is_asked_for_in_the_words_of_the_server(
    style: str, effort: str, expected: dict[str, Any]
) -> None:
    to = route(ApiMode.CHAT_COMPLETIONS, quirks=Quirks(effort=style))
    messages = (UserMessage(content="a"),)
    body = encode(ApiMode.CHAT_COMPLETIONS, messages, to=to, reasoning_effort=effort)
    known = {"reasoning", "reasoning_effort", "thinking"}
    assert {name: value for name, value in body.items() if name in known} == expected


def test_a_side_call_does_not_bother_an_unknown_server_with_no_effort() -> None:
    to = route(ApiMode.CHAT_COMPLETIONS, quirks=Quirks())
    body = encode(
        ApiMode.CHAT_COMPLETIONS,
        (UserMessage(content="a"),),
        to=to,
        reasoning_effort="none",
        task="title_generation",
    )
    assert "reasoning_effort" not in body


def test_newer_claude_thinks_adaptively_and_older_within_a_budget() -> None:
    messages = (UserMessage(content="a"),)
    for model, kind in (("claude-opus-4-7", "adaptive"), ("claude-sonnet-4-5", "enabled")):
        to = route(ApiMode.ANTHROPIC_MESSAGES, model=model)
        body = encode(
            ApiMode.ANTHROPIC_MESSAGES, messages, to=to, reasoning_effort="high", temperature=0.1
        )
        assert body["thinking"]["type"] == kind
        assert "temperature" not in body
        assert body["max_tokens"] > body["thinking"].get("budget_tokens", 0)


def test_responses_stores_nothing_and_asks_for_encrypted_reasoning() -> None:
    body = encode(ApiMode.RESPONSES, (UserMessage(content="a"),), reasoning_effort="high")
    assert body["store"] is False
    assert body["include"] == ["reasoning.encrypted_content"]
    assert body["instructions"] == "You help."
    assert body["prompt_cache_key"] == "s"


@pytest.mark.parametrize("mode", MODES)
def test_a_schema_for_the_reply_is_passed_on(mode: ApiMode) -> None:
    schema = {"type": "object", "properties": {"title": {"type": "string"}}}
    body = encode(mode, (UserMessage(content="a"),), response_schema=schema)
    assert json.dumps(schema) in json.dumps(body)


def test_any_json_object_is_asked_for_where_the_protocol_has_it() -> None:
    messages = (UserMessage(content="a"),)
    chat = encode(ApiMode.CHAT_COMPLETIONS, messages, json_object=True)
    assert chat["response_format"] == {"type": "json_object"}
    responses = encode(ApiMode.RESPONSES, messages, json_object=True, verbosity="low")
    assert responses["text"] == {"format": {"type": "json_object"}, "verbosity": "low"}
    taken = {mode for mode in MODES if "json_object" in route(mode).info.takes}
    assert taken == {ApiMode.CHAT_COMPLETIONS, ApiMode.RESPONSES}


@pytest.mark.parametrize("mode", MODES)
def test_extra_body_and_headers_of_the_provider_are_sent(mode: ApiMode) -> None:
    to = route(mode, extra_body={"top_k": 5}, headers={"x-team": "a"})
    request = ModelRequest(system="", messages=(UserMessage(content="a"),))
    call = protocol_for(mode).encode(request, to, Repairs(), LoweredCache())
    assert json.loads(call.body)["top_k"] == 5
    assert call.headers["x-team"] == "a"


GIVEN: dict[str, Any] = {
    "temperature": 0.5,
    "top_p": 0.3,
    "stop": "END",
    "presence_penalty": 0.5,
    "frequency_penalty": -0.5,
    "min_p": 0.1,
    "top_k": 20,
    "repetition_penalty": 1.1,
    "prediction": {"type": "content", "content": "b"},
    "seed": 7,
    "logit_bias": {"1": 5},
    "logprobs": True,
    "top_logprobs": 2,
    "service_tier": "auto",
    "verbosity": "low",
    "parallel_tool_calls": False,
}


def test_what_a_protocol_takes_of_the_sampling_is_sent() -> None:
    tool = ToolSpec(name="look", toolset="t", strict=True)
    messages = (UserMessage(content="a"),)
    chat = encode(ApiMode.CHAT_COMPLETIONS, messages, tools=(tool,), **GIVEN)
    assert {name: chat[name] for name in GIVEN} == GIVEN
    assert chat["tools"][0]["function"]["strict"] is True
    responses = encode(ApiMode.RESPONSES, messages, tools=(tool,), **GIVEN)
    taken = ("temperature", "top_p", "top_logprobs", "service_tier", "parallel_tool_calls")
    assert {name: responses[name] for name in taken} == {name: GIVEN[name] for name in taken}
    assert responses["text"] == {"verbosity": "low"}
    assert "message.output_text.logprobs" in responses["include"]
    assert responses["tools"][0]["strict"] is True
    assert not {"stop", "seed", "logit_bias", "logprobs", "verbosity"} & responses.keys()
    assert not {"min_p", "top_k", "repetition_penalty", "prediction"} & responses.keys()
    claude = encode(ApiMode.ANTHROPIC_MESSAGES, messages, tools=(tool,), **GIVEN)
    assert (claude["stop_sequences"], claude["top_p"], claude["top_k"]) == (["END"], 0.3, 20)
    assert not {"min_p", "repetition_penalty", "prediction"} & claude.keys()
    assert claude["service_tier"] == "auto"
    assert claude["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}
    assert claude["tools"][0]["strict"] is True
    assert not {"stop", "seed", "logit_bias", "logprobs", "parallel_tool_calls"} & claude.keys()


def test_providers_differ_in_what_they_have_beyond_the_protocol() -> None:
    mode, messages = ApiMode.CHAT_COMPLETIONS, (UserMessage(content="a"),)
    openai = route(mode, quirks=PROVIDERS["openai"].quirks)
    assert {"min_p", "top_k", "repetition_penalty"}.isdisjoint(openai.info.takes)
    body = encode(mode, messages, to=openai, **GIVEN)
    assert body["prediction"] == GIVEN["prediction"]
    assert {"min_p", "top_k", "repetition_penalty"}.isdisjoint(body)
    llama = route(mode, quirks=PROVIDERS["llama.cpp"].quirks)
    assert {"min_p", "top_k", "repetition_penalty"} <= llama.info.takes
    body = encode(mode, messages, to=llama, **GIVEN)
    assert (body["repeat_penalty"], "repetition_penalty" in body) == (1.1, False)


@pytest.mark.parametrize("top_k", [0, -1])
def test_a_switched_off_top_k_is_not_told_to_who_has_no_word_for_it(top_k: int) -> None:
    messages = (UserMessage(content="a"),)
    assert encode(ApiMode.CHAT_COMPLETIONS, messages, top_k=top_k)["top_k"] == top_k
    assert "top_k" not in encode(ApiMode.ANTHROPIC_MESSAGES, messages, top_k=top_k)


def test_the_name_of_a_schema_and_its_strictness_are_kept() -> None:
    named: dict[str, Any] = {
        "response_schema": {"type": "object"},
        "schema_name": "form",
        "schema_strict": True,
        "schema_description": "A form.",
    }
    messages = (UserMessage(content="a"),)
    schema = {"name": "form", "description": "A form.", "strict": True}
    chat = encode(ApiMode.CHAT_COMPLETIONS, messages, **named)["response_format"]["json_schema"]
    assert chat == {**schema, "schema": {"type": "object"}}
    text = encode(ApiMode.RESPONSES, messages, **named)["text"]["format"]
    assert text == {**schema, "type": "json_schema", "schema": {"type": "object"}}


def test_the_probabilities_of_tokens_are_read_where_somebody_asked_for_them() -> None:
    token = {"token": "Yes", "logprob": -0.1, "bytes": None, "top_logprobs": []}
    choice = {"delta": {"content": "Yes"}, "logprobs": {"content": [token]}, "finish_reason": None}
    part = {"type": "output_text", "text": "Yes", "logprobs": [token]}
    item = {"type": "message", "content": [part]}
    done = {"type": "response.completed", "response": {"status": "completed", "output": [item]}}
    streams: list[tuple[ApiMode, dict[str, Any]]] = [
        (ApiMode.CHAT_COMPLETIONS, {"choices": [choice]}),
        (ApiMode.RESPONSES, done),
    ]
    for mode, event in streams:
        for asked, told in ((True, json.dumps([token])), (False, "")):
            decoder = protocol_for(mode).decoder(Sink(None, logprobs=asked))
            decoder.feed(json.dumps(event).encode())
            assert decoder.finish().logprobs == told
