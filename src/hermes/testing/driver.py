"""People and a service, as the conformance suite needs them: what a package writes for its fake."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from typing import Any, Protocol

from msgspec import Struct

from hermes.domain.platforms import ChatPlatform


class Trouble(StrEnum):
    """What a service can do to a bot."""

    AGAIN = "again"
    """Deliver a message a second time."""
    KEEPS = "keeps"
    """Keep what is said while the bot is away; without it such messages are lost."""
    LIMIT = "limit"
    """Refuse a send because there were too many."""
    LOST = "lost"
    """Carry a send out and break the connection before it says so."""
    MARKUP = "markup"
    """Refuse a send for its markup."""
    OWN = "own"
    """Tell the bot of its own messages."""


class Place(Struct, frozen=True, kw_only=True):
    """Somebody in a chat, as the driver names them."""

    person: str
    chat: str
    thread: str = ""
    group: bool = False


class SeenInChat(Struct, frozen=True, kw_only=True):
    """A message of the bot, as it is on the platform now."""

    id: str
    text: str
    """In the platform's dialect."""
    thread: str = ""
    edits: int = 0
    """How often it was changed."""
    buttons: tuple[str, ...] = ()
    files: tuple[bytes, ...] = ()


class PlatformDriver(Protocol):
    """People and a service, as the suite needs them; entered before the gateway starts."""

    @property
    def platform(self) -> ChatPlatform: ...

    @property
    def people(self) -> Sequence[str]:
        """Forty or so who are allowed: each check takes its own."""

    @property
    def stranger(self) -> str: ...

    @property
    def troubles(self) -> frozenset[Trouble]: ...

    @property
    def bold(self) -> str:
        """`**bold**` as it is on the platform."""

    @property
    def python_path(self) -> str:
        """Folders that a gateway needs to find the platform if it is not installed."""

    async def __aenter__(self) -> Any: ...

    async def __aexit__(self, *_: object) -> None: ...

    def section(self) -> dict[str, Any]:
        """Return `platforms.<name>` without who is allowed."""

    def private(self, person: str) -> Place: ...

    def group(self, person: str) -> Place: ...

    def thread(self, person: str) -> Place:
        """Return a thread in a group, where the bot was not spoken to yet."""

    async def listening(self) -> None:
        """Wait until a gateway receives."""

    async def say(self, place: Place, text: str, *, mention: bool = True, file: bytes = b"") -> str:
        """Speak, in groups to the bot; `file` is a text file. Return the message's id."""

    def shown(self, place: Place) -> list[SeenInChat]:
        """Return what the bot shows in a chat (threads that it opens included), oldest first."""

    async def again(self, place: Place, message_id: str) -> None:
        """Deliver a message once more; also one of the bot's own."""

    async def press(self, place: Place, shown: SeenInChat, label: str) -> Callable[[], str]:
        """Press a button; what is returned tells what whoever pressed was told so far."""

    def typing(self, place: Place) -> int:
        """Return how often typing was shown."""

    def reactions(self, place: Place, message_id: str) -> list[str]: ...

    def trouble(self, trouble: Trouble, place: Place) -> None:
        """Have the next send of the bot to a chat go wrong: LIMIT, LOST or MARKUP."""

    async def drop(self) -> None:
        """Break the connections by which the gateway receives."""

    def outage(self) -> AbstractAsyncContextManager[None]:
        """Let nothing through for the length of the body."""
