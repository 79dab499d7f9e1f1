"""Options of a request: passed on, seen to here, or refused by name; the same at four doors."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import openai
import pytest

from fakes.core import ScriptedTools, returns
from fakes.http_door import KEY, HttpDoor, http_door
from hermes.domain.messages import FinishReason
from hermes.domain.ports.ledger import SearchQuery
from hermes.domain.ports.model import FailureKind, ModelRequest, Withheld
from hermes.entry.http.api import chat, responses, runs, sessions
from hermes.entry.http.endpoint import operations
from hermes.models.providers import ApiMode
from hermes.models.routes import ModelRoute
from hermes.testing.model import Reply, ScriptedModel, Step, call, calls, say

ENDPOINTS = [each for module in (chat, responses, runs, sessions) for each in operations(module)]
HI: Any = [{"role": "user", "content": "Hi"}]
SAMPLING: dict[str, Any] = {
    "temperature": 0.5,
    "top_p": 0.3,
    "stop": ["END"],
    "presence_penalty": 0.5,
    "frequency_penalty": -0.5,
    "min_p": 0.1,
    "top_k": 20,
    "repetition_penalty": 1.1,
    "prediction": {"type": "content", "content": "Hello"},
    "seed": 7,
    "logit_bias": {"50256": -100},
    "logprobs": True,
    "top_logprobs": 2,
    "service_tier": "flex",
    "verbosity": "low",
    "parallel_tool_calls": False,
}
CLAUDE = ModelRoute(
    provider="anthropic",
    model="claude",
    base_url="http://127.0.0.1:9",
    api_mode=ApiMode.ANTHROPIC_MESSAGES,
).info
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
FUNCTION = {"name": "weather", "parameters": SCHEMA, "strict": True}


def two_tools() -> ScriptedTools:
    tools = ScriptedTools()
    tools.add("look", returns("seen"))
    tools.add("peek", returns("seen"))
    return tools


@asynccontextmanager
async def served(
    folder: Path, *script: Step, model: ScriptedModel | None = None, **more: Any
) -> AsyncIterator[tuple[openai.AsyncOpenAI, HttpDoor, ScriptedModel]]:
    scripted = model or ScriptedModel(script)
    async with asyncio.timeout(30):
        async with http_door(folder, scripted, endpoints=ENDPOINTS, **more) as door:
            base_url = f"{door.base_url}/v1"
            async with openai.AsyncOpenAI(api_key=KEY, base_url=base_url, max_retries=0) as client:
                yield client, door, scripted


async def asked(door: HttpDoor, way: str, fields: dict[str, Any]) -> Any:
    """Ask `Hi` at one of the four doors, and wait until it is answered."""
    if way == "chat":
        return await door.client.post("/v1/chat/completions", json={"messages": HI, **fields})
    if way == "responses":
        return await door.client.post("/v1/responses", json={"input": "Hi", **fields})
    if way == "session":
        session = (await door.client.post("/api/sessions", json={})).json()["session"]["id"]
        path = f"/api/sessions/{session}/chat"
        return await door.client.post(path, json={"message": "Hi", **fields})
    answer = await door.client.post("/v1/runs", json={"input": "Hi", **fields})
    if answer.status_code == 202:
        run = await door.ledger.run(answer.json()["run_id"])
        assert run is not None
        await door.runs.wait(run)
    return answer


def sampling_of(request: ModelRequest) -> dict[str, Any]:
    given = {name: getattr(request, name) for name in SAMPLING}
    return {**given, "stop": list(given["stop"])}


@pytest.mark.parametrize("way", ["chat", "responses", "runs", "session"])
async def test_all_four_doors_take_the_same_options(tmp_path: Path, way: str) -> None:
    fields = {
        **SAMPLING,
        "tools": [{"type": "function", "function": FUNCTION}],
        "tool_choice": "required",
        "max_tool_calls": 3,
        "max_tokens": 50,
        "reasoning_effort": "low",
        "response_format": {
            "type": "json_schema",
            "json_schema": {
                "name": "form",
                "description": "A form.",
                "schema": SCHEMA,
                "strict": True,
            },
        },
        "user": "ann",
    }
    async with served(tmp_path, say("{}")) as (_, door, model):
        answer = await asked(door, way, fields)
        assert answer.status_code < 300, answer.text
        [request] = model.requests
        assert sampling_of(request) == SAMPLING
        assert (request.tool_choice, request.max_tokens) == ("required", 50)
        assert request.reasoning_effort == "low"
        assert (request.response_schema, request.schema_name) == (SCHEMA, "form")
        assert (request.schema_strict, request.schema_description) == (True, "A form.")
        assert [(tool.name, tool.strict) for tool in request.tools] == [("weather", True)]
        [run] = (await door.client.get("/v1/runs")).json()["data"]
        assert run["user"] == "ann"


JSON = [
    ({"response_format": {"type": "json_object"}}, "response_format"),
    ({"text": {"format": {"type": "json_object"}}}, "text.format"),
]


@pytest.mark.parametrize("way", ["chat", "responses", "runs", "session"])
@pytest.mark.parametrize(("fields", "param"), JSON)
async def test_any_json_object_is_not_a_schema(
    tmp_path: Path, way: str, fields: dict[str, Any], param: str
) -> None:
    async with served(tmp_path, say("{}")) as (_, door, model):
        assert (await asked(door, way, fields)).status_code < 300, param
        [request] = model.requests
        assert (request.json_object, request.response_schema) == (True, None)


@pytest.mark.parametrize("way", ["chat", "responses", "runs", "session"])
@pytest.mark.parametrize(("fields", "param"), JSON)
async def test_who_cannot_have_any_json_object_is_told_to_send_a_schema(
    tmp_path: Path, way: str, fields: dict[str, Any], param: str
) -> None:
    model = ScriptedModel([], info=CLAUDE)
    async with served(tmp_path, model=model) as (_, door, _model):
        answer = await asked(door, way, fields)
        assert answer.status_code == 400
        error = answer.json()["error"]
        assert (error["code"], error["param"]) == ("unsupported_value", param)
        assert "`json_schema`" in error["message"]


@pytest.mark.parametrize("way", ["chat", "responses", "runs", "session"])
@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 2}, "n"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"audio": {"voice": "alloy"}}, "audio"),
        ({"function_call": "auto"}, "function_call"),
        ({"web_search_options": {"search_context_size": "low"}}, "web_search_options"),
        ({"logprobs": True}, "logprobs"),
        ({"seed": 1}, "seed"),
        ({"logit_bias": {"1": 5}}, "logit_bias"),
        ({"min_p": 0.1}, "min_p"),
        ({"repetition_penalty": 1.1}, "repetition_penalty"),
        ({"temperature": 1.5}, "temperature"),
        ({"service_tier": "flex"}, "service_tier"),
        ({"include": ["message.output_text.logprob"]}, "include"),
    ],
)
async def test_what_cannot_be_had_is_refused_by_name(
    tmp_path: Path, way: str, fields: dict[str, Any], param: str
) -> None:
    model = ScriptedModel([], info=CLAUDE)
    async with served(tmp_path, model=model) as (_, door, _model):
        answer = await asked(door, way, fields)
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == param
        assert model.requests == []


async def test_what_the_protocol_takes_is_not_refused(tmp_path: Path) -> None:
    model = ScriptedModel([say("a")], info=CLAUDE)
    async with served(tmp_path, model=model) as (client, _, _model):
        await client.chat.completions.create(
            model="hermes",
            messages=HI,
            stop="END",
            top_p=0.5,
            temperature=1,
            service_tier="auto",
            seed=None,
            prediction={"type": "content", "content": "Hello"},  # does not change the answer
            extra_body={"min_p": 0, "repetition_penalty": 1, "top_k": -1},
        )
        assert (model.requests[0].stop, model.requests[0].top_p) == ("END", 0.5)


LOGPROBS = ({"token": "Yes", "logprob": -0.1, "bytes": [89, 101, 115], "top_logprobs": []},)


async def test_logprobs_come_back(tmp_path: Path) -> None:
    reply = Reply(pieces=("Yes",), logprobs=LOGPROBS)
    async with served(tmp_path, reply, reply, reply) as (client, _, _model):
        whole = await client.chat.completions.create(model="hermes", messages=HI, logprobs=True)
        told = whole.choices[0].logprobs
        assert told is not None
        assert told.content is not None
        assert [(each.token, each.logprob) for each in told.content] == [("Yes", -0.1)]
        async with client.chat.completions.stream(
            model="hermes", messages=HI, logprobs=True
        ) as stream:
            final = await stream.get_final_completion()
        assert final.choices[0].logprobs is not None
        response = await client.responses.create(
            input="Hi", include=["message.output_text.logprobs"]
        )
        item = response.output[0]
        assert item.type == "message"
        part = item.content[0]
        assert part.type == "output_text"
        assert part.logprobs is not None
        assert part.logprobs[0].token == "Yes"


async def test_no_tool_runs_if_none_may_be_called(tmp_path: Path) -> None:
    disobedient = calls(call("look"), text="I would look.")
    async with served(tmp_path, disobedient, tools=two_tools()) as (client, door, model):
        answer = await client.chat.completions.create(
            model="hermes", messages=HI, tool_choice="none"
        )
        assert answer.choices[0].message.content == "I would look."
        assert door.tools.ran == []
        assert model.requests[0].tool_choice == "none"


async def test_one_call_at_a_time(tmp_path: Path) -> None:
    script = (calls(call("look"), call("peek")), calls(call("peek")), say("Done."))
    async with served(tmp_path, *script, tools=two_tools()) as (client, door, model):
        await client.chat.completions.create(model="hermes", messages=HI, parallel_tool_calls=False)
        assert [name for name, _ in door.tools.ran] == ["look", "peek"]
        assert len(model.requests) == 3


async def test_the_agent_answers_after_so_many_calls(tmp_path: Path) -> None:
    two = calls(call("look"), call("peek"))
    script = (calls(call("look")), two, calls(call("look"), text="Enough."))
    async with served(tmp_path, *script, tools=two_tools()) as (client, door, model):
        response = await client.responses.create(input="Hi", max_tool_calls=2)
        assert [name for name, _ in door.tools.ran] == ["look", "look"]
        assert response.output_text == "Enough."
        assert [request.tool_choice for request in model.requests] == [None, None, "none"]
        assert "No more tool calls" in str(model.requests[2].messages[-1])


@pytest.mark.parametrize("fields", [{"max_tool_calls": 1}, {"tool_choice": "none"}])
async def test_a_model_that_calls_on_instead_of_answering_has_not_answered(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    insists = ScriptedModel(default=calls(call("look")))
    async with served(tmp_path, model=insists, tools=two_tools()) as (client, door, _):
        answer = await asked(door, "chat", fields)
        assert answer.status_code == 200, answer.text
        assert answer.headers["x-hermes-completed"] == "false"
        assert "another tool" in answer.headers["x-hermes-error"]
        chat = answer.json()
        assert chat["choices"][0]["finish_reason"] == "length"
        assert chat["choices"][0]["message"]["content"] == ""
        told = chat["hermes"]
        assert (told["completed"], told["failed"]) == (False, False)
        assert told["error_code"] == "max_tool_calls"
        stream = await client.chat.completions.create(
            model="hermes", messages=HI, stream=True, extra_body=fields
        )
        chunks = [chunk async for chunk in stream]
        assert chunks[-1].choices[0].finish_reason == "length"
        response = await client.responses.create(input="Hi", extra_body=fields)
        assert response.status == "incomplete"
        assert response.incomplete_details is not None
        assert str(response.incomplete_details.reason) == "max_tool_calls"
        assert await asked(door, "runs", fields)
        [run, *_] = (await door.client.get("/v1/runs")).json()["data"]
        assert run["status"] == "failed"
        assert run["error"]["code"] == "max_tool_calls"
        assert run["usage"]["total_tokens"] == 15 * (1 + fields.get("max_tool_calls", 0))


WITHHELD = Withheld(FailureKind.POLICY, "The answer was withheld.")


@pytest.mark.parametrize("before", ["", "Let me look."])
async def test_an_answer_that_the_provider_withholds_is_no_error(
    tmp_path: Path, before: str
) -> None:
    script: list[Step] = [calls(call("look"), text=before), WITHHELD]
    script *= 3
    async with served(tmp_path, *script, tools=two_tools()) as (client, door, _):
        answer = await asked(door, "chat", {})
        assert answer.status_code == 200, answer.text
        assert answer.headers["x-hermes-completed"] == "false"
        assert answer.headers["x-hermes-partial"] == ("true" if before else "false")
        chat = answer.json()
        assert chat["choices"][0]["finish_reason"] == "content_filter"
        assert chat["choices"][0]["message"]["content"] == before
        assert chat["hermes"]["error_code"] == "content_filter"
        stream = await client.chat.completions.create(model="hermes", messages=HI, stream=True)
        chunks = [chunk async for chunk in stream]
        assert chunks[-1].choices[0].finish_reason == "content_filter"
        response = await client.responses.create(input="Hi")
        assert (response.status, response.output_text) == ("incomplete", before)
        assert response.incomplete_details is not None
        assert response.incomplete_details.reason == "content_filter"
        assert response.error is None


async def test_an_answer_of_which_the_rest_is_withheld_is_not_whole(tmp_path: Path) -> None:
    reply = Reply(pieces=("One", " two"), finish=FinishReason.CONTENT_FILTER)
    async with served(tmp_path, reply, reply) as (client, door, _):
        answer = await asked(door, "chat", {})
        assert answer.json()["choices"][0]["finish_reason"] == "content_filter"
        assert answer.json()["choices"][0]["message"]["content"] == "One two"
        assert answer.headers["x-hermes-completed"] == "false"
        assert answer.headers["x-hermes-partial"] == "true"
        response = await client.responses.create(input="Hi")
        assert (response.status, response.output_text) == ("incomplete", "One two")


@pytest.mark.parametrize("way", ["chat", "responses"])
async def test_only_allowed_tools_are_there(tmp_path: Path, way: str) -> None:
    names = [{"type": "function", "name": "weather"}]
    own = {"type": "mcp", "server_label": "hermes", "name": "peek"}
    flat = {"type": "allowed_tools", "mode": "auto", "tools": [*names, own]}
    nested = {"mode": "auto", "tools": [{"type": "function", "function": names[0]}, own]}
    fields = {
        "tools": [
            {"type": "function", "function": FUNCTION},
            {"type": "function", "function": {"name": "other"}},
        ],
        "tool_choice": flat
        if way == "responses"
        else {"type": "allowed_tools", "allowed_tools": nested},
    }
    script = (calls(call("look")), say("Done."))
    async with served(tmp_path, *script, tools=two_tools()) as (_, door, model):
        assert (await asked(door, way, fields)).status_code == 200
        assert [tool.name for tool in model.requests[0].tools] == ["peek", "weather"]
        assert door.tools.ran == []


async def test_the_sessions_of_a_user_are_the_keys_and_nobody_elses(tmp_path: Path) -> None:
    async with served(tmp_path, *[say("Hello.")] * 3) as (_, door, _model):
        _, secret = await door.new_key("app")
        app = await door.with_key(secret)
        opened = {}
        for user in ("ann", "ben"):
            body = {"messages": [{"role": "user", "content": f"I am {user}"}], "user": user}
            answer = await app.post("/v1/chat/completions", json=body)
            opened[user] = answer.headers["x-hermes-session-id"]
        every = (await app.get("/api/sessions")).json()["data"]
        assert {each["id"] for each in every} == set(opened.values())
        for path in ("/api/sessions?user=ann", "/api/sessions/search?q=am&user=ann"):
            hits = (await app.get(path)).json()["data"]
            assert [each.get("id") or each["session_id"] for each in hits] == [opened["ann"]]
        assert (await app.get(f"/api/sessions/{opened['ben']}")).status_code == 200
        # What the agent finds for one user is what was said with that user.
        session = await door.ledger.session(opened["ann"])
        assert session is not None
        query = SearchQuery(text="am", source=session.source, user_id=session.user_id)
        assert {hit.session_id for hit in await door.ledger.search(query)} == {opened["ann"]}
        _, other = await door.new_key("other")
        stranger = await door.with_key(other)
        assert (await stranger.get("/api/sessions")).json()["data"] == []
        assert (await stranger.get(f"/api/sessions/{opened['ann']}")).status_code == 404


async def test_a_chat_of_one_user_is_not_continued_for_another(tmp_path: Path) -> None:
    async with served(tmp_path, *[say("Hello.")] * 3) as (client, door, _):
        create = client.chat.completions.create
        await create(model="hermes", messages=HI, user="ann")
        more: Any = [*HI, {"role": "assistant", "content": "Hello."}, *HI]
        for user in ("ben", "ann"):
            await create(model="hermes", messages=more, user=user)
        told = (await door.client.get("/v1/runs")).json()["data"]
        first = next(run["session_id"] for run in reversed(told) if run["user"] == "ann")
        assert [run["session_id"] == first for run in reversed(told)] == [True, False, True]
