"""The gateway as a process: how soon it runs, what it weighs idle, what its first turn adds.

A fake Telegram lives in this process and the fake model in its own. Started means
that the state file says `running`, which it does when the bot is connected.
"""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from bench.bare import BareClient
from bench.core import clean_environ, make_home
from bench.harness import Figure, Job, median, rss_kb, timed
from bench.model_server import ANSWER, model_process, script
from fakes.model_script import Step
from fakes.telegram import TOKEN, FakeTelegram
from hermes.control.supervision.health import GatewayPhase, read_gateway_state
from hermes.entry.chat.telegram.manifest import PLATFORM

__all__ = ["run"]

ROOT = Path(__file__).resolve().parent.parent
LONGEST = 30.0
LOOK = 0.002


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One gateway, from its start to its first answer."""

    start_ms: float
    idle_mb: float
    first_turn_ms: float


async def run(job: Job) -> list[Figure]:
    rounds = job.pick(7, 2)
    samples: list[Sample] = []
    nothing: list[float] = []
    bare: list[float] = []
    async with model_process(script(Step(text=ANSWER))) as model, FakeTelegram() as telegram:
        for number in range(rounds + 1):
            folder = job.folder / str(number)
            folder.mkdir()
            nothing.append(await timed(_nothing()))
            samples.append(await _sample(folder, model.base_url, telegram, chat=100 + number))
            body = (await model.requests())[-1]
            # A client of its own each time: the gateway's first turn connects anew, too.
            client = BareClient(model.base_url)
            bare.append((await client.ask(body)).end)
            await client.close()
    samples, nothing, bare = samples[1:], nothing[1:], bare[1:]
    waited = PLATFORM.batch_seconds * 1000
    return [
        Figure(
            key="gateway_start",
            measured=median([sample.start_ms for sample in samples]) / 1000,
            baseline=median(nothing) / 1000,
        ),
        Figure(
            key="gateway_first_turn",
            measured=median([sample.first_turn_ms for sample in samples]) - waited - median(bare),
            baseline=median(bare),
            note=f"without the {waited:.0f} ms in which more of the message may come",
        ),
        Figure(key="gateway_idle", measured=median([sample.idle_mb for sample in samples])),
    ]


async def _nothing() -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "pass")
    await process.wait()


async def _sample(folder: Path, model_url: str, telegram: FakeTelegram, chat: int) -> Sample:
    async with _gateway(folder, model_url, telegram) as (process, start_ms):
        idle_mb = rss_kb(process.pid) / 1024
        begun = time.perf_counter()
        telegram.say(chat, chat, "hello")
        await telegram.until(
            lambda: any(seen.text == ANSWER for seen in telegram.replies(chat)), LONGEST
        )
        first_turn_ms = (time.perf_counter() - begun) * 1000
    return Sample(start_ms=start_ms, idle_mb=idle_mb, first_turn_ms=first_turn_ms)


@asynccontextmanager
async def _gateway(
    folder: Path, model_url: str, telegram: FakeTelegram
) -> AsyncIterator[tuple[asyncio.subprocess.Process, float]]:
    """Run a gateway; yields it once it runs, with the milliseconds that took."""
    home = make_home(folder, model_url)
    config = home.root / "config.yaml"
    settings = {
        "enabled": True,
        "token": TOKEN,
        "allow_all_users": True,
        "extra": {"base_url": telegram.base_url, "poll_timeout": 2},
    }
    platforms = msgspec.json.encode({"telegram": settings}).decode()
    config.write_text(
        f"{config.read_text(encoding='utf-8')}platforms: {platforms}\n", encoding="utf-8"
    )
    begun = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).with_name("hermes")),
        "gateway",
        "run",
        cwd=folder,
        env=clean_environ(home) | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
    )
    try:
        await _until_running(home.root / "gateway_state.json")
        yield process, (time.perf_counter() - begun) * 1000
    finally:
        process.terminate()
        await process.wait()


async def _until_running(path: Path) -> None:
    async with asyncio.timeout(LONGEST):
        while True:
            state = read_gateway_state(path)
            if state is not None and state.gateway_state == GatewayPhase.RUNNING:
                return
            await asyncio.sleep(LOOK)
