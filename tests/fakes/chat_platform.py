"""A chat platform in memory: what people see, and what goes wrong when told to."""

from collections.abc import Iterator, Sequence
from itertools import count

from hermes.domain.outbound import Target
from hermes.domain.platforms import Capabilities, Limits, Rate
from hermes.domain.ports.platform import (
    FailureAction,
    InboundSink,
    MenuCommand,
    Outgoing,
    PlatformFailure,
    Sent,
)

__all__ = ["EDITING", "MemoryPlatform", "NumberedPlatform", "failure"]

EDITING = Capabilities(
    max_length=4096, edits=True, deletes=True, buttons=True, typing=True,
    limits=Limits(private=Rate(), group=Rate()), media=frozenset({"document", "image"}),
)  # fmt: skip


def failure(action: FailureAction, *, effect: bool = False, **more: object) -> "Fault":
    """A call that fails, before or after it had its effect."""
    return Fault(PlatformFailure(action, action.value, **more), effect=effect)  # type: ignore[arg-type]


class Fault:
    def __init__(self, error: PlatformFailure, *, effect: bool) -> None:
        self.error = error
        self.effect = effect


class MemoryPlatform:
    """Implements `Adapter`; `visible` is the chat as a person sees it."""

    account = "bot"

    def __init__(self) -> None:
        self.visible: dict[str, str] = {}
        self.buttons: dict[str, int] = {}
        self.files: list[str] = []
        self.sent_files: set[str] = set()
        """Their ids."""
        self.calls: list[str] = []
        self.faults: list[Fault | None] = []
        self.shown: list[Outgoing] = []
        """Everything that was to be sent or edited, in order."""
        self._next = 0

    def heard(self, native_id: str) -> None:
        """Count a person's message."""
        self._next = int(native_id)

    def fail(self, *faults: Fault | None) -> None:
        """Let the next calls fail like this; None is a call that works."""
        self.faults += faults

    async def _call(self, name: str, effect: object) -> None:
        self.calls.append(name)
        fault = self.faults.pop(0) if self.faults else None
        if fault is None or fault.effect:
            effect()  # type: ignore[operator]
        if fault is not None:
            raise fault.error

    async def send(self, outgoing: Outgoing) -> Sent:
        self._next += 1
        native_id = str(self._next)
        self.shown.append(outgoing)

        def effect() -> None:
            if outgoing.attachment:
                self.files.append(outgoing.attachment)
                self.sent_files.add(native_id)
            else:
                self.visible[native_id] = outgoing.text
                self.buttons[native_id] = sum(len(row) for row in outgoing.buttons)

        await self._call("send", effect)
        return Sent(native_id=native_id)

    async def edit(self, native_id: str, outgoing: Outgoing) -> None:
        self.shown.append(outgoing)

        def effect() -> None:
            if native_id not in self.visible:
                raise PlatformFailure(FailureAction.SEND_NEW, "There is no such message.")
            self.visible[native_id] = outgoing.text
            self.buttons[native_id] = sum(len(row) for row in outgoing.buttons)

        await self._call("edit", effect)

    async def delete(self, target: Target, native_id: str) -> None:
        await self._call("delete", lambda: self.visible.pop(native_id, None))

    async def typing(self, target: Target) -> None:
        await self._call("typing", lambda: None)

    async def react(self, target: Target, native_id: str, emoji: str) -> None:
        await self._call("react", lambda: None)

    async def connect(self) -> None:
        return None

    async def receive(self, sink: InboundSink) -> None:
        return None

    async def publish_commands(self, commands: Sequence[MenuCommand]) -> None:
        return None

    async def close(self) -> None:
        return None


class NumberedPlatform(MemoryPlatform):
    """Cannot be asked what was sent; its ids count up from 1."""

    def between(self, earlier: Sequence[str], later: str | None) -> Iterator[str]:
        first = max(map(int, earlier)) + 1
        return map(str, count(first) if later is None else range(first, int(later)))

    def foreign(self, native_id: str) -> bool:
        return False

    async def edit(self, native_id: str, outgoing: Outgoing) -> None:
        if outgoing.attachment is not None:
            self.shown.append(outgoing)
            await self._call("edit", lambda: None)
            if native_id not in self.sent_files:
                raise PlatformFailure(FailureAction.SEND_NEW, "There is no such file.")
            return
        await super().edit(native_id, outgoing)
