"""SIGTERM and SIGUSR1 with streams open: a proper end for every client, and no run is lost."""

import asyncio
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import openai
import pytest

from fakes.api_crash import Asked, Line, Power, data_lines, sse
from fakes.api_gateway import KEY, ApiGateway, running_api
from fakes.model import Call, FakeModelServer, Rule, Script, Step
from hermes.domain.turn import MAX_RESUMES

ANSWER = "The whole answer."
WEATHER = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}},
}


def held() -> Script:
    """A model that stops in the middle of each answer until it is released."""
    return Script(default=Step(text=ANSWER, stall="middle"))


class Client:
    """Several streams of one gateway, read side by side."""

    def __init__(self, gateway: ApiGateway) -> None:
        self.gateway = gateway
        self.power = Power(gateway, 0)
        self.line = Line(self.power)

    async def stream(self, method: str, path: str, into: list[Any], **more: Any) -> None:
        """Read a stream to its end, which must be a proper one."""
        url = self.line.url(path)
        async with self.line.client.stream(method, url, **more) as answer:
            assert answer.status_code == 200, await answer.aread()
            async for event in sse(answer.aiter_lines()):
                into.append(event)

    async def start(self, text: str, **headers: str) -> str:
        asked = Asked(0, "run")
        await self.line.start(asked, f"key of {text}", {"input": text}, **headers)
        return asked.run_id

    async def asks(self, run_id: str) -> str:
        """Return the id of the approval that a run waits for."""
        async with asyncio.timeout(20):
            while True:
                answer = await self.line.client.get(self.line.url(f"/v1/runs/{run_id}"))
                if pending := answer.json().get("pending_approvals"):
                    return str(pending[0]["id"])
                await asyncio.sleep(0.02)

    async def finished(self, run_id: str) -> dict[str, Any]:
        asked = Asked(0, "run")
        asked.runs = {run_id}
        async with asyncio.timeout(20):
            return await self.line.ended(asked)


@asynccontextmanager
async def api(
    folder: Path, script: Script, **config: Any
) -> AsyncIterator[tuple[Client, FakeModelServer]]:
    async with (
        asyncio.timeout(60),
        FakeModelServer(script) as model,
        running_api(folder, model.base_url, **config) as gateway,
    ):
        client = Client(gateway)
        try:
            yield client, model
        finally:
            await client.line.close()


async def asked_for(model: FakeModelServer, count: int) -> None:
    """Wait until the model has that many requests."""
    async with asyncio.timeout(20):
        while len(model.requests) < count:
            model.arrived.clear()
            await model.arrived.wait()


async def begun(*streams: list[Any]) -> None:
    """Wait until every stream has shown a piece of its answer."""
    async with asyncio.timeout(20):
        while not all(any("The" in str(e) for e in each) for each in streams):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGUSR1, 75)])
async def test_streams_get_an_end_and_runs_go_on_when_the_gateway_stops_at_once(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    async with api(tmp_path, held()) as (client, model):
        chat: list[Any] = []
        response: list[Any] = []
        events: list[Any] = []
        session = {"X-Hermes-Session-Key": "one"}
        async with asyncio.TaskGroup() as group:
            body: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}], "stream": True}
            group.create_task(client.stream("POST", "/v1/chat/completions", chat, json=body))
            body = {"input": "Hi", "stream": True}
            group.create_task(client.stream("POST", "/v1/responses", response, json=body))
            first = await client.start("first", **session)
            group.create_task(client.stream("GET", f"/v1/runs/{first}/events", events))
            await asked_for(model, 3)
            queued = await client.start("second", **session)
            last = await client.start("third", **session)
            waiting: list[Any] = []
            group.create_task(client.stream("GET", f"/v1/runs/{last}/events", waiting))
            await begun(chat, response, events)
            async with asyncio.timeout(10):
                assert await client.gateway.stop(number) == code
        assert waiting == []
        # A foreground stream says that it was not completed; the log just stops.
        assert chat[-1]["event"] == "done"
        assert [e for e in chat if e.get("error") or "shutdown" in str(e)], chat[-3:]
        assert response[-1]["event"] == "done"
        assert data_lines(response)[-1]["event"] == "error"
        assert data_lines(response)[-1]["code"] == "shutdown"
        assert events[-1]["event"] == "message.delta"
        model.release()
        await client.gateway.start()
        for run_id in (first, queued, last):
            view = await client.finished(run_id)
            assert (view["status"], view["output"]) == ("completed", ANSWER)
        rest: list[Any] = []
        headers = {"Last-Event-ID": str(len(events))}
        await client.stream("GET", f"/v1/runs/{first}/events", rest, headers=headers)
        assert [int(e["_id"]) for e in events + rest] == list(range(1, len(events + rest) + 1))
        assert rest[-1]["event"] == "run.completed"
        listed = (await client.line.client.get(client.line.url("/v1/runs"))).json()["data"]
        assert len(listed) == 5
        assert {run["status"] for run in listed} == {"completed"}


