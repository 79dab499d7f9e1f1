"""Processes that write to a ledger for ever and say so after each commit.

    python ledger_child.py

Each line `<home> <name> <pipe>` on standard input forks one such process, whose
id is the answer on standard output; forking is much quicker than starting. The
process writes a line to its pipe after each commit: `admit <turn>`,
`begin <turn>`, `reply <turn>`, `result <turn> <call>`, `end <turn>`.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from fakes.ledgers import arrival, reply, result, session, turn
from hermes.domain.turn import TurnState
from hermes.state.sqlite.ledger import SqliteLedger

PIPE = 1


def say(*words: str) -> None:
    os.write(PIPE, (" ".join(words) + "\n").encode())


async def work(ledger: SqliteLedger, name: str) -> None:
    session_id = f"session-{name}"
    await ledger.create_session(session(session_id))
    number = 0
    while True:
        number += 1
        turn_id = f"{name}-{number}"
        entry = (await ledger.admit(arrival(turn_id, session_id=session_id))).entry
        say("admit", turn_id)
        await ledger.begin_turn(turn(turn_id, session_id=session_id, inbox_ids=(entry.id,)))
        say("begin", turn_id)
        await ledger.record_reply(turn_id, reply(f"call {turn_id}", "a", "b"), None, 3.0)
        say("reply", turn_id)
        async with asyncio.TaskGroup() as group:
            for call in ("b", "a"):
                group.create_task(finish_call(ledger, turn_id, call))
        await ledger.finish_turn(turn_id, TurnState.DONE, None, 5.0)
        say("end", turn_id)


async def finish_call(ledger: SqliteLedger, turn_id: str, call: str) -> None:
    await ledger.record_result(turn_id, result(call, f"{turn_id} {call}"), 4.0)
    say("result", turn_id, call)


async def main(home: Path, name: str) -> None:
    ledger = await SqliteLedger.open(home / "state.db", backups=home / "backups")
    async with asyncio.TaskGroup() as group:
        for lane in range(3):
            group.create_task(work(ledger, f"{name}-{lane}"))


def fork_writers() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        home, name, pipe = line.split()
        pid = os.fork()
        if pid == 0:
            os.dup2(os.open(pipe, os.O_WRONLY), PIPE)
            asyncio.run(main(Path(home), name))
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    fork_writers()
