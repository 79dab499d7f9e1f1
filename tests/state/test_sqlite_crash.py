"""What was acknowledged is there, whenever and however often a process is killed."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.ledgers import damage, texts
from hermes.domain.session import StoredMessage
from hermes.state.sqlite.ledger import SqliteLedger

TESTS = Path(__file__).parents[1]
CHILDREN = 3
ROUNDS = 15


class Nursery:
    """Starts processes that write to the ledger of `home`."""

    def __init__(self, home: Path, zygote: subprocess.Popen[str]) -> None:
        self.home = home
        self._zygote = zygote

    def start(self, name: str) -> tuple[int, int]:
        """Return the process id and the pipe that acknowledgements come from."""
        pipe = self.home / f"{name}.pipe"
        os.mkfifo(pipe)
        assert self._zygote.stdin is not None
        assert self._zygote.stdout is not None
        self._zygote.stdin.write(f"{self.home} {name} {pipe}\n")
        self._zygote.stdin.flush()
        pid = int(self._zygote.stdout.readline())
        return pid, os.open(pipe, os.O_RDONLY)


@pytest.fixture
def nursery(tmp_path: Path) -> Iterator[Nursery]:
    with (
        (tmp_path / "errors").open("wb") as errors,
        subprocess.Popen(
            [sys.executable, str(TESTS / "fakes" / "ledger_child.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={"PYTHONPATH": str(TESTS)},
        ) as zygote,
    ):
        yield Nursery(tmp_path, zygote)
    assert (tmp_path / "errors").read_text() == ""


def kill_after(pid: int, pipe: int, lines: int) -> list[str]:
    """Let the process make some commits, kill it, and return what it acknowledged."""
    with os.fdopen(pipe, "rb") as acknowledged:
        seen = [acknowledged.readline() for _ in range(lines)]
        os.kill(pid, signal.SIGKILL)
        seen += acknowledged.readlines()
    return b"".join(seen).decode().splitlines()


async def test_every_acknowledged_write_survives_kill_9(nursery: Nursery) -> None:
    rng = random.Random(4)
    acknowledged: list[str] = []
    for n in range(ROUNDS):
        # Several at once: they share the database like gateway and terminal do.
        children = [nursery.start(f"p{n}x{i}") for i in range(CHILDREN)]
        for pid, pipe in children:
            acknowledged += kill_after(pid, pipe, rng.randint(1, 60))
    assert len(acknowledged) > CHILDREN * ROUNDS

    home = nursery.home
    ledger = await SqliteLedger.open(home / "state.db", backups=home / "backups")
    assert damage(home / "state.db") == []
    names = {session_of(line) for line in acknowledged}
    histories = {name: await ledger.history(name) for name in names}
    missing = [
        line
        for line in acknowledged
        if not await present(ledger, histories[session_of(line)], line)
    ]
    assert missing == []
    open_turns = await ledger.open_turns()
    assert len({turn.session_id for turn in open_turns}) == len(open_turns)
    await ledger.close()


def session_of(line: str) -> str:
    return f"session-{line.split(' ')[1].rpartition('-')[0]}"


async def present(ledger: SqliteLedger, history: list[StoredMessage], line: str) -> bool:
    verb, turn_id, *call = line.split(" ")
    found = await ledger.turn(turn_id)
    if verb == "admit":
        waiting = {entry.message.native_id for entry in await ledger.waiting(session_of(line))}
        return (turn_id in waiting) != (found is not None)
    if found is None:
        return False
    if verb == "end":
        return found.finished_at is not None
    said = texts([m for m in history if m.turn_id == turn_id])
    expected = {"begin": "hello", "reply": f"call {turn_id}"}
    wanted = expected.get(verb) or f"{turn_id} {call[0]}"
    return said.count(wanted) == 1 and sorted(said[2:]) == said[2:]
