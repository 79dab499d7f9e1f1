"""kill -9 under load: every accepted request is answered, once, and can be read without a gap.

Runs, responses and chat completions of all kinds are under way while the
gateway is killed and started again at seeded random moments. Clients repeat
what got no answer and go on reading where they were cut off. In the end every
run has an outcome, its events are numbered without a gap, what readers saw is
what the log has, and no command that may not be repeated ran twice.
"""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fakes.api_crash import Asked, Line, Power, data_lines
from fakes.api_gateway import ApiGateway, running_api
from fakes.ledgers import damage
from fakes.model import Call, Rule, Script, Step
from fakes.model_remote import model_process
from hermes.domain.runs import Run, RunQuery
from hermes.state.sqlite.ledger import SqliteLedger

KINDS = (
    "run",
    "effect",
    "reads",
    "approval",
    "queued",
    "background",
    "chat with key",
    "chat",
    "response with key",
    "response",
    "client tool",
    "chain",
    "unstored",
)
TOOL = {"name": "weather", "parameters": {"type": "object", "properties": {}}}
WEATHER = {"type": "function", "function": TOOL}
CALM: dict[str, Any] = {"piece_chars": 12, "interval": 0.03}


def answer_of(number: int) -> str:
    return f"Answer {number}: " + " ".join(f"word-{n}" for n in range(25))


def rule(asked: Asked) -> Rule:
    """What the model says to a request."""
    number, last = asked.number, Step(text=answer_of(asked.number), **CALM)
    commands = {
        "effect": f"echo {number} >> effects/{number}; sleep 0.4",
        "approval": f"rm -rf tmp-{number} && echo {number} >> effects/{number}",
    }
    first: list[Step] = []
    if asked.kind in commands:
        call = Call(name="terminal", arguments={"command": commands[asked.kind]})
        first = [Step(text="I do it.", calls=[call], **CALM)]
    elif asked.kind == "reads":
        call = Call(name="read_file", arguments={"path": "notes.txt"})
        first = [Step(text="I look.", calls=[call], **CALM), Step(calls=[call])]
    elif asked.kind == "client tool":
        first = [Step(calls=[Call(name="weather", id=f"call-{number}-")])]
    return Rule(contains=asked.mark, steps=[*first, last])


class Crowd:
    """Clients that ask for things of every kind."""

    def __init__(self, runs: int, power: Power) -> None:
        self.asked = [Asked(number, KINDS[number % len(KINDS)]) for number in range(runs)]
        self.power = power
        self.line = Line(power)
        self.pauses = [power.chance.uniform(0.0, 3.0) for _ in self.asked]

    async def all(self) -> None:
        async with asyncio.TaskGroup() as group:
            for asked, pause in zip(self.asked, self.pauses, strict=True):
                group.create_task(self._one(asked, pause), name=f"{asked.kind} {asked.number}")

    async def _one(self, asked: Asked, pause: float) -> None:
        await asyncio.sleep(pause)
        match asked.kind:
            case "run" | "effect" | "reads" | "approval" | "queued":
                await self._run(asked)
            case "background" | "chain":
                await self._background(asked)
            case "client tool":
                await self._client_tool(asked)
            case "chat with key" | "chat":
                body = {"messages": [user(asked)], "stream": True}
                await self._foreground(asked, "/v1/chat/completions", body)
            case _:
                body = {"input": asked.mark, "stream": True}
                if asked.kind == "unstored":
                    body["store"] = False
                await self._foreground(asked, "/v1/responses", body)

    async def _run(self, asked: Asked) -> None:
        headers = {"X-Hermes-Session-Key": "the-queue"} if asked.kind == "queued" else {}
        await self.line.start(asked, f"key-{asked.number}", {"input": asked.mark}, **headers)
        async with asyncio.TaskGroup() as group:
            group.create_task(self.line.read(asked))
            if asked.kind == "approval":
                group.create_task(self.line.answer_approval(asked))
        await self.line.ended(asked)

    async def _foreground(self, asked: Asked, path: str, body: dict[str, Any]) -> None:
        key = f"key-{asked.number}" if asked.kind.endswith("with key") else ""
        await self.line.converse(asked, path, key, body)
        if key:
            asked.again = lambda: self.line.converse(asked, path, key, body)
        if asked.runs and asked.kind != "unstored":
            await self.line.ended(asked)

    async def _background(self, asked: Asked) -> None:
        await self._response(asked, f"key-{asked.number}", {"input": asked.mark})
        if asked.kind == "chain":
            second = Asked(asked.number, asked.kind)
            body = {"input": f"again {asked.mark}", "previous_response_id": asked.run_id}
            await self._response(second, f"second-{asked.number}", body)
            assert second.status == "completed"
            assert second.run_id != asked.run_id

    async def _response(self, asked: Asked, key: str, body: dict[str, Any]) -> None:
        """Read a response in the background to its end, going on after what was seen."""
        line, body = self.line, {**body, "background": True, "stream": True}

        async def post() -> None:
            # The answer is the stream from its beginning; its first event names the response.
            while not asked.runs:
                async for _ in line.stream(asked, "POST", "/v1/responses", key=key, json=body):
                    break

        asked.again = post
        await post()
        while not asked.seen or asked.seen[-1]["event"] != "done":
            asked.seen = data_lines(asked.seen)
            after = f"&starting_after={len(asked.seen) - 1}" if asked.seen else ""
            path = f"/v1/responses/{asked.run_id}?stream=true{after}"
            async for event in line.stream(asked, "GET", path):
                if "sequence_number" in event:
                    assert event["sequence_number"] == len(asked.seen), "a gap or a repetition"
                asked.seen.append(event)
        await line.ended(asked)

    async def _client_tool(self, asked: Asked) -> None:
        line, path = self.line, "/v1/chat/completions"
        body: dict[str, Any] = {"messages": [user(asked)], "tools": [WEATHER]}
        first = await line.insist(asked, "POST", path, key=f"key-{asked.number}", json=body)
        if first.status_code == 502:
            return
        (choice,) = first.json()["choices"]
        assert choice["finish_reason"] == "tool_calls", first.text
        (call,) = choice["message"]["tool_calls"]
        result = {"role": "tool", "tool_call_id": call["id"], "content": "sunny"}
        body = {"messages": [*body["messages"], choice["message"], result], "tools": [WEATHER]}
        second = await line.insist(asked, "POST", path, key=f"second-{asked.number}", json=body)
        assert second.status_code in {200, 502}, second.text
        if second.status_code == 200:
            assert second.headers["x-hermes-session-id"] == first.headers["x-hermes-session-id"]
            asked.output = second.json()["choices"][0]["message"]["content"]
            assert asked.output == answer_of(asked.number)
            asked.status = "completed"


