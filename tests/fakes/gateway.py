"""A real gateway process between a fake Telegram and a fake model."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fakes.command import Hermes
from fakes.package import install
from fakes.telegram import TOKEN

UNPACED = """
from msgspec.structs import replace

from hermes.domain.platforms import Limits, Rate
from hermes.entry.chat.telegram.manifest import PLATFORM as TELEGRAM

limits = Limits(private=Rate(), group=Rate())
PLATFORM = replace(TELEGRAM, capabilities=replace(TELEGRAM.capabilities, limits=limits))
"""


def unpaced(folder: Path) -> dict[str, str]:
    """Return variables for a gateway that takes Telegram for a platform without limits.

    Where the pace is not the subject nobody need wait for it.
    """
    points = "[hermes.platforms]\ntelegram = unpaced_telegram:PLATFORM\n"
    package = install(folder / "unpaced", "unpaced_telegram", UNPACED, points)
    return {"PYTHONPATH": package}


def gateway_config(telegram_url: str, **more: Any) -> dict[str, Any]:
    """Return a configuration with the fake Telegram, open to everybody."""
    platform = {
        "enabled": True,
        "token": TOKEN,
        "allow_all_users": True,
        "extra": {"base_url": telegram_url, "poll_timeout": 2},
    }
    titles = {"title_generation": {"enabled": False}}
    return {"platforms": {"telegram": platform}, "auxiliary": titles, **more}


class GatewayProcess:
    """`hermes gateway run`, which tests start, stop and kill."""

    def __init__(self, hermes: Hermes) -> None:
        self.hermes = hermes
        self.process: asyncio.subprocess.Process | None = None
        self.errors = ""

    async def start(self, *options: str) -> None:
        log = (self.hermes.folder / "gateway.err").open("ab")
        self.process = await asyncio.create_subprocess_exec(
            *self.hermes.argv("gateway", "run", *options),
            cwd=self.hermes.work,
            env=self.hermes.environ,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        log.close()

    async def kill(self) -> None:
        """End it like a power cut."""
        assert self.process is not None
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to end and return its exit code."""
        assert self.process is not None
        if self.process.returncode is None:
            self.process.send_signal(number)
        async with asyncio.timeout(30):
            return await self.process.wait()

    def log(self) -> str:
        return (self.hermes.folder / "gateway.err").read_text(encoding="utf-8")


@asynccontextmanager
async def running_gateway(
    folder: Path,
    model_url: str,
    telegram_url: str,
    environ: Any = None,
    **config: Any,
) -> AsyncIterator[GatewayProcess]:
    """Run a gateway for the body of the `with`."""
    hermes = Hermes(folder, model_url, gateway_config(telegram_url, **config))
    hermes.environ |= environ or {}
    gateway = GatewayProcess(hermes)
    await gateway.start()
    try:
        yield gateway
    finally:
        await gateway.kill()
