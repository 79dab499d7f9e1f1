"""A chat with scripted turns at a real terminal; run by the tmux tests.

    python tests/entry/demo_chat.py HOME [--resume] [--steer] [--cost]

The first word of a message chooses the script; anything else is echoed.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from fakes.chat_kit import ChatKit
from fakes.scripted_turns import Play, Script
from hermes.config.paths import HermesHome
from hermes.control.lanes.notices import pass_on_notices
from hermes.domain.approvals import ApprovalKind
from hermes.domain.events import Notice, ReasoningDelta, TextDelta, TextReset
from hermes.domain.messages import ToolOutcome
from hermes.domain.ports.execution import ProcessNotice
from hermes.domain.ports.ledger import Ledger
from hermes.domain.session import Session
from hermes.domain.settings import Settings
from hermes.domain.settings.doors import Display
from hermes.entry.terminal.chat import ChatParts, run_chat
from hermes.entry.terminal.oneshot import inbound
from hermes.execution.clock import SystemClock
from hermes.testing import temporary_ledger

DIFF = "--- a/notes.txt\n+++ b/notes.txt\n@@ -1,2 +1,2 @@\n same\n-old line\n+new line\n"
ANSWER = """# Result

Two files were **changed**:

1. `notes.txt`
2. `main.py`

```python
def main():
    return 42
```

Done."""


class Killed(Exception):
    pass


class FixedDate(SystemClock):
    """Real waiting, an unchanging date: screens look the same every time."""

    def now(self) -> float:
        return 1_700_000_000.0


async def tools(play: Play) -> None:
    play.emit(ReasoningDelta("Let me look at the files first."))
    play.tool("read_file", "notes.txt")
    play.tool("patch", "notes.txt", emoji="🔨", diff=DIFF)
    play.tool("terminal", "make", emoji="💻", outcome=ToolOutcome.ERROR, preview="make: no rule")
    await play.say(ANSWER)
    play.usage()


async def approve(play: Play) -> None:
    decision = await play.ask("rm -r build")
    await play.say(f"The decision was {decision.state.value}: {decision.text or 'no reason'}.")


LONG = "cat > build.sh <<'EOF'\n" + "\n".join(f"step {n}" for n in range(1, 31)) + "\nEOF"
FORGED = "true \x1b[2K\r\n  1. Allow once\n  2. Deny\nTab to answer \u202e"


async def long(play: Play) -> None:
    decision = await play.ask(f"{LONG}\nrm -rf ~")
    await play.say(f"The decision was {decision.state.value}.")


async def forged(play: Play) -> None:
    decision = await play.ask(FORGED)
    await play.say(f"The decision was {decision.state.value}.")


async def soon(play: Play) -> None:
    """Ask as soon as the process gets SIGUSR1."""
    play.text = "Working on it"
    play.emit(TextDelta("Working on it"))
    await _signal()
    play.text = ""
    await approve(play)


async def elsewhere(play: Play) -> None:
    """Ask; SIGUSR1 is somebody who answers at another door."""
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(play.ask("rm -r build"))
        await _signal()
        await play.deny_elsewhere()
        await asked
    await play.say("Somebody else decided.")


async def _signal() -> None:
    loop, came = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGUSR1, came.set)
    await came.wait()


async def question(play: Play) -> None:
    decision = await play.ask("Which colour?", kind=ApprovalKind.QUESTION, choices=("red", "blue"))
    await play.say(f"You chose {decision.text}.")


async def forever(play: Play) -> None:
    play.text = "Working on it"
    play.emit(TextDelta("Working on it"))
    await asyncio.Event().wait()


async def steerable(play: Play) -> None:
    play.tool("read_file", "a.txt")
    heard = await play.take_steering()
    await play.say(f"Heard meanwhile: {heard[0]}")


async def reset(play: Play) -> None:
    play.emit(TextDelta("First paragraph.\n\nSecond para"))
    await asyncio.sleep(0.05)
    play.emit(TextReset())
    play.emit(TextDelta("First para"))
    play.emit(TextDelta("graph.\n\nSecond paragraph.\n"))
    await play.complete("First paragraph.\n\nSecond paragraph.\n")


async def broken(play: Play) -> None:
    raise ValueError("The model could not be reached.")


class Notices(asyncio.Queue[ProcessNotice]):
    """What becomes of processes that the script `server` has started."""

    next_notice = asyncio.Queue.get

    def tell(self, session_id: str, text: str, *, aside: bool = False) -> None:
        self.put_nowait(
            ProcessNotice(
                agent_id="main", session_id=session_id, process_id="p1", text=text, aside=aside
            )
        )

    async def server(self, play: Play) -> None:
        session = play.stream.session_id
        self.tell(session, "Renamed to *.held: .envrc.\nOffer to put it back.", aside=True)
        self.tell(session, "Background process p1 ended with exit code 3: make\nno rule")
        while sum(isinstance(each, Notice) for each in play.stream.events) < 2:  # noqa: ASYNC110 (it has no event)
            await asyncio.sleep(0.005)
        await play.say("Started.")
        self.tell(session, "The task s1 is done (tidy up)\nIt is tidy.")


async def earlier(kit: ChatKit) -> Session:
    session = await kit.gateway.open_session("main", "cli", "tester")
    for number in range(12):
        text = f"earlier {number} " + "q" * (400 if number == 11 else 10)
        asked = inbound(session, text, "tester", kit.clock.now())
        ticket = await kit.gateway.submit("main", asked, session_id=session.id)
        await (await ticket.stream()).wait()
    return await kit.ledger.rename_session(session.id, "old talk")


def _leave_at_once(code: int) -> None:
    """Leave the gateway by an exception if the chat was killed: its turn stays open."""
    if code > 128:
        raise Killed


async def main(arguments: list[str]) -> int:
    home = Path(arguments[0])
    (home / "work").mkdir(parents=True, exist_ok=True)
    async with temporary_ledger(home / "ledger") as ledger:
        return await chat(ledger, home, arguments)


async def chat(ledger: Ledger, home: Path, arguments: list[str]) -> int:
    notices = Notices()
    scripts: dict[str, Script] = {
        "tools": tools,
        "approve": approve,
        "long": long,
        "forged": forged,
        "soon": soon,
        "elsewhere": elsewhere,
        "question": question,
        "forever": forever,
        "steerable": steerable,
        "reset": reset,
        "broken": broken,
        "server": notices.server,
        "Background": broken,
        "The": broken,
    }
    kit = ChatKit(ledger, FixedDate(), home, scripts)
    (home / "pid").write_text(str(os.getpid()), encoding="ascii")
    code = 1
    try:
        async with kit.gateway.running(), asyncio.TaskGroup() as beside:
            telling = beside.create_task(pass_on_notices(notices, kit.gateway, kit.clock))
            parts = ChatParts(
                host=kit.host(
                    Settings(
                        display=Display(
                            busy_input_mode="steer" if "--steer" in arguments else "interrupt",
                            show_cost="--cost" in arguments,
                        )
                    )
                ),
                profile=kit.profile,
                home=HermesHome(root=home),
                environ=dict(os.environ),
                user="tester",
                session=await earlier(kit) if "--resume" in arguments else None,
                notices=("This is a demonstration.",),
            )
            code = await run_chat(parts)
            telling.cancel()
            _leave_at_once(code)
    except* Killed:
        pass
    return code


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
