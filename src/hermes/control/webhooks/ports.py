"""What webhooks need from the outside."""

from collections.abc import Mapping
from typing import Any, Protocol

from hermes.domain.inbound import Chat, ChatKind, InboundMessage, Sender
from hermes.domain.turn import TurnOptions
from hermes.domain.webhooks import HookDelivery

__all__ = [
    "PLATFORM",
    "Deliver",
    "GitHubComments",
    "Key",
    "RouteSource",
    "ScriptOutcome",
    "ScriptRunner",
    "entry_id_of",
    "key_of",
    "message_of",
    "origin_of",
]


class ScriptOutcome(Protocol):
    """How a script ended."""

    @property
    def exit_code(self) -> int:
        """As a shell reports it."""
        ...

    @property
    def output(self) -> str:
        """What it wrote to standard output."""
        ...

    @property
    def errors(self) -> str:
        """The beginning of what it wrote to standard error."""
        ...

    @property
    def timed_out(self) -> bool:
        """Whether it was ended because it took too long."""
        ...

    @property
    def cut(self) -> bool:
        """Whether it wrote more than is kept."""
        ...


class ScriptRunner(Protocol):
    """Runs the scripts of routes."""

    def check(self, script: str) -> None:
        """Raise `ConfigError` if a route may not run this."""
        ...

    async def run(self, script: str, stdin: bytes, timeout: float) -> ScriptOutcome:
        """Run a script to its end; `HermesError` if it cannot be started."""
        ...


class GitHubComments(Protocol):
    """Writes comments on pull requests."""

    async def comment(self, repo: str, number: str, text: str) -> None:
        """Post a comment; `HermesError` if that fails."""
        ...


class Deliver(Protocol):
    """Sends results to chats."""

    async def deliver(
        self,
        platform: str,
        chat_id: str | None,
        thread_id: str | None,
        text: str,
        *,
        entry_id: str,
    ) -> None:
        """Send a text and return when it is there; `HermesError` if it cannot be sent.

        Without a chat it goes to the platform's home channel. `entry_id` is the
        id of the outbox entry: what was sent under it is not sent again.
        """
        ...


class RouteSource(Protocol):
    """Routes that were added at run time."""

    async def stamp(self) -> object:
        """Return a value that differs after a change."""
        ...

    async def load(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the routes as they are written; `HermesError` if they cannot be read."""
        ...


PLATFORM = "webhook"

Key = tuple[str, str]
"""Route and the sender's id."""


def key_of(delivery: HookDelivery) -> Key:
    """Return what a delivery is known by."""
    return delivery.route, delivery.delivery_id


def entry_id_of(delivery: HookDelivery) -> str:
    """Return the id of the outbox entry with the result of this attempt."""
    return f"webhook:{delivery.route}:{delivery.delivery_id}#{delivery.attempt}"


def message_of(delivery: HookDelivery) -> InboundMessage:
    """Return the message by which the agent learns of this attempt."""
    route, delivery_id = key_of(delivery)
    return InboundMessage(
        platform=PLATFORM,
        account=route,
        native_id=f"{delivery_id}#{delivery.attempt}",
        chat=Chat(kind=ChatKind.WEBHOOK, id=f"webhook:{route}:{delivery_id}"),
        sender=Sender(id=f"webhook:{route}", name=route),
        text=delivery.prompt,
        sent_at=delivery.received_at,
        options=TurnOptions(title=False),
    )


def origin_of(message: InboundMessage) -> tuple[str, str, int]:
    """Return route, delivery id and attempt of such a message."""
    delivery_id, _, attempt = message.native_id.rpartition("#")
    return message.account, delivery_id, int(attempt)
