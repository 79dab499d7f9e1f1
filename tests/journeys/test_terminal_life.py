"""The real command at a real terminal: turns that outlive a process, directories, leaving."""

import asyncio
import os
import re
import shlex
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fakes.asking_child import asked_and_killed
from fakes.command import Hermes
from fakes.model import Call, FakeModelServer, Rule, Script, Step
from fakes.tmux import Tmux

pytestmark = [
    pytest.mark.xdist_group("tmux"),
    pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed"),
]
QUIET = {"auxiliary": {"title_generation": {"enabled": False}}}


def commands_of(parent: int) -> list[str]:
    """Return the command lines of what a process has started."""
    children = Path(f"/proc/{parent}/task/{parent}/children")
    try:
        numbers = children.read_text(encoding="ascii").split()
        lines = [Path(f"/proc/{each}/cmdline").read_bytes() for each in numbers]
    except OSError:
        return []
    return [line.replace(b"\0", b" ").decode().strip() for line in lines]


class Screen:
    """A terminal in which commands of one home are run, read without blocking the loop."""

    def __init__(self, hermes: Hermes, folder: Path) -> None:
        self.hermes = hermes
        self.tmux = Tmux(hermes.folder, columns=90, rows=40)
        self._folder = folder

    def run(self, *arguments: str, environ: str = "", folder: Path | None = None) -> None:
        own = " ".join(f"{k}={shlex.quote(v)}" for k, v in self.hermes.environ.items())
        fixed = f"{own} LC_ALL=C.UTF-8 TERM=screen-256color {environ}"
        command = shlex.join(self.hermes.argv(*arguments))
        self.tmux.run(f"cd {folder or self._folder} && {fixed} {command}; cd {self.tmux.folder}")

    async def seen(self, wanted: str | Callable[[str], bool]) -> str:
        return await asyncio.to_thread(self.tmux.wait_for, wanted)

    async def typed(self, text: str) -> None:
        await asyncio.to_thread(self.tmux.type, text)
        await asyncio.to_thread(self.tmux.keys, "Enter")


@pytest.fixture
def screens() -> Iterator[Callable[[Hermes], Screen]]:
    opened: list[Screen] = []

    def begin(hermes: Hermes) -> Screen:
        opened.append(Screen(hermes, hermes.work))
        return opened[-1]

    yield begin
    for each in opened:
        each.tmux.close()


def cleaning() -> Script:
    """Look, then ask before something is deleted, then answer."""
    look = Call(name="terminal", arguments={"command": "echo looking"})
    wipe = Call(name="terminal", arguments={"command": "rm -rf tmp && echo gone >> marks"})
    steps = [
        Step(text="First I look.", calls=[look]),
        Step(text="Now I delete it.", calls=[wipe]),
        Step(text="All clean."),
    ]
    return Script(rules=[Rule(contains="clean up", steps=steps)], default=Step(text="Hello."))


async def test_a_turn_of_a_killed_process_goes_on_before_the_persons_eyes(
    tmp_path: Path, screens: Callable[[Hermes], Screen]
) -> None:
    async with FakeModelServer(cleaning()) as server:
        hermes = Hermes(tmp_path, server.base_url, QUIET)
        await asked_and_killed(hermes)
        screen = screens(hermes)
        screen.run("-c")
        shown = await screen.seen("Tab to answer")
        assert "(no answer)" not in shown
        for part in ("clean up", "resuming", "First I look.", "run echo looking", "Now I delete"):
            assert part in shown, shown
        assert shown.index("First I look") < shown.index("echo looking") < shown.index("Now I del")
        await asyncio.to_thread(screen.tmux.choose, 1)
        await screen.seen("All clean.")
    assert (hermes.work / "marks").read_text(encoding="utf-8") == "gone\n"


