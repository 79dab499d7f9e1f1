"""What goes wrong is said in a sentence with a next step; nothing is lost."""

import asyncio
import resource
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.command import Hermes, Outcome
from fakes.model import Call, FakeModelServer, Script, Step


def explained(outcome: Outcome, *words: str) -> None:
    """A failure: a sentence, a next step, no traceback, nothing on stdout."""
    assert outcome.code != 0
    assert "Traceback" not in outcome.err
    assert "hermes: " in outcome.err
    assert "->" in outcome.err
    assert outcome.out == ""
    for word in words:
        assert word in outcome.err, outcome.err


async def test_broken_yaml(tmp_path: Path) -> None:
    hermes = Hermes(tmp_path)
    (hermes.home / "config.yaml").write_text("model: [unclosed\nagent: {", encoding="utf-8")
    explained(await hermes.run("chat", "-q", "hi"), "config.yaml:2:6", "config edit")


async def test_a_wrong_value(tmp_path: Path) -> None:
    hermes = Hermes(tmp_path, config={"agent": {"max_turns": "many"}})
    explained(await hermes.run("chat", "-q", "hi"), "agent.max_turns", "many", "config.yaml")


async def test_no_model_chosen(tmp_path: Path) -> None:
    explained(await Hermes(tmp_path).run("chat", "-q", "hi"), "model")


async def test_an_unknown_provider(tmp_path: Path) -> None:
    hermes = Hermes(tmp_path, config={"model": {"provider": "opnrouter", "default": "x"}})
    explained(await hermes.run("chat", "-q", "hi"), "opnrouter", "openrouter")


async def test_a_missing_key(tmp_path: Path) -> None:
    hermes = Hermes(tmp_path, config={"model": {"provider": "openrouter", "default": "x/y"}})
    explained(await hermes.run("chat", "-q", "hi"), "OPENROUTER_API_KEY", "hermes config set")


async def test_a_model_server_that_is_down(tmp_path: Path) -> None:
    hermes = Hermes(tmp_path, "http://127.0.0.1:9/v1", {"agent": {"api_max_retries": 0}})
    outcome = await hermes.run("chat", "-q", "are you there?")
    explained(outcome, "127.0.0.1:9")
    shown = await hermes.run("sessions", "search", "are you there")
    assert "are you there" in shown.out.replace("[", "").replace("]", "")


async def test_a_stream_that_goes_silent(tmp_path: Path) -> None:
    script = Script(default=Step(text="and then nothing " * 4, stall="middle"))
    async with FakeModelServer(script) as server:
        hermes = Hermes(
            tmp_path,
            server.base_url,
            {"agent": {"api_max_retries": 0}, "model_timeouts": {"idle": 0.5, "first_byte": 5}},
        )
        outcome = await hermes.run("chat", "-q", "hi")
    assert outcome.code == 1
    assert "hermes: " in outcome.err
    assert "Traceback" not in outcome.err


async def test_a_home_that_cannot_be_written(tmp_path: Path) -> None:
    hermes = Hermes(tmp_path)
    blocked = tmp_path / "file"
    blocked.write_text("not a directory", encoding="utf-8")
    environ = {"HERMES_HOME": str(blocked / "home"), "HERMES_MODEL": "x"}
    explained(await hermes.run("chat", "-q", "hi", environ=environ), "HERMES_HOME")


async def test_a_database_from_a_newer_version(tmp_path: Path) -> None:
    async with FakeModelServer(Script(default=Step(text="ok"))) as server:
        hermes = Hermes(tmp_path, server.base_url)
        await hermes.run("chat", "-q", "hi")
        connection = sqlite3.connect(hermes.home / "state.db")
        connection.execute("PRAGMA user_version = 9999")
        connection.close()
        explained(await hermes.run("chat", "-q", "hi"), "state.db", "newer")


