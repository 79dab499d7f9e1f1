"""The fake Telegram in a process of its own, for tests that kill the gateway."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from fakes.telegram_world import Seen

__all__ = ["RemoteTelegram", "telegram_process"]


class RemoteTelegram:
    """Drives a fake Telegram over its control paths; the names are those of `FakeTelegram`."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.base_url = f"http://127.0.0.1:{port}"

    async def control(self, operation: str, **given: Any) -> Any:
        """Call one control operation and return its result."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            body = json.dumps(given).encode()
            writer.write(
                f"POST /__control/{operation} HTTP/1.1\r\nconnection: close\r\n"
                f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode()
            )
            writer.write(body)
            answer = await reader.read()
        finally:
            writer.close()
        return json.loads(answer.partition(b"\r\n\r\n")[2])

    async def say(self, chat_id: int, user_id: int | None = None, text: str = "") -> int:
        number = await self.control("say", chat_id=chat_id, user_id=user_id, text=text)
        assert isinstance(number, int)
        return number

    async def visible(self, chat_id: int) -> list[Seen]:
        return msgspec.convert(await self.control("visible", chat_id=chat_id), list[Seen])

    async def replies(self, chat_id: int) -> list[Seen]:
        return [seen for seen in await self.visible(chat_id) if seen.from_bot]

    async def stats(self) -> dict[str, Any]:
        return dict(await self.control("stats"))

    async def until(
        self, condition: Callable[[dict[str, Any]], bool], seconds: float = 30.0
    ) -> dict[str, Any]:
        """Wait until the stats satisfy `condition`; return them."""
        async with asyncio.timeout(seconds):
            stats = await self.stats()
            while not condition(stats):
                stats = dict(await self.control("change"))
        return stats


@asynccontextmanager
async def telegram_process(*options: str) -> AsyncIterator[RemoteTelegram]:
    """Run the fake as a process for the length of the body."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "fakes.telegram",
        *options,
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parent.parent,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(20):
            port = int(await process.stdout.readline())
        yield RemoteTelegram(port)
    finally:
        process.kill()
        await process.wait()
