"""Chat platforms as the control plane sees them.

A platform is data (`ChatPlatform`, found by the entry points `hermes.platforms`, readable
without importing its adapter) and a factory of adapters. The adapter holds only what is truly
its platform's: turning native updates into inbound messages and carrying out the few calls
below. Shared code does the rest: splitting, pacing, formatting, retrying, remembering.

What an adapter needs again later it puts into the inbound message: `reply_context` comes back
in the `Target` of everything that answers the message, also after a restart, and
`Attachment.remote` comes back in `FileSource.fetch` after the message was committed.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct

from hermes.domain.errors import HermesError
from hermes.domain.inbound import Chat, InboundMessage, Sender
from hermes.domain.outbound import OutboxKind, Target
from hermes.domain.ports.clock import Clock

# -- what a platform is ----------------------------------------------------------------


class LengthUnit(StrEnum):
    """What a platform counts when it limits the length of a message."""

    UTF16 = "utf16"
    CODEPOINTS = "codepoints"
    BYTES = "bytes"


class Capabilities(Struct, frozen=True, kw_only=True):
    """What a platform can do, and how much of it."""

    max_length: int
    """Of a message that is sent."""
    edit_length: int = 0
    """Of a message that is edited; 0: the same."""
    caption_length: int = 0
    unit: LengthUnit = LengthUnit.CODEPOINTS
    dialect: str = "plain"
    """Which of `streaming.markup` formats text for it."""
    edits: bool = False
    streams: bool = False
    """A message stays open and grows: the first send opens it without text, each `edit` carries
    all of the text so far, and the one with `Outgoing.final` closes it."""
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
    private_interval: float = 1.0
    """Seconds between two calls to one private chat that the platform tolerates."""
    group_interval: float = 3.0
    account_interval: float = 0.0
    """Seconds between two calls of the account to whatever chats; 0: no limit."""
    typing_seconds: float = 4.0
    """How often a typing signal has to be repeated."""

    @property
    def live(self) -> bool:
        """Whether a message can still change after it was sent."""
        return self.edits or self.streams


class Credential(Struct, frozen=True, kw_only=True):
    """A setting without which the platform cannot work."""

    key: str
    """Its name in `platforms.<platform>`."""
    variable: str
    """The environment variable that may hold it."""
    label: str
    shape: str = ""
    """What such a secret looks like, as a regular expression without groups; for redaction."""
    mark: str = ""
    """A text that every secret of this shape contains."""


class SettingPlaces(Struct, frozen=True, kw_only=True):
    """Where the settings of an account stand."""

    section: Mapping[str, Any]
    """`platforms.<name>` of the configuration, `extra` included."""
    block: Mapping[str, Any]
    """The older block `<name>:`."""
    variables: Mapping[str, str]
    """`.env` and the environment."""


class AdapterRequest(Struct, frozen=True, kw_only=True):
    """What an adapter is made from."""

    places: Callable[[], SettingPlaces]
    """The settings as they are now; the same object while nothing has changed."""
    state_dir: Path
    """A folder of the account's own: sessions, keys, device ids. Not made yet."""
    clock: Clock
    listener: "HttpListener"


class ChatPlatform(Struct, frozen=True, kw_only=True):
    """A platform, as it can be listed without importing its adapter."""

    name: str
    label: str
    capabilities: Capabilities
    make: Callable[[AdapterRequest], "Adapter"]
    """Returns an adapter that is not connected yet; `ConfigError` says what is missing."""
    credentials: tuple[Credential, ...] = ()
    """All of them must be set; the platform is on if they are and nothing else is said."""
    setup: str = ""
    """The next step for somebody who has no credentials."""
    env_prefix: str = ""
    """`TELEGRAM` for `TELEGRAM_ALLOWED_USERS` and so on; empty: the name in capitals."""
    batch_seconds: float = 0.3
    """How long to wait for the rest of a message a client has split."""
    long_batch_seconds: float = 1.0
    """The same after a part that is nearly as long as the limit."""
    album_seconds: float = 0.8

    @property
    def prefix(self) -> str:
        return self.env_prefix or self.name.upper()


