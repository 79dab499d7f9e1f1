"""Where a conversation takes place, in words that fit every platform."""

from enum import StrEnum

from msgspec import Struct

__all__ = ["Attachment", "Chat", "ChatKind", "ReplyRef", "Sender"]


class ChatKind(StrEnum):
    """What sort of place a chat is; the values appear in session keys."""

    PRIVATE = "dm"
    GROUP = "group"
    CHANNEL = "channel"
    THREAD = "thread"
    FORUM = "forum"
    WEBHOOK = "webhook"


class Chat(Struct, frozen=True, kw_only=True):
    """A place on a platform."""

    kind: ChatKind
    id: str
    name: str | None = None
    topic: str | None = None
    parent_id: str | None = None
    """The chat that a thread or topic hangs under."""
    scope_id: str | None = None
    """The guild, workspace or team around it."""


class Sender(Struct, frozen=True, kw_only=True):
    """Who said something."""

    id: str
    name: str | None = None
    alt_id: str | None = None
    """A second id for the same person, where a platform has two."""
    is_bot: bool = False


class Attachment(Struct, frozen=True, kw_only=True):
    """A file that came with a message, already stored on disk."""

    kind: str
    """`image`, `audio`, `voice`, `video` or `document`."""
    path: str
    name: str
    media_type: str | None = None
    size: int | None = None


class ReplyRef(Struct, frozen=True, kw_only=True):
    """The earlier message that this one answers."""

    native_id: str
    text: str | None = None
    sender: Sender | None = None
    own: bool = False
    """True when the earlier message was ours."""
