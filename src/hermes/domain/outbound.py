"""Outbox: every message that is sent, as a row that exists before the first attempt.

    pending -> sending -> sent | failed | unknown

`unknown` is a send whose effect could not be established; it is resolved by
asking the platform or shown to a person, never blindly repeated. A streamed
preview and its final text are one entry with one native message id.
"""

from enum import StrEnum

from msgspec import Struct

from hermes.domain.inbound import ChatKind


class OutboxKind(StrEnum):
    REPLY = "reply"
    FILE = "file"
    NOTICE = "notice"
    PROMPT = "prompt"
    """An approval or a question."""
    DELIVERY = "delivery"
    """A result sent somewhere else than it was asked for: cron, webhook, handoff."""


class OutboxState(StrEnum):
    PENDING = "pending"
    SENDING = "sending"
    SENT = "sent"
    FAILED = "failed"
    UNKNOWN = "unknown"


UNSENT = (OutboxState.PENDING, OutboxState.SENDING)
"""What still has to go out."""


class Target(Struct, frozen=True, kw_only=True):
    platform: str
    account: str
    chat_id: str
    thread_id: str | None = None
    reply_to: str | None = None
    chat_kind: ChatKind | None = None
    """What sort of place it is; None where only an address is known."""
    context: str = ""
    """`InboundMessage.reply_context` of the message that is answered."""


class OutboxEntry(Struct, frozen=True, kw_only=True):
    id: str
    """Chosen by the caller, so that enqueuing twice is enqueuing once."""
    agent_id: str
    target: Target
    kind: OutboxKind
    content: str
    created_at: float
    session_id: str | None = None
    turn_id: str | None = None
    part: int = 0
    """Order within the turn; a chat receives its parts in this order."""
    attachment: str | None = None
    """Path of the file to send, for `OutboxKind.FILE`."""
    state: OutboxState = OutboxState.PENDING
    native_id: str | None = None
    """The platform's id once something is visible there (also of a preview)."""
    attempts: int = 0
    error: str | None = None
    updated_at: float = 0.0

    @property
    def of_unknown_fate(self) -> bool:
        """Whether a send of it may or may not have arrived, as far as anybody knows."""
        lost = self.state is OutboxState.SENDING and self.native_id is None and self.error
        return self.state is OutboxState.UNKNOWN or bool(lost)


SILENT_MARKERS = frozenset({"NO_REPLY", "[SILENT]", "SILENT", "NO REPLY"})