async def test_what_was_cut_off_stays_on_the_screen(
    tmp_path: Path, screens: Callable[[Hermes], Screen]
) -> None:
    wait = Call(name="terminal", arguments={"command": "sleep 987"})
    steps = [Step(text="Now I wait.", calls=[wait]), Step(text="Well. " * 9, stall="middle")]
    script = Script(rules=[Rule(contains="wait", steps=steps)])
    async with FakeModelServer(script) as server:
        hermes = Hermes(tmp_path, server.base_url, QUIET | {"terminal": {"backend": "local"}})
        screen = screens(hermes)
        screen.run("--yolo")
        await screen.seen("^❯$")
        await screen.typed("wait")
        await screen.seen("run sleep 987")
        [front] = await asyncio.to_thread(screen.tmux.programs)
        os.kill(front, signal.SIGKILL)
        await screen.seen("EXIT")
        screen.tmux.keys("stty sane; echo REA''DY", "C-j")
        await screen.seen("READY")
        screen.run("-c", "--yolo")
        await screen.seen(r"Now I wait.(.|\n)*run sleep 987 \[unknown\](.|\n)*^Well. Well.")
        screen.tmux.keys("C-d")
        shown = await screen.seen("EXIT 0")
    assert re.search(r"^Well. Well.*\n· interrupted$", shown, re.MULTILINE), shown


async def test_a_one_shot_tells_what_became_of_the_turn_it_finishes_first(tmp_path: Path) -> None:
    async with FakeModelServer(cleaning()) as server:
        hermes = Hermes(tmp_path, server.base_url, QUIET)
        await asked_and_killed(hermes)
        outcome = await hermes.run("-c", "-q", "hello?")
    assert outcome.out == "Hello.\n"
    notes = outcome.err
    order = ["First I look", "run echo looking", "Now I delete", "[refused]", "All clean."]
    assert [notes.index(each) for each in order] == sorted(notes.index(each) for each in order)


async def test_ctrl_c_denies_what_was_asked_and_says_so(
    tmp_path: Path, screens: Callable[[Hermes], Screen]
) -> None:
    async with FakeModelServer(cleaning()) as server:
        hermes = Hermes(tmp_path, server.base_url, QUIET)
        screen = screens(hermes)
        screen.run()
        await screen.typed("clean up")  # before there is a prompt
        await screen.seen("Tab to answer")
        screen.tmux.keys("C-c")
        await screen.seen(
            r"rm -rf tmp .*\[interrupted\]\n· denied: the turn was stopped\n· interrupted"
        )
        listed = await hermes.run("approvals", "list", "--all", "--json")
    assert '"denied"' in listed.out
    assert '"pending"' not in listed.out
    assert "the turn was stopped" in listed.out


async def test_leaving_does_not_wait_for_the_title(
    tmp_path: Path, screens: Callable[[Hermes], Screen]
) -> None:
    script = Script(rules=[Rule(contains="User: hello", steps=[Step(text="x", stall="before")])])
    async with FakeModelServer(script) as server:
        screen = screens(Hermes(tmp_path, server.base_url))
        screen.run()
        await screen.seen("^❯$")
        await screen.typed("hello")
        await screen.seen(r"^ok$(.|\n)*^❯$")
        while len(server.requests) < 2:
            server.arrived.clear()
            await server.arrived.wait()
        screen.tmux.keys("C-d")
        await screen.seen("EXIT 0")  # a title may take longer than this waits


async def test_a_failing_command_looks_failed_and_its_whole_output_can_be_seen(
    tmp_path: Path, screens: Callable[[Hermes], Screen]
) -> None:
    count = Call(name="terminal", arguments={"command": "seq 101 130; exit 3"})
    script = Script(rules=[Rule(contains="count", steps=[Step(calls=[count]), Step(text="Sad.")])])
    async with FakeModelServer(script) as server:
        hermes = Hermes(tmp_path, server.base_url, QUIET)
        screen = screens(hermes)
        screen.run()
        await screen.seen("^❯$")
        await screen.typed("count")
        shown = await screen.seen("Sad.")
        assert "[exit 3]" in shown
        assert "more lines: /output" in shown
        assert "130" in shown
        assert not re.search(r"^\W*101$", shown, re.MULTILINE)
        await screen.typed("/output")
        shown = await screen.seen(r"31 lines, also in ")
    assert all(str(number) in shown for number in range(105, 131))
    [path] = (hermes.home / "sessions" / "saved").iterdir()
    assert path.read_text(encoding="utf-8").startswith("101\n102\n")


