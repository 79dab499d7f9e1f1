"""The store: durable appends a second, and search over many messages."""

import asyncio
import re
import sys
from pathlib import Path

from bench.harness import Figure, Job
from bench.ledger_appends import appends, baseline

__all__ = ["run"]

CALLERS = 64
SUMMARY = re.compile(r"^all\s+median\s+([\d.]+) ms\s+p95\s+([\d.]+)", re.MULTILINE)


async def run(job: Job) -> list[Figure]:
    seconds = 0.3 if job.quick else 3.0
    bare = await asyncio.to_thread(baseline, job.folder, seconds)
    rate = await appends(job.folder, CALLERS, seconds, usage=False)
    messages = job.pick(1_000_000, 2_000)
    found = await _search(messages, job.pick(60, 5))
    note = "" if messages == 1_000_000 else f"over {messages:,} messages only"
    return [
        Figure(key="search_p95", measured=found, note=note),
        Figure(key="appends", measured=rate, baseline=bare, note=f"{CALLERS} callers"),
    ]


async def _search(messages: int, rounds: int) -> float:
    """Run the search bench as the program it is; return its p95 over all kinds of queries."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(Path(__file__).with_name("search_messages.py")),
        f"--messages={messages}",
        f"--rounds={rounds}",
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    summary = SUMMARY.search(output.decode())
    if summary is None:
        raise RuntimeError(f"no summary in: {output.decode()}")
    return float(summary[2])
