"""The command line itself: flags, help, completion, exit codes."""

import gc
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.command import Hermes
from fakes.hermes_cli import NO_SERVERS, hermes
from fakes.local_servers import model_server
from fakes.model import FakeModelServer, Script, Step
from fakes.tmux import Tmux
from hermes.cli.root import load_command


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.mark.parametrize(
    "arguments",
    [
        ("--yolo", "chat", "-q", "hi"),
        ("-m", "other-1", "chat", "-q", "hi"),
        ("-q", "hi", "chat", "-m", "other-1"),
        ("-Qm", "other-1", "-q", "hi"),
        ("chat", "--yolo", "-q", "hi"),
    ],
)
async def test_flags_may_stand_before_the_command(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    async with FakeModelServer(Script(default=Step(text="ok"))) as server:
        provider = {"providers": {"own": {"base_url": server.base_url}}}
        own = Hermes(tmp_path, server.base_url, provider)
        extra = ("--provider", "own") if "other-1" in str(arguments) else ()
        outcome = await own.run(*extra, *arguments)
        assert (outcome.code, outcome.out) == (0, "ok\n"), outcome.err
        model = "other-1" if extra else "fake-1"
        assert server.requests[0].body["model"] == model
        again = await own.run("-c", "chat", "-q", "again")
        assert again.code == 0, again.err
        assert "hi" in str(server.requests[-1].body) or "hi" in str(server.requests[1].body)


def test_flags_of_the_chat_are_refused_elsewhere(home: Path) -> None:
    done = hermes(home, "--yolo", "status")
    assert done.returncode == 2
    assert "--yolo goes with `hermes chat`" in done.stderr


def test_help_shows_the_chat_and_its_flags(home: Path) -> None:
    shown = hermes(home, "--help").stdout
    for word in ("chat", "--query", "--model", "--yolo", "--continue", "--toolsets", "completion"):
        assert word in shown


def test_an_unknown_toolset_is_an_error_that_names_the_known_ones(home: Path) -> None:
    done = hermes(home, "-t", "file,bogus", "-q", "hi")
    assert done.returncode == 2
    assert "`bogus`" in done.stderr
    assert "file" in done.stderr.split("->")[1]
    assert "terminal" in done.stderr.split("->")[1]


COMPLETING = """
eval "$(hermes completion bash)"
COMP_WORDS=({words}); COMP_CWORD={at}; COMP_LINE="{words}"
_hermes_completion hermes
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("hermes se", {"sessions", "setup"}),
        ("hermes --yo", {"--yolo"}),
        ("hermes sessions pr", {"prune"}),
        ("hermes --yolo ch", {"chat"}),
        ("hermes chat --max", {"--max-turns"}),
        ("hermes completion z", {"zsh"}),
    ],
)
def test_completion_works_in_a_real_bash(home: Path, words: str, found: set[str]) -> None:
    at = len(words.split()) - 1
    done = in_shell(home, "bash", COMPLETING.format(words=words, at=at))
    assert set(done.stdout.split()) == found, done.stderr


def in_shell(home: Path, shell: str, script: str) -> subprocess.CompletedProcess[str]:
    program = home.parent / "bin" / "hermes"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m hermes.cli "$@"\n', "utf-8")
    program.chmod(0o755)
    path = f"{program.parent}:{os.environ['PATH']}"
    environ = {"PATH": path, "HERMES_HOME": str(home), "HOME": str(home.parent)}
    file = home.parent / "script"
    file.write_text(script, "utf-8")
    return subprocess.run(
        [shell, str(file)], env=environ, capture_output=True, text=True, timeout=50, check=False
    )


@pytest.mark.parametrize(("shell", "mark"), [("zsh", "compdef"), ("fish", "complete ")])
def test_completion_for_other_shells(home: Path, shell: str, mark: str) -> None:
    assert mark in hermes(home, "completion", shell).stdout
    assert hermes(home, "completion", "cmd").returncode == 2


OTHER_SHELLS = {
    "fish": """
hermes completion fish | source
complete -C "hermes se"
complete -C "hermes sessions re"
""",
    "zsh": """
compdef() { : }
_describe() { print -rl -- ${(P)3} }
eval "$(hermes completion zsh)"
words=(hermes se); CURRENT=2; _hermes_completion
words=(hermes sessions re); CURRENT=3; _hermes_completion
""",
}


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_completion_works_where_these_shells_are(home: Path, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    done = in_shell(home, shell, OTHER_SHELLS[shell])
    found = dict(re.split("[\t:]", line, maxsplit=1) for line in done.stdout.splitlines())
    assert set(found) == {"sessions", "setup", "recover", "rename", "repair"}, done.stderr
    assert found["sessions"] == "List, show, search, export and tidy up conversations."


async def test_exit_codes_are_those_of_the_documentation(tmp_path: Path) -> None:
    config = {"model": {"provider": "opnrouter", "default": "x"}}
    assert (await Hermes(tmp_path, config=config).run("-q", "hi")).code == 78
    async with FakeModelServer(Script(default=Step(text="ok"))) as server:
        budget = {"budget": {"session_tokens": 0}}
        assert (await Hermes(tmp_path, server.base_url, budget).run("-q", "hi")).code == 6
    assert (await Hermes(tmp_path).run("-r", "nope", "-q", "hi")).code == 4
    assert (await Hermes(tmp_path).run("--nonsense")).code == 2


def test_the_first_start_asks_for_a_model_and_goes_on(home: Path) -> None:
    terminal = Tmux(home.parent, columns=120)
    try:
        with model_server(["mine-7b"]) as url:
            named = shlex.join(
                f"{k}={v}" for k, v in (NO_SERVERS | {"OLLAMA_BASE_URL": url}).items()
            )
            terminal.run(f"env HERMES_HOME={home} {named} {sys.executable} -m hermes.cli")
            terminal.wait_for("mine-7b.*ollama")
            assert "Welcome to Hermes" in terminal.screen()
            terminal.keys("Enter")
            terminal.wait_for("new session")
            assert "mine-7b (ollama) answers from now on" in terminal.screen()
            terminal.wait_for("^❯")
            terminal.type("/model")
            terminal.keys("Enter")
            terminal.wait_for("smollm2-135m.*embedded")
            terminal.wait_for("Another one: type its name")
            terminal.keys("Escape")
            terminal.wait_for(lambda screen: "Another one" not in screen)
            terminal.keys("C-d")
            terminal.wait_for("EXIT 0")
    finally:
        terminal.close()
    assert "provider: ollama" in (home / "config.yaml").read_text("utf-8")


def test_without_a_terminal_the_first_start_says_what_to_do(home: Path) -> None:
    for arguments in ((), ("-q", "hi")):
        done = hermes(home, *arguments)
        assert done.returncode == 78
        assert "hermes setup" in done.stderr


async def test_an_answer_loads_only_what_it_takes(tmp_path: Path) -> None:
    async with FakeModelServer(Script(default=Step(text="ok"))) as server:
        own = Hermes(tmp_path, server.base_url)
        own.environ["PYTHONPROFILEIMPORTTIME"] = "1"
        outcome = await own.run("chat", "-q", "hi")
    assert outcome.out == "ok\n", outcome.err
    loaded = {line.rpartition("|")[2].strip() for line in outcome.err.splitlines() if "|" in line}
    assert "hermes.agent.tools.terminal" in loaded
    unneeded = "hermes.execution.policy.judge hermes.entry.http.app prompt_toolkit rich ruamel"
    unneeded += " httpx httpcore2 h11 anyio uvicorn wsproto tomllib importlib.metadata"
    assert not loaded.intersection(unneeded.split())


def test_garbage_is_collected_again_once_a_command_is_loaded() -> None:
    gc.disable()
    try:
        load_command("chat")
        assert gc.isenabled()
    finally:
        gc.unfreeze()
        gc.enable()
