import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fakes.ledgers import reply, result, say, session, turn, usage
from hermes.cli.commands.sessions import command
from hermes.domain.errors import (
    Conflict,
    HermesError,
    NotFound,
    SessionBusy,
    StoreError,
    UsageError,
)
from hermes.domain.messages import AssistantMessage, InputKind, ToolCall, UserMessage
from hermes.domain.ports.ledger import Ledger
from hermes.domain.turn import TurnState
from hermes.state.ownership import Owner
from hermes.state.sqlite.ledger import SqliteLedger

SECRET = "hunter2hunter2"


class Shell:
    """Runs `hermes sessions ...` in a home of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.environ: dict[str, str | None] = {"HERMES_HOME": str(root), "TZ": "UTC"}

    def run(self, *arguments: str, answer: str | None = None) -> Result:
        return CliRunner().invoke(command, arguments, input=answer, env=self.environ)

    def out(self, *arguments: str, answer: str | None = None) -> str:
        ran = self.run(*arguments, answer=answer)
        assert ran.exit_code == 0, (ran.output, ran.exception)
        assert SECRET not in ran.output
        return ran.stdout

    def fails(self, kind: type[HermesError], *arguments: str) -> HermesError:
        ran = self.run(*arguments)
        assert isinstance(ran.exception, kind), (ran.output, ran.exception)
        return ran.exception

    def change(self, work: Callable[[Ledger], Awaitable[object]]) -> None:
        async def main() -> None:
            ledger = await SqliteLedger.open(self.root / "state.db", backups=self.root / "backups")
            await work(ledger)
            await ledger.close()

        asyncio.run(main())

    def ids(self, *arguments: str) -> list[str]:
        lines = self.out("list", "--json", *arguments).splitlines()
        return [json.loads(line)["id"] for line in lines]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path / "home")


async def two_sessions(ledger: Ledger) -> None:
    await ledger.create_session(session("20260101_aa", title="Trip to Rome", at=1e9))
    await ledger.freeze_prompt("20260101_aa", "You are Hermes.")
    await ledger.begin_turn(turn("t1", session_id="20260101_aa", says="Where is Rome?", at=1e9))
    call = ToolCall(id="c1", name="search", arguments='{"q":"Rome"}')
    await ledger.record_reply("t1", AssistantMessage(tool_calls=(call,)), usage(), 1e9)
    await ledger.record_result("t1", result("c1", f"Italy {SECRET}"), 1e9)
    await ledger.record_reply("t1", reply("In Italy \x1b[31m☤."), None, 1e9)
    await ledger.finish_turn("t1", TurnState.DONE, None, 1e9)
    await ledger.create_session(session("20260202_bb", source="telegram", at=2e9))


@pytest.fixture
def filled(shell: Shell) -> Shell:
    shell.change(two_sessions)
    (shell.root / ".env").write_text(f"MY_API_KEY={SECRET}\n", encoding="utf-8")
    return shell


def test_looking_makes_nothing(shell: Shell) -> None:
    assert shell.out("list") == "There are no such sessions.\n"
    assert shell.out("search", "x") == "Nothing found.\n"
    assert "Sessions   0" in shell.out("stats")
    assert "hermes sessions list" in shell.fails(NotFound, "show", "x").hint
    assert not shell.root.exists()


def test_sessions_are_listed_with_what_tells_them_apart(filled: Shell) -> None:
    first, second = filled.out("list").splitlines()
    assert first.startswith("20260202_bb")
    assert "telegram" in first
    assert second.endswith("Trip to Rome")
    assert "2001-09-09" in second


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([], ["20260202_bb", "20260101_aa"]),
        (["--limit", "1"], ["20260202_bb"]),
        (["--limit", "0"], ["20260202_bb", "20260101_aa"]),
        (["--source", "telegram"], ["20260202_bb"]),
        (["--title", "rome"], ["20260101_aa"]),
        (["--model", "other"], []),
        (["--older-than", "30d"], ["20260101_aa"]),
        (["--newer-than", "2w"], ["20260202_bb"]),
        (["--before", "2020-01-01"], ["20260101_aa"]),
        (["--after", "2020-01-01T10:00"], ["20260202_bb"]),
        (["--min-messages", "1"], ["20260101_aa"]),
        (["--max-messages", "0"], ["20260202_bb"]),
        (["--ended"], []),
    ],
)
def test_filters_choose_sessions(filled: Shell, filters: list[str], expected: list[str]) -> None:
    assert filled.ids(*filters) == expected


@pytest.mark.parametrize(
    "wrong", [["--older-than", "soon"], ["--before", "yesterday"], ["--limit", "-1"]]
)
def test_a_filter_that_makes_no_sense_is_a_usage_error(filled: Shell, wrong: list[str]) -> None:
    assert filled.run("list", *wrong).exit_code == 2


@pytest.mark.parametrize("reference", ["20260101_aa", "202601", "Trip to Rome"])
def test_a_conversation_is_shown_without_secrets_and_escapes(filled: Shell, reference: str) -> None:
    shown = filled.out("show", reference)
    assert "Session 20260101_aa: Trip to Rome" in shown
    assert "── You" in shown
    assert "Where is Rome?" in shown
    assert '→ search {"q":"Rome"}' in shown
    assert "Italy ***MY_API_KEY***" in shown
    assert "In Italy [31m☤." in shown
    assert "\x1b" not in shown


def test_what_was_compacted_is_shown_on_demand(filled: Shell) -> None:
    summary = UserMessage(content="About Rome.", kind=InputKind.SUMMARY)
    filled.change(lambda ledger: ledger.compact("20260101_aa", 3, summary))
    assert "Where is Rome?" not in filled.out("show", "202601")
    full = filled.out("show", "202601", "--full")
    assert "no longer in the context" in full
    assert "Where is Rome?" in full
    assert "Summary of what came before" in full


def test_search_finds_messages(filled: Shell) -> None:
    found = filled.out("search", "where", "rome")
    assert "20260101_aa" in found
    assert "[Where] is [Rome]?" in found
    (hit,) = filled.out("search", "--json", "--role", "user", "rome").splitlines()
    assert json.loads(hit)["snippet"] == "Where is [Rome]?"
    assert filled.out("search", "--session", "202602", "rome") == "Nothing found.\n"


def test_a_session_is_exported_in_the_openai_format(filled: Shell, tmp_path: Path) -> None:
    lines = [json.loads(line) for line in filled.out("export", "Trip to Rome").splitlines()]
    assert [line["role"] for line in lines] == ["system", "user", "assistant", "tool", "assistant"]
    assert lines[2]["tool_calls"][0]["function"] == {"name": "search", "arguments": '{"q":"Rome"}'}
    assert lines[3] == {
        "role": "tool",
        "tool_call_id": "c1",
        "content": "Italy ***MY_API_KEY***",
    }
    file = tmp_path / "out.jsonl"
    assert filled.out("export", "202601", "-o", str(file)) == ""
    assert [json.loads(line) for line in file.read_text("utf-8").splitlines()] == lines
    assert file.stat().st_mode & 0o077 == 0


def test_all_sessions_are_exported_one_a_line(filled: Shell) -> None:
    lines = [json.loads(line) for line in filled.out("export", "--all").splitlines()]
    assert [(line["id"], len(line["messages"])) for line in lines] == [
        ("20260202_bb", 0),
        ("20260101_aa", 5),
    ]
    assert len(filled.out("export", "--all", "--source", "cli").splitlines()) == 1


def test_an_export_of_nothing_in_particular_is_refused(filled: Shell, tmp_path: Path) -> None:
    unwritable = tmp_path / "nowhere" / "x"
    assert "use --all" in filled.fails(UsageError, "export").message
    assert "use --all" in filled.fails(UsageError, "export", "202601", "--all").message
    refused = filled.fails(StoreError, "export", "202601", "-o", str(unwritable))
    assert str(unwritable) in refused.message
    assert not unwritable.exists()


def test_a_session_is_renamed(filled: Shell) -> None:
    assert "“Rome again”" in filled.out("rename", "202601", "Rome", "again")
    assert filled.ids("--title", "again") == ["20260101_aa"]
    filled.fails(Conflict, "rename", "202602", "Rome again")
    filled.fails(UsageError, "rename", "202602", " ")


def test_deleting_asks_first(filled: Shell) -> None:
    assert filled.run("delete", "202601", answer="n\n").exit_code == 0
    assert "Trip to Rome" in filled.out("delete", "202601", "--dry-run")
    assert len(filled.ids()) == 2
    assert "Deleted 1 session." in filled.out("delete", "202601", answer="y\n")
    assert filled.ids() == ["20260202_bb"]
    assert "Deleted 1 session." in filled.out("delete", "-y", "202602", "20260202_bb")
    assert filled.ids() == []
    filled.fails(NotFound, "delete", "--yes", "202601")


def test_no_answer_deletes_nothing(filled: Shell) -> None:
    assert filled.run("delete", "202601", answer="").exit_code == 1
    assert len(filled.ids()) == 2


def test_a_session_in_the_middle_of_a_turn_is_not_deleted(filled: Shell) -> None:
    with Owner.claim(filled.root / "run") as owner:
        new = turn("t9", session_id="20260101_aa", owner=owner.id)
        filled.change(lambda ledger: ledger.begin_turn(new))
        filled.fails(SessionBusy, "delete", "--yes", "202601")
        assert filled.out("prune", "--title", "rome", "--yes") == "There are no such sessions.\n"
        assert len(filled.ids()) == 2
    assert "Deleted" in filled.out("delete", "--yes", "202601"), "its owner is gone"


def test_pruning_needs_a_filter_and_asks_first(filled: Shell) -> None:
    filled.fails(UsageError, "prune")
    assert "Trip to Rome" in filled.out("prune", "--older-than", "30d", "--dry-run")
    filled.out("prune", "--older-than", "30d", answer="n\n")
    assert len(filled.ids()) == 2
    assert "Deleted 1 session." in filled.out("prune", "--older-than", "30d", "--yes")
    assert filled.ids() == ["20260202_bb"]


def test_stats_count(filled: Shell) -> None:
    stats = json.loads(filled.out("stats", "--json"))
    assert (stats["sessions"], stats["messages"]) == (2, 4)
    assert "telegram 1" in filled.out("stats")


def test_a_broken_configuration_does_not_hide_the_sessions(filled: Shell) -> None:
    (filled.root / "config.yaml").write_text("model: [", encoding="utf-8")
    assert len(filled.ids()) == 2
    assert "***MY_API_KEY***" in filled.out("show", "202601")


def hermes(shell: Shell, command_line: str, **environ: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        ["sh", "-c", command_line],
        capture_output=True,
        check=False,
        timeout=30,
        env={
            "HERMES_HOME": str(shell.root),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}/usr/bin{os.pathsep}/bin",
            **environ,
        },
    )


def test_a_terminal_without_unicode_is_served(filled: Shell) -> None:
    ran = hermes(filled, "hermes sessions show 202601", PYTHONIOENCODING="ascii")
    assert ran.returncode == 0, ran.stderr
    assert b"In Italy [31m\\u2624." in ran.stdout
    exported = hermes(filled, "hermes sessions export 202601", PYTHONIOENCODING="ascii")
    assert "☤".encode() in exported.stdout, "data is always UTF-8"


def test_a_reader_that_leaves_early_is_no_error(filled: Shell) -> None:
    async def many(ledger: Ledger) -> None:
        for n in range(40):
            await say(ledger, "x" * 5000, session_id="20260202_bb", turn_id=f"m{n}")

    filled.change(many)
    ran = hermes(filled, "hermes sessions export --all | head -c 10; hermes sessions list | true")
    assert ran.stderr == b""
    assert ran.stdout == b'{"id":"202'
