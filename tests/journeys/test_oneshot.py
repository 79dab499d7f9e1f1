"""`hermes chat -q`: the real command, a real ledger, a model on loopback."""

import json
import shlex
import signal
from pathlib import Path

import pytest

from fakes.command import Hermes
from fakes.model import Call, FakeModelServer, Rule, Script, Step


def talkative() -> Script:
    look = Step(
        text="Let me look.",
        calls=[
            Call(name="terminal", arguments={"command": "echo from-the-shell"}),
            Call(name="read_file", arguments={"path": "notes.txt"}),
        ],
    )
    return Script(
        rules=[
            Rule(contains="Assistant: Hello", steps=[Step(text="A Fine Title")]),
            Rule(contains="look around", steps=[look, Step(text="Seen it.")]),
        ],
        default=Step(text="Hello there."),
    )


async def test_stdout_is_the_answer_and_nothing_else(tmp_path: Path) -> None:
    async with FakeModelServer(talkative()) as server:
        hermes = Hermes(tmp_path, server.base_url)
        outcome = await hermes.run("chat", "-q", "hi")
    assert outcome.code == 0
    assert outcome.out == "Hello there.\n"
    assert "session " in outcome.err


async def test_an_mcp_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    async with FakeModelServer(talkative()) as server:
        servers = {"tickets": {"command": "/nowhere/at-all"}}
        hermes = Hermes(tmp_path, server.base_url, {"mcp_servers": servers})
        outcome = await hermes.run("chat", "-q", "hi")
    assert outcome.out == "Hello there.\n"
    assert "The MCP server tickets is not there" in outcome.err
    assert "hermes mcp test tickets" in outcome.err


async def test_z_is_q_and_chat_is_the_default(tmp_path: Path) -> None:
    async with FakeModelServer(talkative()) as server:
        outcome = await Hermes(tmp_path, server.base_url).run("-z", "hi")
    assert (outcome.code, outcome.out) == (0, "Hello there.\n")


async def test_tools_run_and_only_the_final_answer_is_on_stdout(tmp_path: Path) -> None:
    async with FakeModelServer(talkative()) as server:
        hermes = Hermes(tmp_path, server.base_url)
        (hermes.work / "notes.txt").write_text("remember the milk\n", encoding="utf-8")
        outcome = await hermes.run("chat", "-q", "please look around")
        last = [r.body for r in server.requests if "tools" in r.body][-1]
    assert outcome.out == "Seen it.\n"
    assert "Let me look." in outcome.err
    assert "📖 read notes.txt" in outcome.err
    results = [m["content"] for m in last["messages"] if m["role"] == "tool"]
    assert "from-the-shell" in results[0]
    assert "1|remember the milk" in results[1]


async def test_the_question_can_come_from_stdin_and_notices_can_be_silenced(tmp_path: Path) -> None:
    async with FakeModelServer(Script(default=Step(echo=True))) as server:
        hermes = Hermes(tmp_path, server.base_url)
        outcome = await hermes.run("chat", "-Q", "-q", "-", stdin="from a pipe")
    assert outcome.out == "from a pipe\n"
    assert outcome.err == ""


async def test_a_session_is_named_and_can_be_continued_by_id_title_or_as_the_latest(
    tmp_path: Path,
) -> None:
    async with FakeModelServer(talkative()) as server:
        hermes = Hermes(tmp_path, server.base_url)
        first = await hermes.run("chat", "-q", "one")
        session_id = first.err.split("session ")[1].strip()
        for how in (["-r", session_id], ["-r", "A Fine Title"], ["-c"], ["-c", "A Fine Title"]):
            again = await hermes.run("chat", *how, "-q", "more")
            assert again.code == 0, again.err
            assert session_id in again.err
        asked = [r.body for r in server.requests if "tools" in r.body][-1]["messages"]
    assert [m["content"] for m in asked if m["role"] == "user"] == ["one"] + ["more"] * 4


