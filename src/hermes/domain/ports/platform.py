"""Chat platforms as the control plane sees them.

What a platform can do is data (`Capabilities` in its `Manifest`, readable
without importing its code). The adapter holds only what is truly its
platform's: turning native updates into inbound messages and carrying out the
few calls below. Shared code does the rest: splitting, pacing, formatting,
retrying, remembering.
"""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct

from hermes.domain.errors import HermesError
from hermes.domain.inbound import InboundMessage
from hermes.domain.outbound import Target
from hermes.domain.ports.clock import Clock

__all__ = [
    "Adapter",
    "AdapterRequest",
    "AlbumSender",
    "Button",
    "ButtonPress",
    "Capabilities",
    "FailureAction",
    "InboundSink",
    "LengthUnit",
    "Manifest",
    "Outgoing",
    "PlatformFailure",
    "Sent",
]


class LengthUnit(StrEnum):
    """What a platform counts when it limits the length of a message."""

    UTF16 = "utf16"
    CODEPOINTS = "codepoints"
    BYTES = "bytes"


class Capabilities(Struct, frozen=True, kw_only=True):
    """What a platform can do, and how much of it."""

    max_length: int
    unit: LengthUnit = LengthUnit.CODEPOINTS
    dialect: str = "plain"
    """Which of `streaming.markup` formats text for it."""
    edits: bool = False
    deletes: bool = False
    threads: bool = False
    buttons: bool = False
    typing: bool = False
    reactions: bool = False
    idempotent_sends: bool = False
    """A send may be repeated with the same key without a second message."""
    media: frozenset[str] = frozenset()
    """Kinds of files it can send natively: image, voice, audio, video, document."""
    max_file_bytes: int = 50_000_000
    album_size: int = 0
    """How many pictures can be sent together (`AlbumSender`); 0: none."""
    caption_length: int = 0
    private_interval: float = 1.0
    """Seconds between two calls to one private chat that the platform tolerates."""
    group_interval: float = 3.0
    typing_seconds: float = 4.0
    """How often a typing signal has to be repeated."""


class Manifest(Struct, frozen=True, kw_only=True):
    """A platform, as it can be listed without importing its code."""

    name: str
    label: str
    emoji: str
    capabilities: Capabilities
    token_env: tuple[str, ...] = ()
    """Secrets it needs; all of them must be set."""
    env_prefix: str = ""
    """`TELEGRAM` for `TELEGRAM_ALLOWED_USERS` and so on."""
    batch_seconds: float = 0.3
    """How long to wait for the rest of a message a client has split."""
    long_batch_seconds: float = 1.0
    """The same after a part that is nearly as long as the limit."""
    album_seconds: float = 0.8
    adapter: str = ""
    """Dotted path `module:factory` of the adapter."""


class Button(Struct, frozen=True, kw_only=True):
    """Something a person can press under a message."""

    label: str
    data: str
    """At most 64 bytes; comes back in `ButtonPress`."""


class Outgoing(Struct, frozen=True, kw_only=True):
    """One call that shows something, already split and formatted."""

    target: Target
    text: str = ""
    """In the platform's dialect."""
    plain: str = ""
    """The same without markup, for when the platform refuses the markup."""
    buttons: tuple[tuple[Button, ...], ...] = ()
    attachment: str | None = None
    attachment_kind: str = "document"
    silent: bool = False
    key: str = ""
    """The same for every attempt at this piece; platforms that can, deduplicate by it."""


class Sent(Struct, frozen=True, kw_only=True):
    """Something became visible."""

    native_id: str


class ButtonPress(Struct, frozen=True, kw_only=True):
    """A person pressed a button under one of our messages."""

    platform: str
    account: str
    native_id: str
    """The platform's id of the press itself."""
    chat_id: str
    thread_id: str | None
    message_id: str
    user_id: str
    user_name: str | None
    data: str