async def test_while_it_drains_nothing_new_is_taken_and_what_runs_ends_completely(
    tmp_path: Path,
) -> None:
    config = {"agent": {"restart_drain_timeout": 30}}
    async with api(tmp_path, held(), **config) as (client, model):
        line, response, events = client.line, list[Any](), list[Any]()
        async with asyncio.TaskGroup() as group:
            body = {"input": "Hi", "stream": True}
            group.create_task(client.stream("POST", "/v1/responses", response, json=body))
            run_id = await client.start("first")
            group.create_task(client.stream("GET", f"/v1/runs/{run_id}/events", events))
            await begun(response, events)
            assert (await line.client.get(line.url("/ready"))).status_code == 200
            assert client.gateway.process is not None
            client.gateway.process.send_signal(signal.SIGTERM)
            await until_draining(line)
            refused = await line.client.post(line.url("/v1/runs"), json={"input": "more"})
            assert refused.status_code == 503
            assert int(refused.headers["retry-after"]) >= 1
            assert (await line.client.get(line.url(f"/v1/runs/{run_id}"))).json()[
                "status"
            ] == "running"
            model.release()
        assert data_lines(response)[-1]["event"] == "response.completed"
        assert events[-1]["event"] == "run.completed"
        assert events[-1]["output"] == ANSWER
        async with asyncio.timeout(30):
            assert await client.gateway.process.wait() == 0


async def until_draining(line: Line) -> None:
    async with asyncio.timeout(10):
        while (await line.client.get(line.url("/ready"))).status_code != 503:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_session_with_a_run_under_way_is_deleted_only_when_the_run_is_over(
    tmp_path: Path,
) -> None:
    async with api(tmp_path, held()) as (client, model):
        run_id = await client.start("first")
        await asked_for(model, 1)
        line = client.line
        run = (await line.client.get(line.url(f"/v1/runs/{run_id}"))).json()
        path = f"/api/sessions/{run['session_id']}"
        refused = await line.client.delete(line.url(path))
        assert refused.status_code == 409
        assert refused.json()["error"]["code"] == "session_busy"
        await client.power.cut()
        refused = await line.client.delete(line.url(path))
        assert refused.status_code == 409, "the run goes on after the crash"
        model.release()
        assert (await client.finished(run_id))["output"] == ANSWER
        assert (await line.client.delete(line.url(path))).is_success
        assert (await line.client.get(line.url(path))).status_code == 404
        await client.power.cut()
        assert (await line.client.get(line.url(path))).status_code == 404


async def test_an_approval_can_be_answered_after_many_crashes(tmp_path: Path) -> None:
    call = Call(name="terminal", arguments={"command": "rm -rf tmp; echo x >> marks"})
    script = Script(rules=[Rule(steps=[Step(calls=[call]), Step(text="All clean.")])])
    async with api(tmp_path, script, terminal={"backend": "local"}) as (client, _):
        run_id = await client.start("clean up")
        first = await client.asks(run_id)
        for _ in range(MAX_RESUMES + 1):
            await client.power.cut()
            assert await client.asks(run_id) == first
        line = client.line
        answer = await line.client.post(line.url(f"/v1/approvals/{first}"), json={"choice": "once"})
        assert answer.status_code == 200, answer.text
        assert (await client.finished(run_id))["output"] == "All clean."
        marks = client.gateway.hermes.home / "workspace" / "marks"
        assert marks.read_text("utf-8") == "x\n"


async def test_client_tools_handed_over_before_a_crash_take_their_results_after_it(
    tmp_path: Path,
) -> None:
    call = Call(name="weather", id="call-w")
    script = Script(rules=[Rule(steps=[Step(calls=[call]), Step(text="Take a coat.")])])
    async with api(tmp_path, script) as (client, _):
        line, user = client.line, {"role": "user", "content": "Coat?"}
        body: dict[str, Any] = {"messages": [user], "tools": [WEATHER]}
        url = "/v1/chat/completions"
        first = await line.client.post(line.url(url), json=body)
        message = first.json()["choices"][0]["message"]
        await client.power.cut()
        result = {
            "role": "tool",
            "tool_call_id": message["tool_calls"][0]["id"],
            "content": "rain",
        }
        body = {"messages": [user, message, result], "tools": [WEATHER]}
        second = await line.client.post(line.url(url), json=body)
        assert second.json()["choices"][0]["message"]["content"] == "Take a coat."
        name = "x-hermes-session-id"
        assert second.headers[name] == first.headers[name]