async def test_the_prompt_prefix_is_the_same_bytes_in_every_call_of_a_session(
    tmp_path: Path,
) -> None:
    async with FakeModelServer(talkative()) as server:
        hermes = Hermes(tmp_path, server.base_url)
        await hermes.run("chat", "-q", "one")
        await hermes.run("chat", "-c", "-q", "two")
        calls = [r.body for r in server.requests if "tools" in r.body]
    first, second = (json.dumps(c["messages"]) for c in calls)
    assert second.startswith(first[:-1])
    assert json.dumps(calls[0]["tools"]) == json.dumps(calls[1]["tools"])


async def test_usage_is_written_where_asked(tmp_path: Path) -> None:
    async with FakeModelServer(talkative()) as server:
        hermes = Hermes(tmp_path, server.base_url)
        await hermes.run("chat", "-q", "hi", "--usage-file", "usage.json")
    usage = json.loads((hermes.work / "usage.json").read_text())
    assert usage["outcome"] == "done"
    assert usage["model"] == "fake-1"
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"] > 0


async def test_flags_choose_model_provider_and_toolsets(tmp_path: Path) -> None:
    async with FakeModelServer(talkative()) as server:
        hermes = Hermes(
            tmp_path, config={"providers": {"mine": {"base_url": server.base_url, "model": "m-1"}}}
        )
        outcome = await hermes.run(
            "chat", "-q", "hi", "-m", "m-2", "--provider", "mine", "-t", "todo"
        )
        body = server.requests[0].body
    assert outcome.code == 0, outcome.err
    assert body["model"] == "m-2"
    assert [t["function"]["name"] for t in body["tools"]] == ["todo"]


async def test_ctrl_c_interrupts_and_leaves_a_session_that_can_go_on(tmp_path: Path) -> None:
    async with FakeModelServer(
        Script(steps=[Step(text="half an answer " * 5, stall="middle")], default=Step(text="ok"))
    ) as server:
        hermes = Hermes(tmp_path, server.base_url)
        process = await hermes.start("chat", "-q", "hi")
        await server.arrived.wait()
        process.send_signal(signal.SIGINT)
        outcome = await hermes.finish(process)
        assert outcome.code == 130
        assert "interrupted" in outcome.err
        again = await hermes.run("chat", "-c", "-q", "go on")
    assert again.out == "ok\n"


async def test_dangerous_commands_are_refused_where_nobody_can_be_asked(tmp_path: Path) -> None:
    wipe = Step(calls=[Call(name="terminal", arguments={"command": "rm -rf precious"})])
    async with FakeModelServer(Script(steps=[wipe], default=Step(text="Could not."))) as server:
        hermes = Hermes(tmp_path, server.base_url)
        (hermes.work / "precious").mkdir()
        outcome = await hermes.run("chat", "-q", "clean up")
        assert outcome.out == "Could not.\n"
        assert (hermes.work / "precious").exists()
        (result,) = [m for m in server.requests[1].body["messages"] if m["role"] == "tool"]
    assert "nobody can be asked" in result["content"]


async def test_yolo_lifts_the_question_but_not_the_floor(tmp_path: Path) -> None:
    steps = [
        Step(calls=[Call(name="terminal", arguments={"command": "rm -rf precious"})]),
        Step(calls=[Call(name="terminal", arguments={"command": "rm -rf /"})]),
    ]
    async with FakeModelServer(Script(steps=steps, default=Step(text="Done."))) as server:
        hermes = Hermes(tmp_path, server.base_url)
        (hermes.work / "precious").mkdir()
        await hermes.run("chat", "--yolo", "-q", "clean up")
        assert not (hermes.work / "precious").exists()
        results = [m for m in server.requests[2].body["messages"] if m["role"] == "tool"]
    assert "Not allowed" in results[1]["content"]


