"""Typing ahead never answers: the real chat on a terminal, its time in the test's hands."""

import asyncio
import fcntl
import os
import struct
import sys
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import PipeInput, create_pipe_input

from fakes.chat_kit import ChatKit
from fakes.scripted_turns import Play
from hermes.config.paths import HermesHome
from hermes.domain.approvals import ApprovalKind, Choice, Decision
from hermes.domain.settings import Settings
from hermes.domain.settings.doors import Display
from hermes.entry.terminal.chat import ChatParts, run_chat
from hermes.testing import FakeClock, temporary_ledger

SENTENCES = (
    "also fix bug 12 please",
    "list the 3 files",
    "1",
    "3",
    "y\r",
    "yes 1\r1\r",
    "1\n2\n3\n",
    "a\tb\t1\r3\r",
    "\t",
    "/approve always\r",
    "/approve\r",
    "\x1b[200~1\r3\r\t1\r\x1b[201~",
    "\x1b[A\x1b[B\r",
    "\x1b\r",
)
LETTERS = st.text(alphabet="abc 123\r\n/yn", max_size=12)


class Terminal:
    """A chat on a pty, and the keys pressed in it."""

    def __init__(self, kit: ChatKit, clock: FakeClock, keys: PipeInput, master: int) -> None:
        self.kit = kit
        self.clock = clock
        self.asks = asyncio.Event()
        self.decided: asyncio.Queue[Decision] = asyncio.Queue()
        self._master = master
        self._keys = keys
        self._output = b""
        self._wrote = asyncio.Event()

    async def script(self, play: Play, kind: ApprovalKind = ApprovalKind.APPROVAL) -> None:
        await self.asks.wait()
        self.asks.clear()
        choices = ("red", "blue") if kind is ApprovalKind.QUESTION else tuple(Choice)
        self.decided.put_nowait(await play.ask("rm -rf build", kind=kind, choices=choices))

    async def question(self, play: Play) -> None:
        await self.script(play, ApprovalKind.QUESTION)

    async def press(self, keys: str, *, after: float = 0.0) -> None:
        """Press keys at once, so many seconds after the ones before."""
        self.clock.advance(after)
        self._keys.send_text(keys)
        unread = bytearray(4)
        while True:
            fcntl.ioctl(self._keys.fileno(), termios.FIONREAD, unread)
            if not struct.unpack("i", unread)[0]:
                break
            await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def seen(self, text: str) -> None:
        """Wait until the chat has written something."""
        async with asyncio.timeout(10):
            while text not in self._output.decode(errors="replace"):
                self._wrote.clear()
                await self._wrote.wait()

    def read(self) -> None:
        self._output += os.read(self._master, 65536)
        self._wrote.set()

    async def ask(self) -> None:
        self._output = b""
        self.asks.set()
        await self.seen("Tab")

    async def pending(self) -> int:
        return len(await self.kit.ledger.pending_approvals())

    async def deliberately(self, number: int) -> None:
        for key, pause in (("\t", 0.8), (str(number), 0.2), ("\r", 0.4)):
            await self.press(key, after=pause)

    async def decision(self) -> Decision:
        async with asyncio.timeout(10):
            return await self.decided.get()


@asynccontextmanager
async def chat(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Terminal]:
    folder.joinpath("work").mkdir(parents=True)
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))
    clock = FakeClock()
    with create_pipe_input() as keys, monkeypatch.context() as patch:
        patch.setattr(sys, "stdin", os.fdopen(os.dup(slave), "r", encoding="utf-8"))
        patch.setattr(sys, "stdout", os.fdopen(slave, "w", encoding="utf-8"))
        async with temporary_ledger(folder / "ledger") as ledger:
            scripts: dict[str, object] = {}
            kit = ChatKit(ledger, clock, folder, scripts)  # type: ignore[arg-type]
            terminal = Terminal(kit, clock, keys, master)
            scripts |= {"work": terminal.script, "wonder": terminal.question}
            parts = ChatParts(
                host=kit.host(Settings(display=Display(busy_input_mode="queue"))),
                profile=kit.profile,
                home=HermesHome(root=folder),
                environ={"TERM": "xterm", "LANG": "C.UTF-8"},
                user="tester",
            )
            loop = asyncio.get_running_loop()
            loop.add_reader(master, terminal.read)
            async with kit.gateway.running():
                with create_app_session(input=keys):
                    task = asyncio.ensure_future(run_chat(parts))
                await terminal.seen("demo")
                yield terminal
                await terminal.press("\x11")
                await task
            loop.remove_reader(master)
        sys.stdin.close()
        sys.stdout.close()
    os.close(master)


