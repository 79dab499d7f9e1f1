"""Retries that the `openai` package makes by itself, over connections that break: one effect."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import openai
import pytest
from msgspec.structs import replace

from fakes.core import ScriptedTools
from fakes.http_door import KEY, HttpDoor, bearer, http_door
from fakes.listener import start_server
from hermes.domain.ports.model import FailureKind, ModelFailure
from hermes.domain.runs import RunQuery, RunState
from hermes.domain.tools import ToolContext, ToolResult
from hermes.entry.http.api import chat, responses, runs, sessions
from hermes.entry.http.endpoint import operations
from hermes.observability.metrics import render
from hermes.testing.model import Reply, ScriptedModel, Step, call, calls, say

ENDPOINTS = [each for module in (chat, responses, runs, sessions) for each in operations(module)]
HI: Any = [{"role": "user", "content": "Pay the bill."}]


class CuttingProxy:
    """Passes connections on, and cuts them when told to, or at the first byte of an answer."""

    def __init__(self, port: int, cut_answers: int = 0) -> None:
        self._to = port
        self._cut_answers = cut_answers
        self._open: list[asyncio.StreamWriter] = []
        self._cuts = 0
        self.port = 0
        self.back = asyncio.Event()
        """A client has come again after a cut."""

    def cut(self) -> None:
        for writer in self._open:
            writer.transport.abort()
        self._open.clear()
        self._cuts += 1

    @asynccontextmanager
    async def running(self) -> AsyncIterator["CuttingProxy"]:
        async with await start_server(self._pass, "127.0.0.1", 0) as server:
            self.port = server.sockets[0].getsockname()[1]
            yield self
            self.cut()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._to)
        self._open += [writer, back]
        if self._cuts:
            self.back.set()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._copy(reader, back))
            group.create_task(self._copy(there, writer, answer=True))

    async def _copy(
        self, source: asyncio.StreamReader, to: asyncio.StreamWriter, *, answer: bool = False
    ) -> None:
        with suppress(OSError):
            while data := await source.read(65536):
                if answer and self._cut_answers:
                    self._cut_answers -= 1
                    self.cut()
                    return
                to.write(data)
                await to.drain()
        to.close()


class Payments:
    """A tool with an effect that must not happen twice."""

    def __init__(self) -> None:
        self.model = ScriptedModel()
        self.made = 0
        self.begun = asyncio.Event()
        self.go = asyncio.Event()
        self.tools = ScriptedTools()
        self.tools.add("pay", self._pay)

    async def _pay(self, _args: Any, _context: ToolContext) -> ToolResult:
        self.made += 1
        self.begun.set()
        await self.go.wait()
        return ToolResult(content="paid")


@asynccontextmanager
async def served(
    folder: Path, *script: Step, cut_answers: int = 0, grace: float = 5.0, **more: Any
) -> AsyncIterator[tuple[openai.AsyncOpenAI, HttpDoor, CuttingProxy, Payments]]:
    payments = Payments()
    payments.model = ScriptedModel(script)
    async with (
        asyncio.timeout(40),
        http_door(
            folder,
            payments.model,
            endpoints=ENDPOINTS,
            tools=payments.tools,
            more=lambda context: replace(context, retry_grace=grace),
            **more,
        ) as door,
        CuttingProxy(door.port, cut_answers).running() as proxy,
        openai.AsyncOpenAI(
            api_key=KEY, base_url=f"http://127.0.0.1:{proxy.port}/v1", max_retries=3
        ) as client,
    ):
        yield client, door, proxy, payments


async def ask(client: openai.AsyncOpenAI, way: str) -> str | None:
    if way == "responses":
        return (await client.responses.create(model="hermes", input="Pay the bill.")).output_text
    if way == "unstored":
        asked = client.responses.create(model="hermes", input="Pay the bill.", store=False)
        return (await asked).output_text
    if way == "stream":
        async with client.chat.completions.stream(model="hermes", messages=HI) as stream:
            return (await stream.get_final_completion()).choices[0].message.content
    answer = await client.chat.completions.create(model="hermes", messages=HI)
    return answer.choices[0].message.content


@pytest.mark.parametrize("way", ["chat", "responses"])
async def test_a_connection_that_breaks_during_a_tool_has_one_effect(
    tmp_path: Path, way: str
) -> None:
    script = (calls(call("pay")), say("Paid."))
    async with served(tmp_path, *script) as (client, door, proxy, payments):
        async with asyncio.TaskGroup() as group:
            asked = group.create_task(ask(client, way))
            await payments.begun.wait()
            proxy.cut()
            await proxy.back.wait()
            payments.go.set()
        assert asked.result() == "Paid."
        assert payments.made == 1
        assert len(await door.ledger.runs(RunQuery())) == 1


@pytest.mark.parametrize("way", ["chat", "responses", "stream", "unstored"])
async def test_an_answer_that_is_lost_is_given_again(tmp_path: Path, way: str) -> None:
    script = (calls(call("pay")), say("Paid."))
    async with served(tmp_path, *script, cut_answers=1) as (client, door, _, payments):
        payments.go.set()
        assert await ask(client, way) == "Paid."
        assert payments.made == 1
        assert len(await door.ledger.runs(RunQuery())) == 1


async def test_without_a_retry_the_turn_is_interrupted_after_a_while(tmp_path: Path) -> None:
    async with served(tmp_path, calls(call("pay")), grace=0.2) as (client, door, _, payments):
        once = client.with_options(max_retries=0, timeout=0.5)
        with pytest.raises(openai.APITimeoutError):
            await ask(once, "chat")
        assert payments.made == 1
        [run] = await door.ledger.runs(RunQuery())
        assert (await door.runs.wait(run)).state is RunState.INCOMPLETE


async def test_a_first_try_is_a_request_of_its_own(tmp_path: Path) -> None:
    async with served(tmp_path, say("One."), say("Two.")) as (client, _, _proxy, _payments):
        assert [await ask(client, "chat") for _ in range(2)] == ["One.", "Two."]


async def test_what_failed_before_anything_was_done_is_tried_again(tmp_path: Path) -> None:
    failure = ModelFailure(FailureKind.SERVER, "No luck.")
    async with served(tmp_path, failure, say("Luck.")) as (client, door, _, _payments):
        assert await ask(client, "chat") == "Luck."
        assert len(await door.ledger.runs(RunQuery())) == 2


@pytest.mark.parametrize("stream", [False, True])
async def test_a_question_that_met_a_closed_door_is_not_given_an_old_answer(
    tmp_path: Path, stream: bool
) -> None:
    async def answer(text: str, tries: int) -> str:
        async with served(tmp_path, say(text)) as (_, door, _proxy, _payments):
            headers = {"X-Stainless-Retry-Count": str(tries)}
            body = {"messages": HI, "stream": stream}
            got = await door.client.post("/v1/chat/completions", json=body, headers=headers)
            return got.text

    assert "One." in await answer("One.", 0)
    assert "Two." in await answer("Two.", 1)


async def test_a_run_that_ended_unseen_before_a_restart_is_given_to_its_retry(
    tmp_path: Path,
) -> None:
    headers, body = {"X-Stainless-Retry-Count": "0"}, {"messages": HI}
    way = "/v1/chat/completions"
    held = Reply(pieces=("One.",), before=asyncio.Event())
    async with served(tmp_path, held) as (_, door, _proxy, payments):
        asked = asyncio.ensure_future(door.client.post(way, json=body, headers=headers))
        await payments.model.called(1)
        asked.cancel()
        with suppress(asyncio.CancelledError):
            await asked
        while not door.runs._left:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert held.before is not None
        held.before.set()
        [run] = await door.ledger.runs(RunQuery())
        assert (await door.runs.wait(run)).state is RunState.COMPLETED
    async with served(tmp_path, say("Two.")) as (_, door, _proxy, _payments):
        headers["X-Stainless-Retry-Count"] = "1"
        assert "One." in (await door.client.post(way, json=body, headers=headers)).text


async def test_a_retry_does_not_join_what_was_asked_in_another_session(tmp_path: Path) -> None:
    held = Reply(pieces=("One.",), before_end=asyncio.Event())
    async with served(tmp_path, held, say("Two.")) as (_, door, _proxy, payments):
        body = {"messages": HI}
        first = asyncio.ensure_future(
            door.client.post(
                "/v1/chat/completions",
                json=body,
                headers={"X-Stainless-Retry-Count": "0", "X-Hermes-Session-Key": "a"},
            )
        )
        await payments.model.called(1)
        headers = {"X-Stainless-Retry-Count": "1", "X-Hermes-Session-Key": "b", **bearer()}
        second = await door.client.post("/v1/chat/completions", json=body, headers=headers)
        assert second.json()["choices"][0]["message"]["content"] == "Two."
        assert held.before_end is not None
        held.before_end.set()
        assert (await first).json()["choices"][0]["message"]["content"] == "One."


async def test_a_retry_of_what_was_not_taken_repeats_no_earlier_run(tmp_path: Path) -> None:
    held = Reply(pieces=("Slow.",), before_end=asyncio.Event())
    script = (say("One."), held, say("Two."))
    async with served(tmp_path, *script, max_runs=1) as (client, door, _, payments):
        assert await ask(client, "chat") == "One."
        busy: Any = {"messages": [{"role": "user", "content": "Something else."}]}
        async with asyncio.TaskGroup() as group:
            group.create_task(door.client.post("/v1/chat/completions", json=busy))
            await payments.model.called(2)
            asked = group.create_task(ask(client, "chat"))
            while 'status="429"' not in render(door.context.metrics):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert held.before_end is not None
            held.before_end.set()
        assert asked.result() == "Two."
