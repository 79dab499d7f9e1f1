"""The fake provider is as strict as a real one, and runs as a process too."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from fakes.model import Call, FakeModelServer, Rule, Script, Step
from fakes.model_client import ask, client_of, route_to
from hermes.domain.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage
from hermes.domain.ports.model import FailureKind, ModelFailure
from hermes.models.providers import ApiMode

TESTS = Path(__file__).parents[1]
CALL = AssistantMessage(tool_calls=(ToolCall(id="c1", name="t", arguments="{}"),))
RESULT = ToolMessage(call_id="c1", name="t", content="r")
USER = UserMessage(content="hi")
ILLEGAL: list[tuple[Message, ...]] = [
    (USER, RESULT),
    (USER, CALL),
    (USER, CALL, USER),
    (USER, CALL, ToolMessage(call_id="other", name="t", content="r")),
]


@pytest.mark.parametrize("mode", list(ApiMode))
@pytest.mark.parametrize("messages", ILLEGAL)
async def test_a_broken_history_is_refused(mode: ApiMode, messages: tuple[Message, ...]) -> None:
    async with FakeModelServer() as server:
        client = client_of(route_to(server, mode))
        with pytest.raises(ModelFailure) as failure:
            await client.complete(ask(messages=messages))
        await client.close()
    assert failure.value.kind is FailureKind.BAD_REQUEST


@pytest.mark.parametrize("mode", list(ApiMode))
async def test_rules_lead_each_session_through_its_own_chain(mode: ApiMode) -> None:
    chain = [Step(calls=[Call(name="t", id="c1")]), Step(text="chain done")]
    script = Script(rules=[Rule(contains="chain", steps=chain)], default=Step(echo=True))
    async with FakeModelServer(script) as server:
        client = client_of(route_to(server, mode))
        start = UserMessage(content="chain please")
        first = await client.complete(ask(messages=(start,)))
        between = await client.complete(ask("something else"))
        history = (start, first.message, RESULT)
        last = await client.complete(ask(messages=history))
        await client.close()
    assert [call.name for call in first.message.tool_calls] == ["t"]
    assert between.message.text == "something else"
    assert last.message.text == "chain done"


async def test_it_runs_as_a_process_and_shows_what_it_was_asked(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"steps": [{"text": "from a process"}]}), encoding="utf-8")
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "fakes.model",
        "--port",
        "0",
        "--script",
        str(script),
        cwd=TESTS,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        port = int(await asyncio.wait_for(process.stdout.readline(), 20))
        server = FakeModelServer()
        server.port = port
        client = client_of(route_to(server))
        reply = await client.complete(ask())
        await client.close()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /__requests HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        answer = await asyncio.wait_for(reader.read(), 10)
        writer.close()
        await writer.wait_closed()
    finally:
        process.terminate()
        await process.wait()
    assert reply.message.text == "from a process"
    seen = json.loads(answer.partition(b"\r\n\r\n")[2])
    assert seen[0]["body"]["messages"][-1]["content"] == "hi"
