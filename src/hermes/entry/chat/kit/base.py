"""The beginning of an adapter: its settings, its intake, and nothing where nothing is claimed."""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from hermes.domain.entry_points import load_entry_point
from hermes.domain.inbound import InboundMessage
from hermes.domain.outbound import Target
from hermes.domain.platforms import ChatPlatform
from hermes.domain.ports.platform import (
    Adapter,
    AdapterRequest,
    ButtonPress,
    MenuCommand,
    Outgoing,
)
from hermes.entry.chat.kit.intake import MessageIntake, Recent
from hermes.entry.chat.kit.settings import ChatSettings, live_settings

S = TypeVar("S", bound=ChatSettings)
SEEN = "👀"
"""The reaction that comes first."""


class ChatAdapter(Generic[S]):
    """Without `connect`, `receive` and `send`, which are the platform's own."""

    def __init__(self, rules: Callable[[], S], request: AdapterRequest) -> None:
        self._rules = rules
        """The settings as they are now."""
        self._clock = request.clock
        self._intake = MessageIntake(rules, self._answer)
        self._reactions: Recent[str] = Recent()
        """Message -> our reaction to it."""

    async def edit(self, native_id: str, outgoing: Outgoing) -> None: ...

    async def delete(self, target: Target, native_id: str) -> None: ...

    async def typing(self, target: Target) -> None: ...

    async def react(self, target: Target, native_id: str, emoji: str) -> None:
        """Show a reaction in the place of the one before it, also of an earlier process."""
        if not self._rules().reactions:
            return
        if (earlier := self._reactions.pop(native_id, SEEN)) != emoji:
            await self._react(target, native_id, earlier, there=False)
        if emoji:
            await self._react(target, native_id, emoji, there=True)
            self._reactions[native_id] = emoji

    async def _react(self, target: Target, native_id: str, emoji: str, *, there: bool) -> None: ...

    async def publish_commands(self, commands: Sequence[MenuCommand]) -> None: ...

    async def _answer(self, asked: ButtonPress | InboundMessage, text: str) -> None: ...


def make_adapter(platform: ChatPlatform, request: AdapterRequest) -> Adapter:
    """Return an adapter that is not connected yet; `ConfigError` says what is missing."""
    rules = live_settings(platform, platform.settings_type or ChatSettings, request.places)
    adapter: Adapter = load_entry_point(platform.adapter)(rules, request)
    return adapter
