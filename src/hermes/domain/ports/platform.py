"""Chat platforms as the control plane sees them.

What a platform is and can do is data (`domain.platforms`). The adapter that it makes holds only
what is truly the platform's: turning native updates into inbound messages and carrying out the
few calls below. Shared code does the rest: splitting, pacing, formatting, retrying, remembering.

What an adapter needs again later it puts into the inbound message: `reply_context` comes back
in the `Target` of everything that answers the message, also after a restart, and
`Attachment.remote` comes back in `FileSource.fetch` after the message was committed.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct

from hermes.domain.errors import HermesError
from hermes.domain.inbound import Chat, InboundMessage, Sender
from hermes.domain.outbound import OutboxKind, Target
from hermes.domain.ports.clock import Clock

# -- what an adapter is made from -----------------------------------------------------------


class SettingPlaces(Struct, frozen=True, kw_only=True):
    section: Mapping[str, Any]
    """`platforms.<name>` of the configuration with its `extra`; the older block `<name>:` is
    part of it."""
    variables: Mapping[str, str]
    """`.env` and the environment."""
    agent: str = ""
    """The agent whose own account it is: people are paired with that one only."""
    own_people: bool = False
    """It says itself who may talk: lists of the gateway do not count."""


class AdapterRequest(Struct, frozen=True, kw_only=True):
    places: Callable[[], SettingPlaces]
    """The settings as they are now; the same object while nothing has changed."""
    state_dir: Path
    """A folder of the account's own: sessions, keys, device ids. Not made yet."""
    clock: Clock
    listener: "HttpListener"


# -- what goes out -----------------------------------------------------------------------


class Button(Struct, frozen=True, kw_only=True):
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
    aside: bool = False
    """Progress beside an answer: shown without a sound, and not as a reply."""
    silent: bool = False
    """Without a sound, whatever it is."""
    continues: bool = False
    """A further piece of what an earlier message began: a reply only where all pieces are."""
    key: str = ""
    """The same for every attempt at this piece; platforms that can, deduplicate by it."""


class Sent(Struct, frozen=True, kw_only=True):
    native_id: str


class MenuCommand(Struct, frozen=True, kw_only=True):
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
    CHAT = "chat"
    ACCOUNT = "account"
    PLATFORM = "platform"


class PlatformFailure(HermesError):
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
    platform: str
    account: str
    native_id: str
    """The platform's id of the press itself."""
    chat: Chat
    sender: Sender
    message_id: str
    data: str


NOTED = "Noted."
"""What `InboundSink.press` says when the press counts, which its message shows as well."""


class InboundSink(Protocol):
    async def message(self, message: InboundMessage) -> bool:
        """Take a message. When this returns, it is in the inbox or deliberately refused.

        Only then may the platform be told that it arrived. False: nothing will be said about it.
        """

    async def overheard(self, message: InboundMessage) -> None:
        """Take a bare yes or no that is not addressed to us, if its sender is being asked."""

    async def press(self, press: ButtonPress) -> str:
        """Take a button press; return a short text for the person who pressed it."""

    def alive(self) -> None:
        """Say that the connection just proved to work (a poll returned, a heartbeat came)."""

    def failing(self, failure: PlatformFailure, pause: float) -> None:
        """Say that nothing can be received for now; it is tried again after so many seconds."""

    async def cursor(self) -> Any:
        """Return where reading left off, as last saved."""

    async def save_cursor(self, cursor: Any) -> None:
        """Save where reading has got to; durable when it returns."""


class ListenerCall(Struct, frozen=True, kw_only=True):
    """A request from a platform, with its body as it came: signatures are made over bytes."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """With lower-case names."""
    body: bytes


class ListenerReply(Struct, frozen=True, kw_only=True):
    status: int = 200
    body: bytes = b""
    media_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = {}
    """Further ones; names in lower case."""


ListenerHandler = Callable[[ListenerCall], Awaitable[ListenerReply]]


class HttpListener(Protocol):
    """The one HTTP server that platforms are called at; those with the same port share it."""

    def serve(
        self, host: str, port: int, path: str, handler: ListenerHandler
    ) -> AbstractAsyncContextManager[int]:
        """Answer calls to `path` for the length of the body; the port it listens on.

        `HermesError` if the port cannot be had or the path is taken.
        """


# -- the adapter -----------------------------------------------------------------------------


class Adapter(Protocol):
    @property
    def account(self) -> str:
        """A stable name for this account, e.g. the bot's id; known after `connect`."""

    async def connect(self) -> None:
        """Check the credentials and prepare; `PlatformFailure` if it cannot work."""

    async def receive(self, sink: InboundSink) -> None:
        """Receive until cancelled; raise `PlatformFailure` when the connection is lost."""

    async def send(self, outgoing: Outgoing) -> Sent:
        """Show something new."""

    async def edit(self, native_id: str, outgoing: Outgoing) -> None:
        """Replace the text and the buttons of an earlier message. Unchanged text is fine."""

    async def delete(self, target: Target, native_id: str) -> None:
        """Take a message away."""

    async def typing(self, target: Target) -> None:
        """Show that an answer is being made."""

    async def react(self, target: Target, native_id: str, emoji: str) -> None:
        """React to a message; an empty emoji takes the reaction away."""

    async def publish_commands(self, commands: Sequence[MenuCommand]) -> None:
        """Show the slash commands in the platform's own menu, where it has one."""

    async def close(self) -> None: ...


@runtime_checkable
class AlbumSender(Protocol):
    async def send_album(self, pieces: list[Outgoing]) -> list[Sent]:
        """Show two or more files as one album; all of them or none."""


@runtime_checkable
class SentHistory(Protocol):
    """An adapter that can look up what the account has sent."""

    async def find_sent(self, outgoing: Outgoing, since: float) -> Sent | None:
        """Return the message of a send that may have been made since then, by its key or text."""


@runtime_checkable
class EarlierMessages(Protocol):
    """An adapter that can tell what was said around a message, though not to us."""

    async def said_before(self, message: InboundMessage) -> list[str]:
        """Return what others said before it, back to our own last word, as `name: text`."""


@runtime_checkable
class NumberedMessages(Protocol):
    """An adapter that cannot look up what was sent, but whose message ids count up."""

    def between(self, earlier: Sequence[str], later: str | None) -> Iterator[str]:
        """Yield the ids that may exist between all of `earlier` and `later`, oldest first.

        Without `later` there is no end. To edit a message of somebody else, or none, fails with
        `SEND_NEW`.
        """

    def foreign(self, native_id: str) -> bool:
        """Tell whether a message is known to be somebody else's: it came in."""


@runtime_checkable
class HandoffThreads(Protocol):
    """An adapter that can open a thread for a conversation that comes from elsewhere."""

    async def create_handoff_thread(self, target: Target, title: str) -> Target:
        """Open a thread in the chat of `target` and return its address."""


@runtime_checkable
class FileSource(Protocol):
    """An adapter whose messages name files that are fetched after the commit."""

    async def fetch(self, remote: str, target: Path) -> int:
        """Fetch the file that `Attachment.remote` names and return its size.

        `PlatformFailure`, or an `OSError` whose text says why the file cannot be had.
        """
