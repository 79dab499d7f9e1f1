"""Durable message appends a second, against one bare statement per commit.

The baseline is one SQLite connection, one INSERT of the same text per commit,
same settings (WAL, synchronous=FULL), in the same run on the same disk.

    python bench/ledger_appends.py [--callers 64] [--seconds 3]
"""

import argparse
import asyncio
import sqlite3
import tempfile
import time
from pathlib import Path

from hermes.domain.messages import AssistantMessage
from hermes.domain.session import NewSession
from hermes.domain.turn import NewTurn
from hermes.domain.usage import Usage, UsageRecord
from hermes.state.sqlite.ledger import SqliteLedger

TEXT = "The quick brown fox jumps over the lazy dog. " * 5


def baseline(folder: Path, seconds: float) -> float:
    connection = sqlite3.connect(folder / "bare.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE m (id INTEGER PRIMARY KEY, text TEXT)")
    count, start = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds:
        connection.execute("INSERT INTO m (text) VALUES (?)", (TEXT,))
        count += 1
    connection.close()
    return count / elapsed


async def appends(folder: Path, callers: int, seconds: float, *, usage: bool) -> float:
    path = folder / f"ledger-{callers}-{usage}.db"
    ledger = await SqliteLedger.open(path, backups=folder / "backups")
    counts = [0] * callers
    for n in range(callers):
        new = NewSession(id=f"s{n}", agent_id="main", source="bench", started_at=0.0)
        await ledger.create_session(new)
        await ledger.begin_turn(
            NewTurn(id=f"t{n}", session_id=f"s{n}", owner="bench", inputs=(), at=0.0)
        )
    stop = time.perf_counter() + seconds

    async def caller(n: int) -> None:
        record = UsageRecord(
            session_id=f"s{n}",
            turn_id=f"t{n}",
            agent_id="main",
            provider="p",
            model="m",
            task="turn",
            usage=Usage(input_tokens=100, output_tokens=20),
            cost_usd=0.001,
            at=1.0,
        )
        while time.perf_counter() < stop:
            await ledger.record_reply(
                f"t{n}", AssistantMessage(text=TEXT), record if usage else None, 1.0
            )
            counts[n] += 1

    start = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for n in range(callers):
            group.create_task(caller(n))
    elapsed = time.perf_counter() - start
    await ledger.close()
    return sum(counts) / elapsed


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--callers", type=int, nargs="*", default=[1, 16, 64, 256])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--dir", type=Path, default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.dir) as name:
        folder = Path(name)
        bare = baseline(folder, options.seconds)
        print(f"bare INSERT, one per commit        {bare:9.0f}/s  1.0x")
        for callers in options.callers:
            for usage in (False, True):
                rate = asyncio.run(appends(folder, callers, options.seconds, usage=usage))
                label = f"{callers} callers, {'with' if usage else 'without'} usage"
                print(f"{label:34} {rate:9.0f}/s  {rate / bare:.1f}x")


if __name__ == "__main__":
    main()
