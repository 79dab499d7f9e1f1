"""A Discord adapter against the fake server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fakes.discord import BOT, FakeDiscord
from fakes.telegram_kit import adapter_request
from hermes.domain.outbound import Target
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.platform import Outgoing
from hermes.entry.chat.discord.adapter import DiscordAdapter
from hermes.entry.chat.discord.settings import DiscordSettings
from hermes.execution.clock import SystemClock

__all__ = ["QuickClock", "discord_adapter", "piece"]


class QuickClock(SystemClock):
    """The real time, in which nobody waits."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(min(seconds, 0.01))


@asynccontextmanager
async def discord_adapter(
    discord: FakeDiscord, clock: Clock | None = None, **more: Any
) -> AsyncIterator[DiscordAdapter]:
    """Connect an adapter for the length of the body."""
    usual: dict[str, Any] = {"token": discord.token, "base_url": discord.base_url}
    settings = DiscordSettings(**(usual | more))
    adapter = DiscordAdapter(lambda: settings, adapter_request(clock or QuickClock()))
    try:
        await adapter.connect()
        yield adapter
    finally:
        await adapter.close()


def piece(chat_id: str, text: str = "", **more: Any) -> Outgoing:
    names = ("thread_id", "reply_to", "context")
    places = {name: more.pop(name) for name in names if name in more}
    target = Target(platform="discord", account=BOT, chat_id=chat_id, **places)
    return Outgoing(target=target, text=text, plain=text, **more)
