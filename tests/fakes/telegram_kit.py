"""A Telegram adapter with a sink that remembers, against the fake server."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fakes.telegram import FakeTelegram
from hermes.domain.errors import StoreError
from hermes.domain.inbound import InboundMessage
from hermes.domain.outbound import Target
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.platform import (
    Adapter,
    AdapterRequest,
    ButtonPress,
    Outgoing,
    PlatformFailure,
    SettingPlaces,
)
from hermes.entry.chat.telegram.adapter import TelegramAdapter
from hermes.entry.chat.telegram.settings import TelegramSettings
from hermes.entry.http.listener import SharedListener
from hermes.execution.clock import SystemClock

__all__ = [
    "RememberingSink",
    "adapter_for",
    "adapter_request",
    "outgoing",
    "receiving",
    "settings_for",
]


class RememberingSink:
    """An inbox that takes each message once, like the real one."""

    def __init__(self) -> None:
        self.messages: dict[str, InboundMessage] = {}
        self.arrivals: list[str] = []
        """Every hand-over, repeated ones too."""
        self.presses: list[ButtonPress] = []
        self.overheard_texts: list[str] = []
        self.answer = "Done."
        self.saved: Any = None
        self.heartbeats = 0
        self.failures: list[tuple[PlatformFailure, float]] = []
        self.refusals = 0
        """So many hand-overs fail before one is taken."""
        self.refused: set[str] = set()
        """Texts that are not let in."""
        self.gate: asyncio.Event | None = None
        """While unset, hand-overs wait."""
        self._changed = asyncio.Event()

    @property
    def texts(self) -> list[str]:
        return [message.text for message in self.messages.values()]

    async def message(self, message: InboundMessage) -> bool:
        self.arrivals.append(message.native_id)
        self._touch()
        if self.gate is not None:
            await self.gate.wait()
        if self.refusals > 0:
            self.refusals -= 1
            raise StoreError("The disk is full.")
        if message.text in self.refused:
            return False
        self.messages.setdefault(message.native_id, message)
        self._touch()
        return True

    async def overheard(self, message: InboundMessage) -> None:
        self.overheard_texts.append(message.text)

    async def press(self, press: ButtonPress) -> str:
        self.presses.append(press)
        self._touch()
        return self.answer

    def alive(self) -> None:
        self.heartbeats += 1
        self._touch()

    def failing(self, failure: PlatformFailure, pause: float) -> None:
        self.failures.append((failure, pause))
        self._touch()

    async def cursor(self) -> Any:
        return self.saved

    async def save_cursor(self, cursor: Any) -> None:
        self.saved = cursor
        self._touch()

    async def until(self, condition: Callable[[], object], seconds: float = 10.0) -> None:
        async with asyncio.timeout(seconds):
            while not condition():
                await self._changed.wait()

    def _touch(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def adapter_request(clock: Clock | None = None) -> AdapterRequest:
    places = SettingPlaces(section={}, variables={})
    return AdapterRequest(
        places=lambda: places,
        state_dir=Path(),
        clock=clock or SystemClock(),
        listener=SharedListener(),
    )


def settings_for(telegram: FakeTelegram, **more: Any) -> TelegramSettings:
    usual: dict[str, Any] = {
        "token": telegram.token,
        "base_url": telegram.base_url,
    }
    return TelegramSettings(**(usual | more))


@asynccontextmanager
async def adapter_for(
    telegram: FakeTelegram, tmp_path: Path, clock: Clock | None = None, **more: Any
) -> AsyncIterator[TelegramAdapter]:
    """Connect an adapter for the length of the body."""
    settings = settings_for(telegram, **more)
    adapter = TelegramAdapter(lambda: settings, adapter_request(clock))
    try:
        await adapter.connect()
        yield adapter
    finally:
        await adapter.close()


@asynccontextmanager
async def receiving(adapter: Adapter, sink: RememberingSink) -> AsyncIterator[None]:
    """Receive in the background for the length of the body."""
    task = asyncio.ensure_future(adapter.receive(sink))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def outgoing(chat_id: int, text: str = "", **more: Any) -> Outgoing:
    places = {name: more.pop(name) for name in ("thread_id", "reply_to") if name in more}
    target = Target(platform="telegram", account="4242", chat_id=str(chat_id), **places)
    return Outgoing(target=target, text=text, **more)
