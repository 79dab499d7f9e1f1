"""`hermes approvals test` says what would happen and runs nothing."""

import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from fakes.command_corpus import read_corpus
from hermes.cli.commands.approvals import command


def ask(home: Path, *arguments: str, stdin: str = "") -> list[tuple[str, str]]:
    environ = {"HERMES_HOME": str(home), "HOME": str(home.parent)}
    result = CliRunner().invoke(command, ["test", *arguments], input=stdin, env=environ)
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    return [(gate, reason) for gate, _, reason in (line.partition("\t") for line in lines)]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    root = tmp_path / "user" / ".hermes"
    root.mkdir(parents=True)
    return root


def test_one_command_gets_one_line_and_does_not_run(home: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    ((gate, reason),) = ask(home, f"rm -rf {victim}")
    assert gate == "ask"
    assert reason
    assert victim.exists()


def test_harmless_commands_are_allowed_without_a_reason(home: Path) -> None:
    assert ask(home, "ls -la") == [("allow", "")]


def test_words_are_joined_to_a_command(home: Path) -> None:
    assert ask(home, "git", "push", "--force")[0][0] == "ask"


def test_a_dash_reads_one_command_a_line(home: Path) -> None:
    verdicts = ask(home, "-", stdin="ls\nrm -rf /\n\ngit push -f\n")
    assert [gate for gate, _ in verdicts] == ["allow", "block", "allow", "ask"]


def test_the_allowlist_and_the_deny_list_of_the_configuration_apply(home: Path) -> None:
    (home / "config.yaml").write_text(
        "command_allowlist: ['rm -rf build']\napprovals: {deny: ['curl *'], mode: 'off'}\n"
    )
    assert ask(home, "rm -rf build")[0][0] == "allow"
    assert ask(home, "rm -rf dist")[0][0] == "ask"
    ((gate, reason),) = ask(home, "curl https://example.com")
    assert gate == "block"
    assert "approvals.deny" in reason


def test_ten_thousand_lines_are_quick(home: Path) -> None:
    plain = [s.command for s in read_corpus("harmless") if s.command.isprintable()]
    lines = (plain * 20)[:10_000]
    started = time.process_time()
    verdicts = ask(home, "-", stdin="\n".join(lines) + "\n")
    assert len(verdicts) == 10_000
    assert time.process_time() - started < 20