def user(asked: Asked) -> dict[str, Any]:
    return {"role": "user", "content": asked.mark}


def folded(events: list[dict[str, Any]]) -> str:
    """Return the last message as a reader builds it from deltas, resets and completions."""
    complete, growing = "", ""
    for event in events:
        match event["event"]:
            case "message.delta":
                growing += event["delta"]
            case "message.reset":
                growing = ""
                complete = next((m["text"] for m in event.get("messages", [])[::-1]), complete)
            case "message.completed":
                assert growing == event["text"], "the deltas are not the message"
                complete, growing = event["text"], ""
    assert growing == ""
    return complete


async def check_run(line: Line, asked: Asked) -> None:
    """Compare what a reader saw of a run with what is told now."""
    read = Asked(asked.number, asked.kind)
    read.runs = asked.runs
    await line.read(read)
    assert read.seen == asked.seen
    if asked.status == "completed":
        assert folded(asked.seen) == asked.output == asked.seen[-1]["output"]
        assert asked.output == answer_of(asked.number)
    else:
        assert asked.seen[-1]["error"]["message"], "a failure without a reason"


async def check_response(line: Line, asked: Asked) -> None:
    path = f"/v1/responses/{asked.run_id}"
    told = [event async for event in line.stream(asked, "GET", f"{path}?stream=true")]
    assert [event["event"] for event in told] == [event["event"] for event in asked.seen]
    assert told == asked.seen
    resource = (await line.insist(asked, "GET", path)).json()
    assert resource["output"] == data_lines(told)[-1]["response"]["output"]
    if asked.status == "completed":
        (item,) = [item for item in resource["output"] if item["type"] == "message"]
        assert item["content"][0]["text"] == answer_of(asked.number)
        if not any(event["event"] == "response.output_text.done" for event in told):
            raise AssertionError("a message without its end")


def check_foreground(asked: Asked) -> None:
    """A stream that ended has said all of the answer, or that it failed."""
    if not asked.seen or asked.seen[-1]["event"] != "done" or asked.status != "completed":
        return
    said = "".join(
        event["delta"] if event["event"] == "response.output_text.delta" else ""
        for event in asked.seen
    ) + "".join(
        choice["delta"].get("content") or ""
        for event in asked.seen
        for choice in event.get("choices", [])
    )
    assert said == answer_of(asked.number)