async def test_a_key_revoked_while_its_run_streams_lets_nothing_new_in(tmp_path: Path) -> None:
    async with api(tmp_path, held()) as (client, model):
        made = await client.gateway.hermes.run("keys", "create", "app")
        assert made.code == 0, made.err
        (secret,) = [word for word in made.out.split() if len(word) >= 32]
        headers = {"authorization": f"Bearer {secret}"}
        line, response = client.line, list[Any]()
        async with asyncio.TaskGroup() as group:
            body = {"input": "Hi", "stream": True}
            group.create_task(
                client.stream("POST", "/v1/responses", response, json=body, headers=headers)
            )
            await begun(response)
            revoked = await client.gateway.hermes.run("keys", "revoke", "app")
            assert revoked.code == 0, revoked.err
            # What was allowed when it came is carried out; the next request is refused.
            refused = await line.client.get(line.url("/v1/runs"), headers=headers)
            assert refused.status_code == 401
            model.release()
        assert data_lines(response)[-1]["event"] == "response.completed"
        run_id = data_lines(response)[-1]["response"]["id"]
        refused = await line.client.get(line.url(f"/v1/responses/{run_id}"), headers=headers)
        assert refused.status_code == 401


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def paying(folder: Path) -> Script:
    """A model that has a line written, and stops in the middle of its answer until released."""
    command = f"echo paid >> {folder / 'payments'}"
    pays = Step(calls=[Call(name="terminal", arguments={"command": command})])
    return Script(
        rules=[Rule(contains="Pay", steps=[pays, Step(text=ANSWER, stall="middle")])],
        default=Step(text="ok"),
    )


@pytest.mark.parametrize("end", ["kill", "stop"])
@pytest.mark.parametrize("way", ["chat", "responses"])
async def test_an_unmodified_openai_client_has_one_effect_over_a_restart(
    tmp_path: Path, way: str, end: str
) -> None:
    port = free_port()
    api_server = {"enabled": True, "extra": {"key": KEY, "port": port}}
    config = {"platforms": {"api_server": api_server}, "terminal": {"backend": "local"}}
    async with (
        api(tmp_path, paying(tmp_path), approvals={"mode": "off"}, **config) as (client, model),
        openai.AsyncOpenAI(
            api_key=KEY, base_url=f"http://127.0.0.1:{port}/v1", max_retries=8
        ) as program,
        asyncio.TaskGroup() as group,
    ):
        asked = group.create_task(asks(program, way))
        await asked_for(model, 2)
        if end == "kill":
            await client.gateway.kill()
        else:
            assert await client.gateway.stop(signal.SIGTERM) == 0
        model.release()
        await client.gateway.start()
        assert await asked == ANSWER
        assert (tmp_path / "payments").read_text() == "paid\n"
        listed = (await client.line.client.get(client.line.url("/v1/runs"))).json()["data"]
        assert [run["status"] for run in listed] == ["completed"]


async def asks(program: openai.AsyncOpenAI, way: str) -> str | None:
    if way == "responses":
        return (await program.responses.create(model="hermes", input="Pay.")).output_text
    said = await program.chat.completions.create(
        model="hermes", messages=[{"role": "user", "content": "Pay."}]
    )
    return said.choices[0].message.content


async def test_answers_in_one_piece_that_are_cut_are_errors(tmp_path: Path) -> None:
    async with api(tmp_path, held()) as (client, model):
        line = client.line
        session = (await line.client.post(line.url("/api/sessions"), json={})).json()
        chat = f"/api/sessions/{session['session']['id']}/chat"
        bodies: dict[str, Any] = {
            "/v1/chat/completions": {"messages": [{"role": "user", "content": "Hi"}]},
            "/v1/responses": {"input": "Hi"},
            chat: {"message": "Hi"},
        }
        async with asyncio.TaskGroup() as group:
            posts = [
                group.create_task(line.client.post(line.url(path), json=body))
                for path, body in bodies.items()
            ]
            await asked_for(model, 3)
            assert await client.gateway.stop(signal.SIGTERM) == 0
        for post in posts:
            answer = post.result()
            assert answer.status_code == 503, answer.text
            assert int(answer.headers["retry-after"]) >= 1
            assert answer.json()["error"]["code"] == "draining"
