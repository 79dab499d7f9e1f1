"""A Slack adapter against the fake, and a gateway in front of it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fakes.slack import APP_TOKEN, FakeSlack
from fakes.telegram_kit import RememberingSink, adapter_request
from hermes.domain.outbound import Target
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.platform import MenuCommand, Outgoing
from hermes.entry.chat.slack.adapter import SlackAdapter
from hermes.entry.chat.slack.settings import SlackSettings

__all__ = ["adapter_for", "listening", "outgoing", "slack_platform"]


@asynccontextmanager
async def adapter_for(
    slack: FakeSlack, clock: Clock | None = None, **more: Any
) -> AsyncIterator[SlackAdapter]:
    usual = {"token": ",".join(slack.teams.values()), "app_token": APP_TOKEN}
    settings = SlackSettings(**(usual | {"base_url": slack.base_url} | more))
    adapter = SlackAdapter(lambda: settings, adapter_request(clock))
    try:
        await adapter.connect()
        menu = [MenuCommand(name=name, help=name) for name in ("new", "help", "status")]
        await adapter.publish_commands(menu)
        yield adapter
    finally:
        await adapter.close()


@asynccontextmanager
async def listening(
    slack: FakeSlack, sink: RememberingSink | None = None, **more: Any
) -> AsyncIterator[tuple[SlackAdapter, RememberingSink]]:
    """Receive in the background for the length of the body."""
    sink = sink or RememberingSink()
    async with adapter_for(slack, **more) as adapter:
        task = asyncio.ensure_future(adapter.receive(sink))
        try:
            yield adapter, sink
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def outgoing(channel: str, text: str = "", plain: str = "", **more: Any) -> Outgoing:
    places = {name: more.pop(name) for name in ("thread_id", "context", "reply_to") if name in more}
    target = Target(platform="slack", account="T1-UBOT", chat_id=channel, **places)
    return Outgoing(target=target, text=text, plain=plain or text, **more)


def slack_platform(slack: FakeSlack, **extra: Any) -> dict[str, Any]:
    """Return `platforms.slack` for the fake, open to everybody."""
    return {
        "enabled": True,
        "token": ",".join(slack.teams.values()),
        "allow_all_users": True,
        "extra": {"base_url": slack.base_url, "app_token": APP_TOKEN} | extra,
    }