def workspace(gateway: ApiGateway) -> Path:
    return gateway.hermes.home / "workspace"


def check_effects(gateway: ApiGateway, crowd: Crowd) -> Counter[str]:
    """A command that went well ran once; one that was cut off, once or not at all."""
    counted: Counter[str] = Counter()
    for asked in crowd.asked:
        file = workspace(gateway) / "effects" / str(asked.number)
        lines = file.read_text("utf-8").split() if file.exists() else []
        assert len(lines) <= 1, f"{asked.kind} {asked.number} ran {len(lines)} times"
        if asked.kind in {"effect", "approval"}:
            ends = [event["outcome"] for event in asked.seen if event["event"] == "tool.completed"]
            assert len(lines) == 1 or "ok" not in ends, f"{asked.kind} {asked.number} did nothing"
            counted["approvals asked"] += any(e["event"] == "approval.request" for e in asked.seen)
            counted[f"effects of {asked.kind}"] += len(lines)
    return counted


async def stored_runs(gateway: ApiGateway) -> list[Run]:
    home = gateway.hermes.home
    ledger = await SqliteLedger.open(home / "state.db", backups=home)
    try:
        assert damage(home / "state.db") == []
        assert await ledger.open_turns() == []
        return await ledger.runs(RunQuery(limit=None))
    finally:
        await ledger.close()


async def check(gateway: ApiGateway, crowd: Crowd) -> Counter[str]:
    totals = check_effects(gateway, crowd)
    for asked in crowd.asked:
        totals[f"{asked.kind}: {asked.status or 'no answer'}"] += 1
        totals["cut off"] += asked.cut_off
        totals["completed"] += asked.status == "completed"
        if asked.kind in {"background", "chain"}:
            await check_response(crowd.line, asked)
        elif asked.kind in {"run", "effect", "reads", "approval", "queued"}:
            await check_run(crowd.line, asked)
        else:
            check_foreground(asked)
        if asked.again is not None:
            await asked.again()
        assert len(asked.runs) <= 1, f"{asked.kind}: one request became {asked.runs}"
    return totals


async def crash(folder: Path, *, runs: int, kills: int, seed: int) -> Counter[str]:
    example = [Asked(number, KINDS[number % len(KINDS)]) for number in range(runs)]
    script = Script(rules=[rule(each) for each in example], default=Step(text="what?"))
    async with model_process(folder, script) as model:
        async with running_api(folder, model.base_url, terminal={"backend": "local"}) as gateway:
            work = workspace(gateway)
            (work / "effects").mkdir(parents=True)
            (work / "notes.txt").write_text("notes\n", "utf-8")
            power = Power(gateway, seed)
            crowd = Crowd(runs, power)
            async with asyncio.TaskGroup() as group:
                group.create_task(crowd.all())
                group.create_task(power.cuts(kills, 0.3, 1.4))
            before = (await model.stats())["requests"]
            await check(gateway, crowd)
            await power.cut()
            totals = await check(gateway, crowd)
            assert (await model.stats())["requests"] == before, "a repeat started a turn"
            await crowd.line.close()
            await gateway.stop()
            kept = await stored_runs(gateway)
    assert all(not run.state.open for run in kept)
    # What a retry may still ask for stays a minute.
    unstored = [run for run in kept if not run.request.get("store", True)]
    assert all(run.request.get("retries") for run in unstored), "an unstored response was kept"
    keyed = Counter(run.idempotency_key for run in kept if run.idempotency_key)
    assert not [key for key, count in keyed.items() if count > 1]
    unkeyed = [each for each in crowd.asked if each.kind in {"chat", "response"}]
    assert len(kept) - keyed.total() <= len(unkeyed), "a request became two runs"
    totals["runs"], totals["kills"] = len(kept), power.kills
    return totals


@pytest.mark.timeout(150)
async def test_killed_gateways_answer_every_accepted_request_once(tmp_path: Path) -> None:
    totals = await crash(tmp_path, runs=52, kills=4, seed=3)
    assert totals["cut off"] >= 5, f"the kills hit nothing: {totals}"
    assert totals["completed"] >= 30, totals
    assert totals["approvals asked"] >= 3, totals
    assert totals["effects of effect"] >= 2, totals


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(8))
async def test_killed_gateways_answer_every_accepted_request_once_long_form(
    tmp_path: Path, seed: int
) -> None:
    totals = await crash(tmp_path, runs=104, kills=10, seed=seed)
    assert totals["cut off"] >= 10, totals
