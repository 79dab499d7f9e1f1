"""An adapter whose connection a test makes and breaks."""

import asyncio
from collections.abc import Sequence
from typing import Any

from hermes.domain.inbound import InboundMessage
from hermes.domain.outbound import Target
from hermes.domain.ports.platform import (
    ButtonPress,
    InboundSink,
    MenuCommand,
    Outgoing,
    PlatformFailure,
    Sent,
)

__all__ = ["FakeAdapter", "ListSink"]


class ListSink:
    """A sink that remembers."""

    def __init__(self) -> None:
        self.messages: list[InboundMessage] = []
        self.presses: list[ButtonPress] = []
        self.overheard_texts: list[str] = []
        self.saved: Any = None

    async def message(self, message: InboundMessage) -> bool:
        self.messages.append(message)
        return True

    async def overheard(self, message: InboundMessage) -> None:
        self.overheard_texts.append(message.text)

    async def press(self, press: ButtonPress) -> str:
        self.presses.append(press)
        return "ok"

    def alive(self) -> None:
        pass

    def failing(self, failure: PlatformFailure, pause: float) -> None:
        pass

    async def cursor(self) -> Any:
        return self.saved

    async def save_cursor(self, cursor: Any) -> None:
        self.saved = cursor


class FakeAdapter:
    """Connects as it is told to, then receives until `lose` is called."""

    def __init__(
        self, *, failure: Exception | None = None, hangs: bool = False, account: str = "bot-1"
    ) -> None:
        self.account = account
        self.failure = failure
        self.hangs = hangs
        self.sink: InboundSink | None = None
        self.receiving = asyncio.Event()
        self.closed = asyncio.Event()
        self._lost: asyncio.Future[None] | None = None

    async def connect(self) -> None:
        if self.hangs:
            await asyncio.Event().wait()
        if self.failure is not None:
            raise self.failure

    async def receive(self, sink: InboundSink) -> None:
        self.sink = sink
        self._lost = asyncio.get_running_loop().create_future()
        self.receiving.set()
        await self._lost

    def lose(self, error: Exception | None = None) -> None:
        """End `receive`, with an error if one is given."""
        assert self._lost is not None
        if error is None:
            self._lost.set_result(None)
        else:
            self._lost.set_exception(error)

    async def send(self, outgoing: Outgoing) -> Sent:
        return Sent(native_id=outgoing.key)

    async def edit(self, native_id: str, outgoing: Outgoing) -> None:
        pass

    async def delete(self, target: Target, native_id: str) -> None:
        pass

    async def typing(self, target: Target) -> None:
        pass

    async def react(self, target: Target, native_id: str, emoji: str) -> None:
        pass

    async def create_thread(self, target: Target, name: str) -> str | None:
        return None

    async def publish_commands(self, commands: Sequence[MenuCommand]) -> None:
        pass

    async def close(self) -> None:
        self.closed.set()
