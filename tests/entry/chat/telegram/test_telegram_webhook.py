"""Webhook mode: Telegram calls, and is answered when the inbox has the update."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fakes.telegram import FakeTelegram
from fakes.telegram_kit import RememberingSink, adapter_for, receiving
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.platform import PlatformFailure
from hermes.entry.chat.kit.settings import WebhookAddress
from hermes.entry.chat.telegram.adapter import TelegramAdapter
from hermes.testing import FakeClock


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@asynccontextmanager
async def called(
    telegram: FakeTelegram, tmp_path: Path, clock: Clock | None = None, secret: str = "s3cret"
) -> AsyncIterator[tuple[TelegramAdapter, int]]:
    port = free_port()
    url = f"http://127.0.0.1:{port}/hook"
    webhook = WebhookAddress(url=url, port=port, secret=secret)
    async with adapter_for(telegram, tmp_path, clock or FakeClock(), webhook=webhook) as adapter:
        yield adapter, port


async def post(port: int, body: bytes, path: str = "/hook", **headers: str) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    lines = [f"POST {path} HTTP/1.1", f"content-length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    writer.write("\r\n".join([*lines, "", ""]).encode() + body)
    status = await reader.readline()
    writer.close()
    return int(status.split()[1])


def update(text: str) -> bytes:
    message: dict[str, Any] = {"message_id": 1, "date": 1, "text": text}
    message |= {"chat": {"id": 5, "type": "private"}, "from": {"id": 5, "first_name": "A"}}
    return json.dumps({"update_id": 1, "message": message}).encode()


@pytest.mark.parametrize("secret", ["s3cret", ""])
async def test_updates_arrive_with_a_secret_given_or_made(tmp_path: Path, secret: str) -> None:
    async with FakeTelegram() as telegram:
        sink = RememberingSink()
        async with called(telegram, tmp_path, secret=secret) as (adapter, _):
            assert telegram.world.webhook["secret"]
            async with receiving(adapter, sink):
                telegram.say(5, 5, "one")
                telegram.say(5, 5, "two")
                await telegram.until(lambda: not telegram.world.updates)
        assert sink.texts == ["one", "two"]
        assert sink.heartbeats == 3


async def test_an_update_is_answered_only_after_the_inbox_has_it(tmp_path: Path) -> None:
    async with FakeTelegram() as telegram:
        sink = RememberingSink()
        sink.gate = asyncio.Event()
        sink.refusals = 1
        async with called(telegram, tmp_path) as (adapter, _), receiving(adapter, sink):
            telegram.say(5, 5, "one")
            await sink.until(lambda: sink.arrivals)
            assert len(telegram.world.updates) == 1
            sink.gate.set()
            await telegram.until(lambda: not telegram.world.updates)
        assert sink.arrivals == ["5:1", "5:1"]
        assert telegram.world.webhook_error.endswith("500")


async def test_without_the_secret_nothing_is_taken(tmp_path: Path) -> None:
    async with FakeTelegram() as telegram:
        sink = RememberingSink()
        right = {"X_Telegram_Bot_Api_Secret_Token": "s3cret"}
        async with called(telegram, tmp_path) as (adapter, port), receiving(adapter, sink):
            await sink.until(lambda: sink.heartbeats)
            assert await post(port, update("evil")) == 401
            wrong = {"X_Telegram_Bot_Api_Secret_Token": "s3cre"}
            assert await post(port, update("evil"), **wrong) == 401
            assert await post(port, update("lost"), path="/else", **right) == 404
            assert await post(port, b"{nonsense", **right) == 200
            assert await post(port, update("good"), **right) == 200
        assert sink.texts == ["good"]


async def test_a_webhook_that_somebody_took_over_is_noticed(tmp_path: Path) -> None:
    async with FakeTelegram() as telegram:
        clock = FakeClock()
        async with called(telegram, tmp_path, clock) as (adapter, _):
            sink = RememberingSink()
            receive = asyncio.ensure_future(adapter.receive(sink))
            await clock.until_sleeping()
            clock.advance(60)
            await sink.until(lambda: sink.heartbeats == 2)
            telegram.world.webhook["url"] = "https://elsewhere/"
            await clock.until_sleeping()
            clock.advance(60)
            with pytest.raises(PlatformFailure, match="another place"):
                await receive


async def test_a_port_in_use_is_explained(tmp_path: Path) -> None:
    async with FakeTelegram() as telegram, called(telegram, tmp_path) as (adapter, port):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", port))
            taken.listen()
            with pytest.raises(PlatformFailure, match="cannot listen") as caught:
                await adapter.receive(RememberingSink())
        assert "TELEGRAM_WEBHOOK_PORT" in caught.value.hint


async def test_leaving_webhook_mode_makes_polling_possible_again(tmp_path: Path) -> None:
    async with FakeTelegram() as telegram:
        async with called(telegram, tmp_path):
            assert telegram.world.webhook
        sink = RememberingSink()
        telegram.say(5, 5, "meanwhile")
        async with adapter_for(telegram, tmp_path) as adapter, receiving(adapter, sink):
            await sink.until(lambda: sink.texts == ["meanwhile"])
