"""What was acknowledged is there, whenever and however often the power goes."""

import random
import subprocess
import sys
from pathlib import Path

from fakes.ledgers import texts
from hermes.state.sqlite.ledger import SqliteLedger

TESTS = Path(__file__).parents[1]
CHILDREN = 3
ROUNDS = 11


def start(home: Path, name: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, str(TESTS / "fakes" / "ledger_child.py"), str(home), name],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"PYTHONPATH": str(TESTS), "PYTHONDONTWRITEBYTECODE": "1"},
    )


def kill_after(child: subprocess.Popen[bytes], lines: int) -> list[str]:
    """Let the child make some commits, kill it, and return what it acknowledged."""
    assert child.stdout is not None
    assert child.stderr is not None
    with child:
        seen = [child.stdout.readline() for _ in range(lines)]
        child.kill()
        whole = b"".join(seen) + child.stdout.read()
        errors = child.stderr.read().decode()
    assert "Traceback" not in errors, errors
    return whole.decode().split("\n")[:-1]


async def test_every_acknowledged_write_survives_kill_9(tmp_path: Path) -> None:
    rng = random.Random(4)
    acknowledged: list[str] = []
    for n in range(ROUNDS):
        # Several at once: they share the database like gateway and terminal do.
        children = [start(tmp_path, f"p{n}x{i}") for i in range(CHILDREN)]
        for child in children:
            acknowledged += kill_after(child, rng.randint(1, 60))
    assert len(acknowledged) > CHILDREN * ROUNDS

    ledger = await SqliteLedger.open(tmp_path / "state.db", backups=tmp_path / "backups")
    assert await ledger.check_integrity() == []
    missing = [line for line in acknowledged if not await present(ledger, line)]
    assert missing == []
    open_turns = {turn.session_id for turn in await ledger.open_turns()}
    assert len(open_turns) == len(await ledger.open_turns())
    await ledger.close()


async def present(ledger: SqliteLedger, line: str) -> bool:
    verb, turn_id, *rest = line.split(" ")
    session_id = f"session-{turn_id.rpartition('-')[0]}"
    found = await ledger.turn(turn_id)
    if verb == "admit":
        waiting = {entry.message.native_id for entry in await ledger.waiting(session_id)}
        return (turn_id in waiting) != (found is not None)
    if found is None:
        return False
    if verb == "end":
        return found.finished_at is not None
    said = texts([m for m in await ledger.history(session_id) if m.turn_id == turn_id])
    expected = {"begin": "hello", "reply": f"call {turn_id}"}
    wanted = expected.get(verb) or f"{turn_id} {rest[0]}"
    return said.count(wanted) == 1 and sorted(said[2:]) == said[2:]
