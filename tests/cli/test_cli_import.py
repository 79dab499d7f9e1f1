"""A home of an earlier Hermes: left untouched, lived beside, and imported."""

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.command import Hermes
from fakes.earlier_home import make_earlier, say
from fakes.model import FakeModelServer, Script, Step

FIRST, SECOND = "20250101_101010_abc", "20250102_101010_def"


def traces(home: Path) -> dict[str, tuple[bytes, int]]:
    """Return all that can tell whether the old database was touched."""
    return {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in home.glob("state.db*")}


@pytest.fixture
def old(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    (tmp_path / "home").mkdir()
    db = make_earlier(tmp_path / "home")
    yield db
    db.close()


@pytest.mark.parametrize("in_use", [True, False])
async def test_our_ledger_lives_beside_that_of_an_earlier_hermes(
    tmp_path: Path, old: sqlite3.Connection, in_use: bool
) -> None:
    if not in_use:
        old.close()
    async with FakeModelServer(Script(default=Step(text="ok"))) as server:
        hermes = Hermes(tmp_path, server.base_url)
        before = traces(hermes.home)
        assert ("state.db-wal" in before) is in_use
        status = await hermes.run("status")
        assert status.code == 0, status.err
        assert "hermes import" in status.out
        empty = await hermes.run("sessions", "list")
        assert (empty.code, "hermes import" in empty.out) == (0, True)
        assert not (hermes.home / "ledger.db").exists(), "looking makes nothing"
        first = await hermes.run("chat", "-q", "hi")
        assert first.code == 0, first.err
        assert first.out == "ok\n"
        assert first.err.count("hermes import") == 1
        later = await hermes.run("chat", "-c", "-q", "again")
        assert later.code == 0, later.err
        assert "import" not in later.err, "said once"
        assert traces(hermes.home) == before
        for gone in hermes.home.glob("state.db*"):
            gone.unlink()
        listed = await hermes.run("sessions", "list")
        assert len(listed.out.splitlines()) == 1, "the ledger stays where it is"
        assert "no such sessions" not in listed.out


async def test_sessions_and_messages_are_brought_once(
    tmp_path: Path, old: sqlite3.Connection
) -> None:
    hermes = Hermes(tmp_path, "http://127.0.0.1:9/v1")
    before = traces(hermes.home)
    would = await hermes.run("import", "--dry-run")
    assert would.code == 0, would.err
    assert "Would bring 3 sessions with 10 messages" in would.out
    assert not (hermes.home / "ledger.db").exists()
    done = await hermes.run("import")
    assert done.code == 0, done.err
    assert "Brought 3 sessions with 10 messages" in done.out
    assert "1 message of the role system" in done.out
    assert "Not brought" in done.out
    again = await hermes.run("import")
    assert "Brought 0 sessions with 0 messages" in again.out
    assert "3 sessions had been brought before" in again.out
    assert traces(hermes.home) == before
    assert "hermes import" not in (await hermes.run("status")).out

    shown = json.loads((await hermes.run("sessions", "show", FIRST, "--json")).out)
    assert shown["title"] == "the lighthouse"
    assert (shown["started_at"], shown["ended_at"]) == (1000.0, 2000.0)
    assert (shown["input_tokens"], shown["estimated_cost_usd"], shown["cwd"]) == (70, 0.5, "/srv")
    roles = [(m["role"], m.get("content"), m.get("tool_call_id")) for m in shown["messages"]]
    assert roles[:4] == [
        ("user", "list the files", None),
        ("assistant", "I look.", None),
        ("tool", "first", "c1"),
        ("tool", "second", "c2"),
    ]
    assert roles[4][0] == "tool"
    assert "not kept" in str(roles[4][1])
    assert roles[5:] == [("assistant", "There are two.", None)]
    assert [c["function"]["name"] for c in shown["messages"][1]["tool_calls"]] == [
        "terminal",
        "read_file",
        "terminal",
    ]
    assert "undone" in (await hermes.run("sessions", "show", FIRST, "--full")).out
    child = json.loads((await hermes.run("sessions", "show", SECOND, "--json")).out)
    assert child["parent_session_id"] == FIRST
    assert [m["role"] for m in child["messages"]] == ["user", "assistant"]
    assert child["messages"][0]["content"][1]["type"] == "image_url"
    assert FIRST in (await hermes.run("sessions", "search", "two")).out


async def test_what_was_said_since_comes_too_unless_the_session_went_on_here(
    tmp_path: Path, old: sqlite3.Connection
) -> None:
    async with FakeModelServer(Script(default=Step(text="ok"))) as server:
        hermes = Hermes(tmp_path, server.base_url)
        await hermes.run("import")
        went_on = await hermes.run("chat", "-r", FIRST, "-q", "and now?")
        assert went_on.out == "ok\n", went_on.err
        for session in (FIRST, SECOND):
            say(old, session, "user", "said later", timestamp=4000.0)
        again = await hermes.run("import")
        assert "Brought 0 sessions with 1 message " in again.out
        assert "1 session went on in both places" in again.out


async def test_what_is_no_earlier_home_is_named(tmp_path: Path) -> None:
    outcome = await Hermes(tmp_path).run("import")
    assert outcome.code == 4
    assert "is not a state.db of an earlier Hermes" in outcome.err