@pytest.mark.parametrize("secret", ["sk-verysecretvalue1234567890"])
async def test_a_secret_in_the_environment_reaches_neither_tools_model_nor_log(
    tmp_path: Path, secret: str
) -> None:
    show = Step(calls=[Call(name="terminal", arguments={"command": "env; cat leak.txt"})])
    async with FakeModelServer(Script(steps=[show], default=Step(text="ok"))) as server:
        hermes = Hermes(tmp_path, server.base_url)
        (hermes.work / "leak.txt").write_text(f"key={secret}\n", encoding="utf-8")
        await hermes.run("chat", "-q", f"show {secret}", environ={"OPENAI_API_KEY": secret})
        sent = "".join(r.raw.decode() for r in server.requests)
    assert secret not in sent
    kept = [file for file in hermes.home.rglob("*") if file.is_file()]
    assert kept
    for file in kept:
        assert secret.encode() not in file.read_bytes(), file


async def test_the_transcript_mirror_has_every_message_once(tmp_path: Path) -> None:
    async with FakeModelServer(talkative()) as server:
        hermes = Hermes(tmp_path, server.base_url, {"sessions": {"write_jsonl": True}})
        await hermes.run("chat", "-q", "look around")
        await hermes.run("chat", "-c", "-q", "thanks")
    (mirror,) = (hermes.home / "sessions").glob("*.jsonl")
    lines = [json.loads(line) for line in mirror.read_text(encoding="utf-8").splitlines()]
    assert [line["role"] for line in lines] == [
        "user", "assistant", "tool", "tool", "assistant", "user", "assistant",
    ]  # fmt: skip
    assert lines[1]["tool_calls"][0]["function"]["name"] == "terminal"


async def test_a_money_budget_needs_a_price_and_counts_with_one(tmp_path: Path) -> None:
    async with FakeModelServer(Script(default=Step(text="ok"))) as server:
        hermes = Hermes(tmp_path, server.base_url, {"budget": {"session_usd": 0.000001}})
        unpriced = await hermes.run("-q", "hi")
        assert unpriced.code == 0, unpriced.err
        assert "budget.session_usd cannot stop fake-1" in unpriced.err
        advice = unpriced.err.split("hermes config set ")[1].splitlines()[0]
        done = await hermes.run("config", "set", *shlex.split(advice))
        assert done.code == 0, done.err
        assert "$1 in, $2 out" in (await hermes.run("model", "show")).out
        priced = await hermes.run("-q", "hi", "--usage-file", str(tmp_path / "usage.json"))
        assert "cannot stop" not in priced.err
        assert json.loads((tmp_path / "usage.json").read_text("utf-8"))["cost_usd"] > 0
        stopped = await hermes.run("-c", "-q", "more")
        assert stopped.code == 6, stopped.err
        price = "providers.custom.models.fake-1.price"
        wrong = await hermes.run("config", "set", price, "cheap")
        assert wrong.code == 78
        assert price in wrong.err
        file = hermes.home / "config.yaml"
        file.write_text(file.read_text("utf-8").replace("input: 1.0", "input: low"), "utf-8")
        wrong = await hermes.run("-q", "hi")
        assert wrong.code == 78
        assert f"{price}.input should be a number" in wrong.err


async def test_a_one_shot_is_in_the_log(tmp_path: Path) -> None:
    async with FakeModelServer(Script(default=Step(text="ok"))) as server:
        hermes = Hermes(tmp_path, server.base_url)
        assert (await hermes.run("-q", "hi there")).code == 0
        log = (hermes.home / "logs" / "agent.log").read_text("utf-8")
        assert "fake-1" in log
        assert "hi there" not in log, "what people say stays in the ledger"
        broken = Hermes(tmp_path, "http://127.0.0.1:9/v1", {"agent": {"api_max_retries": 0}})
        assert (await broken.run("-q", "hi")).code == 1
        assert "127.0.0.1:9" in (hermes.home / "logs" / "errors.log").read_text("utf-8")