# -- what goes out -----------------------------------------------------------------------


class Button(Struct, frozen=True, kw_only=True):
    """Something a person can press under a message."""

    label: str
    data: str = ""
    """At most 64 bytes; comes back in `ButtonPress`."""
    url: str = ""
    """Opens a page instead of coming back."""
    style: str = ""
    """`primary` or `danger`, where the platform has colours."""


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
    kind: OutboxKind = OutboxKind.REPLY
    """A notice may be shown to the person alone who asked, where the platform can."""
    final: bool = True
    """False: more of it will come."""
    key: str = ""
    """The same for every attempt at this piece; platforms that can, deduplicate by it."""


class Sent(Struct, frozen=True, kw_only=True):
    """Something became visible."""

    native_id: str


class MenuCommand(Struct, frozen=True, kw_only=True):
    """A slash command, as a platform's own menu shows it."""

    name: str
    help: str
    args: str = ""
    """What may follow, e.g. `[name]`; for display."""
    choices: tuple[str, ...] = ()
    """Words that the first argument can be."""


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
    """The message to reply to is gone, or the reply context has run out; send without it."""
    DROP_THREAD = "drop_thread"
    """The thread is gone; send without it."""
    UNKNOWN = "unknown"
    """The call may or may not have had its effect."""
    GIVE_UP = "give_up"
    """This chat cannot be reached any more, or the piece can never be sent."""
    FATAL = "fatal"
    """The account itself does not work: wrong or revoked token."""


class LimitScope(StrEnum):
    """Who has to wait after a "too many requests"."""

    CHAT = "chat"
    ACCOUNT = "account"


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
        scope: LimitScope = LimitScope.CHAT,
        moved_to: str | None = None,
        status: int = 0,
        description: str = "",
    ) -> None:
        super().__init__(message, hint=hint)
        self.action = action
        self.retry_after = retry_after
        self.scope = scope
        self.moved_to = moved_to
        """The chat has a new id; use it from now on."""
        self.status = status
        """Of the HTTP answer, if there was one."""
        self.description = description.lower()
        """The platform's own words."""


# -- what comes in -------------------------------------------------------------------------


class ButtonPress(Struct, frozen=True, kw_only=True):
    """A person pressed a button under one of our messages."""

    platform: str
    account: str
    native_id: str
    """The platform's id of the press itself."""
    chat: Chat
    sender: Sender
    message_id: str
    data: str


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


class ListenerCall(Struct, frozen=True, kw_only=True):
    """A request from a platform, with its body as it came: signatures are made over bytes."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """With lower-case names."""
    body: bytes


class ListenerReply(Struct, frozen=True, kw_only=True):
    """The answer to a request of a platform."""

    status: int = 200
    body: bytes = b""
    media_type: str = "text/plain; charset=utf-8"


ListenerHandler = Callable[[ListenerCall], Awaitable[ListenerReply]]


class HttpListener(Protocol):
    """The one HTTP server that platforms are called at; those with the same port share it."""

    def serve(
        self, host: str, port: int, path: str, handler: ListenerHandler
    ) -> AbstractAsyncContextManager[int]:
        """Answer calls to `path` for the length of the body; the port it listens on.

        `HermesError` if the port cannot be had or the path is taken.
        """
        ...


# -- the adapter -----------------------------------------------------------------------------


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

    async def publish_commands(self, commands: Sequence[MenuCommand]) -> None:
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


@runtime_checkable
class FileSource(Protocol):
    """An adapter whose messages name files that are fetched after the commit."""

    async def fetch(self, remote: str, target: Path) -> int:
        """Fetch the file that `Attachment.remote` names and return its size.

        `PlatformFailure`, or an `OSError` whose text says why the file cannot be had.
        """
        ...