class FailureAction(StrEnum):
    """What a failed platform call means for the piece it carried."""

    WAIT = "wait"
    """Nothing happened; try again after `retry_after` seconds."""
    RETRY = "retry"
    """Nothing happened (e.g. no connection was made); try again with backoff."""
    PLAIN = "plain"
    """Nothing happened: the markup was refused. Send it as plain text."""
    SEND_NEW = "send_new"
    """The message to edit is gone or may not be edited."""
    DROP_REPLY = "drop_reply"
    """The message to reply to is gone; send without the reply."""
    DROP_THREAD = "drop_thread"
    """The thread is gone; send without it."""
    UNKNOWN = "unknown"
    """The call may or may not have had its effect."""
    GIVE_UP = "give_up"
    """This chat cannot be reached any more, or the piece can never be sent."""
    FATAL = "fatal"
    """The account itself does not work: wrong or revoked token."""


class PlatformFailure(HermesError):
    """A platform call that did not work."""

    code = "platform"

    def __init__(
        self,
        action: FailureAction,
        message: str,
        *,
        hint: str = "",
        retry_after: float = 0.0,
        moved_to: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.action = action
        self.retry_after = retry_after
        self.moved_to = moved_to
        """The chat has a new id; use it from now on."""


class AdapterRequest(Struct, frozen=True, kw_only=True):
    """What a platform's `build` module makes an adapter from."""

    section: Mapping[str, Any]
    """`platforms.<name>` of the configuration, `extra` included."""
    block: Mapping[str, Any]
    """The older block `<name>:`."""
    variables: Mapping[str, str]
    """`.env` and the environment."""
    media_dir: Path
    clock: Clock


class InboundSink(Protocol):
    """Where an adapter puts what it receives."""

    async def message(self, message: InboundMessage) -> None:
        """Take a message. When this returns, it is in the inbox or deliberately refused.

        Only then may the platform be told that it arrived.
        """
        ...

    async def press(self, press: ButtonPress) -> str:
        """Take a button press; return a short text to show to whoever pressed."""
        ...

    def alive(self) -> None:
        """Say that the connection just proved to work (a poll returned, a heartbeat came)."""
        ...

    async def cursor(self) -> Any:
        """Return where reading left off, as last saved."""
        ...

    async def save_cursor(self, cursor: Any) -> None:
        """Save where reading has got to; durable when it returns."""
        ...


class Adapter(Protocol):
    """One account on one platform."""

    @property
    def account(self) -> str:
        """A stable name for this account, e.g. the bot's id; known after `connect`."""
        ...

    async def connect(self) -> None:
        """Check the credentials and prepare; `PlatformFailure` if it cannot work."""
        ...

    async def receive(self, sink: InboundSink) -> None:
        """Receive until cancelled; raise `PlatformFailure` when the connection is lost."""
        ...

    async def send(self, outgoing: Outgoing) -> Sent:
        """Show something new."""
        ...

    async def edit(self, native_id: str, outgoing: Outgoing) -> None:
        """Replace the text and the buttons of an earlier message. Unchanged text is fine."""
        ...

    async def delete(self, target: Target, native_id: str) -> None:
        """Take a message away."""
        ...

    async def typing(self, target: Target) -> None:
        """Show that an answer is being made."""
        ...

    async def react(self, target: Target, native_id: str, emoji: str) -> None:
        """React to a message; an empty emoji takes the reaction away."""
        ...

    async def create_thread(self, target: Target, name: str) -> str | None:
        """Open a thread for a handed-over conversation; None if that is not possible."""
        ...

    async def publish_commands(self, commands: Mapping[str, str]) -> None:
        """Show the slash commands in the platform's own menu, where it has one."""
        ...

    async def close(self) -> None:
        """Close connections."""
        ...


@runtime_checkable
class AlbumSender(Protocol):
    """An adapter that can send several files at once."""

    async def send_album(self, pieces: list[Outgoing]) -> list[Sent]:
        """Show two or more files as one album; all of them or none."""
        ...