async def test_a_database_of_another_program(tmp_path: Path) -> None:
    hermes = Hermes(tmp_path, "http://127.0.0.1:9/v1")
    connection = sqlite3.connect(hermes.home / "state.db")
    connection.execute("CREATE TABLE things (x)")
    connection.commit()
    connection.close()
    before = (hermes.home / "state.db").read_bytes()
    explained(await hermes.run("chat", "-q", "hi"), "state.db")
    assert (hermes.home / "state.db").read_bytes() == before


async def test_a_full_disk(tmp_path: Path) -> None:
    """Files may not grow beyond a limit: writes fail as they do on a full disk."""
    async with FakeModelServer(Script(default=Step(text="ok"))) as server:
        hermes = Hermes(tmp_path, server.base_url)
        assert (await hermes.run("chat", "-q", "fits")).code == 0
        limit_bytes = 64 * 1024  # less than the ledger needs for a turn

        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))

        full = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "hermes.cli", "chat", "-q", "does not fit"],
            cwd=hermes.work,
            env=hermes.environ,
            preexec_fn=limit,
            capture_output=True,
            timeout=40,
            check=False,
            text=True,
        )
        assert full.returncode != 0
        assert "hermes: " in full.stderr
        assert "->" in full.stderr
        assert "Traceback" not in full.stderr
        after = await hermes.run("chat", "-c", "-q", "again")
        assert after.code == 0, after.err


async def test_a_session_in_use_by_another_process(tmp_path: Path) -> None:
    script = Script(steps=[Step(text="x", stall="before")], default=Step(text="ok"))
    async with FakeModelServer(script) as server:
        hermes = Hermes(tmp_path, server.base_url)
        busy = await hermes.start("chat", "-q", "first")
        await server.arrived.wait()
        explained(await hermes.run("chat", "-c", "-q", "second"), "busy")
        other = await hermes.run("chat", "-q", "a session of its own")
        assert other.out == "ok\n"
        busy.kill()
        await busy.communicate()
        after = await hermes.run("sessions", "list")
        assert after.code == 0


async def test_an_unknown_session(tmp_path: Path) -> None:
    hermes = Hermes(tmp_path, "http://127.0.0.1:9/v1")
    explained(await hermes.run("chat", "-r", "nope", "-q", "hi"), "nope", "sessions list")


@pytest.mark.parametrize("arguments", [["chat", "-q", "  "], ["chat", "-q", "-"]])
async def test_an_empty_question(tmp_path: Path, arguments: list[str]) -> None:
    explained(await Hermes(tmp_path).run(*arguments), "empty")


async def test_a_call_that_is_nested_too_deeply_costs_neither_its_turn_nor_the_next(
    tmp_path: Path,
) -> None:
    deep = f'{{"command": {"[" * 3000}{"]" * 3000}}}'
    call = Step(calls=[Call(name="terminal", arguments=deep)])
    async with FakeModelServer(Script(steps=[call])) as it:
        hermes = Hermes(tmp_path, it.base_url)
        first = await hermes.run("chat", "-q", "one")
        second = await hermes.run("chat", "-c", "-q", "two")
        assert "not a JSON object" in str(it.requests[1].body)
    assert (first.code, first.out.strip()) == (0, "ok"), first.err
    assert (second.code, second.out.strip()) == (0, "ok"), second.err


async def test_a_reply_with_very_many_calls_fails_its_turn_and_says_why(tmp_path: Path) -> None:
    calls = [Call(name="terminal", arguments={"command": "true"})] * 2000
    async with FakeModelServer(Script(steps=[Step(calls=calls)])) as it:
        hermes = Hermes(tmp_path, it.base_url)
        first = await hermes.run("chat", "-q", "one")
        explained(first, "more than 128 tool calls")
        assert len(it.requests) == 1
        second = await hermes.run("chat", "-c", "-q", "two")
    assert (second.code, second.out.strip()) == (0, "ok"), second.err