async def test_a_conversation_goes_on_in_its_own_directory_and_says_so(
    tmp_path: Path, screens: Callable[[Hermes], Screen]
) -> None:
    where = Call(name="terminal", arguments={"command": "pwd"})
    script = Script(
        rules=[Rule(contains="where", steps=[Step(calls=[where]), Step(text="There.")])],
        default=Step(echo=True),
    )
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    async with FakeModelServer(script) as server:
        hermes = Hermes(tmp_path, server.base_url, QUIET)
        (hermes.work / "mine.txt").write_text("of the session\n", encoding="utf-8")
        await hermes.run("-q", "hello")
        screen = screens(hermes)
        screen.run("-c", folder=elsewhere)
        await screen.seen(
            lambda shown: "--no-restore-cwd" in "".join(shown.split()) and "\n❯\n" in shown
        )
        await screen.typed("read @file:mine.txt")
        await screen.seen(r"of the session(.|\n)*^❯$")
        await screen.typed("/new")
        await screen.seen("New conversation")
        await screen.typed("read @file:mine.txt again")
        await screen.seen(r"cannot be read(.|\n)*^❯$")  # it begins where the person is
        screen.tmux.keys("C-d")
        await screen.seen("EXIT 0")
        screen.run(folder=elsewhere)
        await screen.seen("^❯$")
        await screen.typed("here")
        await screen.seen(r"^here$(.|\n)*^❯$")
        await screen.typed("/resume")
        shown = await screen.seen("Which conversation should continue")
        assert "here ·" not in shown  # the open one is not offered
        screen.tmux.keys("2")
        await screen.seen(lambda shown: f"worksin{hermes.work}" in "".join(shown.split()))
        await screen.typed("where")
        await screen.seen("There.")
        results = [m for r in server.requests for m in r.body["messages"] if m["role"] == "tool"]
        assert results[-1]["content"].strip() == str(hermes.work)
        await screen.typed("/status")
        await screen.seen(rf"directory +{hermes.work.as_posix()[:40]}")
        screen.tmux.keys("C-d")
        await screen.seen("EXIT 0")
        screen.run("-c", "-q", "where", "--no-restore-cwd", folder=elsewhere)
        await screen.seen(lambda shown: "fromnowon" in "".join(shown.split()))
        await screen.seen("There.")
        results = [m for r in server.requests for m in r.body["messages"] if m["role"] == "tool"]
    assert results[-1]["content"].strip() == str(elsewhere)


async def leave_running(screen: "Screen", digit: str) -> None:
    """Press a digit until it is an answer: one that comes too soon is text in the input line."""
    typed = re.compile(rf"^❯ {digit}$", re.MULTILINE)
    while True:
        screen.tmux.keys(digit)
        shown = await screen.seen(lambda s: bool(typed.search(s)) or "left running" in s)
        if not typed.search(shown):
            return
        screen.tmux.keys("BSpace")
        await screen.seen(lambda s: not typed.search(s))


async def test_leaving_says_what_runs_in_the_background_and_offers_to_keep_it(
    tmp_path: Path, screens: Callable[[Hermes], Screen]
) -> None:
    serve = Call(name="terminal", arguments={"command": "sleep 4321", "background": True})
    script = Script(rules=[Rule(contains="serve", steps=[Step(calls=[serve]), Step(text="Up.")])])
    async with FakeModelServer(script) as server:
        hermes = Hermes(tmp_path, server.base_url, QUIET | {"terminal": {"backend": "local"}})
        screen = screens(hermes)
        screen.run("--yolo")
        await screen.seen("^❯$")
        await screen.typed("serve")
        await screen.seen("Up.")
        screen.tmux.keys("C-d")
        await screen.seen("Still running: a background process: sleep 4321")
        screen.tmux.keys("Escape")
        await screen.seen(lambda shown: "Still running" not in shown and "\n❯\n" in shown)
        screen.tmux.keys("C-d")
        await screen.seen("Still running")
        await leave_running(screen, "3")
        shown = await screen.seen(r"left running \(kill \d+ ends it\) · a background(.|\n)*EXIT 0")
        [owner] = [int(each) for each in re.findall(r"kill (\d+)", shown)]
        assert "sleep 4321" in "".join(await asyncio.to_thread(commands_of, owner))
        os.kill(owner, signal.SIGTERM)
        await asyncio.to_thread(screen.tmux.wait_for, lambda _: not commands_of(owner))
        screen.run("--yolo", environ="TERM=dumb")
        await screen.seen("^>$")
        await screen.typed("serve")
        await screen.seen(r"Up.\n>$")
        await screen.typed("/quit")
        await screen.seen("Still running")
        await screen.typed("2")
        await screen.seen(r"ended · a background process: sleep 4321(.|\n)*EXIT 0")
