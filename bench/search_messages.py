"""How long a search takes over many messages.

    python bench/search_messages.py [--messages 1000000] [--db FILE]

The text is drawn from a vocabulary with Zipf's law, so a few words are in most
messages. `--db` keeps the database for another run.
"""

import argparse
import asyncio
import random
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from hermes.domain.ports.ledger import SearchQuery
from hermes.domain.session import NewSession
from hermes.state.sqlite.ledger import SqliteLedger

HAN = "的一是不了人我在有他这为之大来以个中上们到说国和地也子时道出而要于就下得可你年生数据库问题"


def vocabulary(size: int, rng: random.Random) -> list[str]:
    letters = "etaoinshrdlucmfwypvbgkqjxz"
    return ["".join(rng.choices(letters, k=rng.randint(3, 10))) for _ in range(size)]


async def fill(path: Path, count: int) -> None:
    ledger = await SqliteLedger.open(path, backups=path.parent / "backups")
    rng = random.Random(7)
    words = vocabulary(50_000, rng)
    weights = [1 / (n + 1) for n in range(len(words))]
    sessions = max(1, count // 200)

    def batch(connection: sqlite3.Connection, start: int, size: int) -> None:
        drawn = rng.choices(words, weights, k=size * 40)
        rows = []
        for n in range(size):
            text = " ".join(drawn[n * 40 : n * 40 + rng.randint(8, 40)])
            if n % 20 == 0:
                text += " " + "".join(rng.choices(HAN, k=30))
            rows.append((f"s{(start + n) % sessions}", (start + n) // sessions, text))
        connection.executemany(
            "INSERT INTO messages (session_id, seq, role, content, kind, timestamp)"
            " VALUES (?, ?, 'user', ?, 'user', 1.0)",
            rows,
        )

    for n in range(sessions):
        new = NewSession(id=f"s{n}", agent_id="main", source="bench", started_at=float(n))
        await ledger.create_session(new)
    for start in range(0, count, 10_000):
        size = min(10_000, count - start)
        await ledger._write(lambda c, a=start, b=size: batch(c, a, b))  # type: ignore[misc] # noqa: SLF001
    started = time.perf_counter()
    await ledger.search(SearchQuery(text="warm up"))
    print(f"indexed {count} messages in {time.perf_counter() - started:.0f} s")
    await ledger.close()


async def measure(path: Path, rounds: int) -> None:
    ledger = await SqliteLedger.open(path, backups=path.parent / "backups")
    rng = random.Random(7)
    words = vocabulary(50_000, rng)
    rng = random.Random(11)
    kinds: dict[str, Callable[[], str]] = {
        "most frequent word": lambda: words[rng.randint(0, 4)],
        "two frequent words": lambda: f"{words[rng.randint(0, 9)]} {words[rng.randint(10, 30)]}",
        "ordinary word": lambda: words[rng.randint(100, 2000)],
        "ordinary pair": lambda: f"{words[rng.randint(100, 999)]} {words[rng.randint(5, 99)]}",
        "rare word": lambda: words[rng.randint(20_000, 49_999)],
        "phrase": lambda: f'"{words[rng.randint(0, 50)]} {words[rng.randint(0, 50)]}"',
        "part of a word": lambda: words[rng.randint(1000, 30_000)][1:6],
        "Han, three": lambda: "".join(rng.choices(HAN, k=3)),
        "Han, two": lambda: "".join(rng.choices(HAN, k=2)),
        "nothing": lambda: "zzqqxxyy" + str(rng.randint(0, 999)),
    }
    everything: list[float] = []
    for name, make in kinds.items():
        times: list[float] = []
        hits = 0
        for _ in range(rounds):
            query = SearchQuery(text=make())
            start = time.perf_counter()
            hits += len(await ledger.search(query))
            times.append((time.perf_counter() - start) * 1000)
        everything += times
        report(name, times, hits / rounds)
    report("all", everything, 0)
    await ledger.close()


def report(name: str, times: list[float], hits: float) -> None:
    p95 = statistics.quantiles(times, n=20)[-1]
    print(f"{name:22} median {statistics.median(times):7.1f} ms  p95 {p95:7.1f}  hits {hits:.1f}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--db", type=Path, default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = options.db or Path(folder) / "state.db"
        if not path.exists():
            asyncio.run(fill(path, options.messages))
        print(f"database {path.stat().st_size / 1e6:.0f} MB")
        asyncio.run(measure(path, options.rounds))


if __name__ == "__main__":
    main()