async def start(terminal: Terminal, word: str) -> None:
    await terminal.press(f"{word}\r", after=1.0)
    while not terminal.kit.runner.turns:  # noqa: ASYNC110 (it has no event)
        await asyncio.sleep(0.005)


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    before=st.one_of(st.sampled_from(SENTENCES), LETTERS),
    after=st.one_of(st.sampled_from(SENTENCES), LETTERS),
    pause=st.floats(0.0, 0.69),
    rhythm=st.floats(0.0, 0.6),
)
@example(before="also fix ", after="bug 12 please\r", pause=0.0, rhythm=0.1)
@example(before="list the ", after="3 files\r", pause=0.5, rhythm=0.2)
@example(before="/approve", after=" always\r", pause=0.3, rhythm=0.1)
async def test_typing_around_a_question_never_answers_it(
    before: str,
    after: str,
    pause: float,
    rhythm: float,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with chat(tmp_path_factory.mktemp("chat"), monkeypatch) as terminal:
        await start(terminal, "work")
        for key in [before] if "\x1b" in before else before:
            await terminal.press(key, after=rhythm)
        await terminal.ask()
        terminal.clock.advance(pause)
        for key in [after] if "\x1b" in after else after:
            await terminal.press(key, after=rhythm)

        assert await terminal.pending() == 1
        assert terminal.decided.empty()
        await terminal.deliberately(1)
        assert (await terminal.decision()).choice == "once"


@pytest.mark.parametrize("key", ["\t", "\x1b[B", "\x0e"])
@pytest.mark.parametrize("more", [2, 3, 4])
async def test_a_key_too_many_stops_at_the_last_choice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, more: int
) -> None:
    async with chat(tmp_path / "home", monkeypatch) as terminal:
        await start(terminal, "work")
        await terminal.ask()
        await terminal.press("\t", after=0.8)
        for _ in range(more):
            await terminal.press(key, after=0.4)
        await terminal.press("\r", after=0.4)
        assert terminal.decided.empty()
        for typed in ("n", "o", "\r"):
            await terminal.press(typed, after=0.4)
        decision = await terminal.decision()
        assert (decision.choice, decision.text) == ("deny", "no")


@pytest.mark.parametrize("text", SENTENCES)
@pytest.mark.parametrize("gap", [0.0, 5.0])
async def test_a_burst_never_answers_however_long_the_question_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, gap: float
) -> None:
    """A paste without brackets, or keys that a busy machine reads late and all at once."""
    async with chat(tmp_path / "home", monkeypatch) as terminal:
        await start(terminal, "work")
        await terminal.ask()

        await terminal.press(text if "/approve" not in text else f"so {text}", after=gap)

        assert await terminal.pending() == 1
        await terminal.deliberately(4)
        assert (await terminal.decision()).choice == "deny"


async def test_always_takes_a_second_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with chat(tmp_path / "home", monkeypatch) as terminal:
        await start(terminal, "work")
        await terminal.ask()

        await terminal.deliberately(3)
        await terminal.seen("Always allow this")
        await terminal.press("\r", after=0.1)
        await terminal.press("\r", after=5.0)
        assert await terminal.pending() == 1

        for key, pause in (("3", 0.4), ("\r", 0.4), ("2", 0.4), ("\r", 0.4)):
            await terminal.press(key, after=pause)
        assert (await terminal.decision()).choice == "always"


async def test_a_question_takes_a_line_begun_in_its_sight_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with chat(tmp_path / "home", monkeypatch) as terminal:
        await start(terminal, "wonder")
        await terminal.press("gre")
        await terminal.ask()
        await terminal.press("en\r", after=2.0)
        await terminal.press("2\r", after=0.2)
        assert await terminal.pending() == 1

        await terminal.press("t", after=1.0)
        await terminal.press("eal\r", after=0.1)

        assert (await terminal.decision()).text == "teal"


async def test_an_approval_that_expires_goes_and_the_text_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with chat(tmp_path / "home", monkeypatch) as terminal:
        await start(terminal, "work")
        await terminal.ask()
        await terminal.seen("denied in 5m 00s")
        await terminal.press("and then", after=1.0)

        terminal.clock.advance(300.0)
        assert (await terminal.decision()).state == "expired"
        await terminal.press(" rest\r", after=1.0)

        await terminal.seen("You said: and then rest")


async def test_an_approval_by_command_is_for_what_was_on_the_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with chat(tmp_path / "home", monkeypatch) as terminal:
        await start(terminal, "work")
        await terminal.press("/appr")
        await terminal.ask()
        await terminal.press("ove\r", after=2.0)
        await terminal.seen("appeared after that was typed")
        assert await terminal.pending() == 1

        await terminal.press("/", after=1.0)
        await terminal.press("approve\r", after=0.1)

        assert (await terminal.decision()).choice == "once"


async def test_a_paste_that_begins_with_a_tab_loses_none_of_its_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with chat(tmp_path / "home", monkeypatch) as terminal:
        await start(terminal, "work")
        await terminal.ask()

        await terminal.press("\t1 of 2 files\r", after=5.0)
        await terminal.deliberately(4)

        await terminal.seen("You said: 1 of 2 files")
