"""Chat platforms as data, and where they are found.

A distribution brings a platform, ours included, by

    [project.entry-points."hermes.platforms"]
    telegram = "hermes.entry.chat.telegram.manifest:PLATFORM"

Listing the platforms imports only what says what they are, never an adapter or a library.
"""

import logging
from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import cache
from math import inf
from typing import Any

from msgspec import Struct

from hermes.domain.entry_points import entry_points, load_entry_point
from hermes.domain.errors import ConfigError

log = logging.getLogger(__name__)

GROUP = "hermes.platforms"


class LengthUnit(StrEnum):
    UTF16 = "utf16"
    CODEPOINTS = "codepoints"
    BYTES = "bytes"


class Rate(Struct, frozen=True):
    """At most `calls` in any `seconds`, `burst` of them at once; without `calls`: no limit."""

    calls: int = 0
    seconds: float = 1.0
    burst: int = 1
    reserve: int = 1
    """Of the burst, what typing, reactions and previews leave for answers."""

    @property
    def per_second(self) -> float:
        """How fast a used-up burst comes back, so that no span of `seconds` sees more."""
        return (self.calls - self.burst) / self.seconds if self.calls else inf


class Limits(Struct, frozen=True, kw_only=True):
    """How many calls a platform takes; edits, typing and reactions count like messages."""

    private: Rate = Rate(20, 20.0, burst=3)
    """To one private chat."""
    group: Rate = Rate(20, 60.0, burst=8, reserve=6)
    """To any other chat: six people who ask at once are answered at once."""
    account: Rate = Rate()
    """Of one account, to whatever chats."""
    platform: Rate = Rate()
    """Of all accounts of this process."""


class Capabilities(Struct, frozen=True, kw_only=True):
    max_length: int
    """Of a message that is sent."""
    edit_length: int = 0
    """Of a message that is edited; 0: the same."""
    edit_seconds: float = 0.0
    """At the least so long after an edit comes the next one, whatever is configured; what is
    final does not wait."""
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
    command_mark: str = "/"
    """What people put in front of a command, also in threads."""
    typing: bool = False
    reactions: bool = False
    idempotent_sends: bool = False
    """A send may be repeated with the same key without a second message."""
    idempotent_seconds: float = inf
    """So long; after that it is looked for, if the adapter can (`SentHistory`)."""
    media: frozenset[str] = frozenset()
    """Kinds of files it can send natively: image, voice, audio, video, document."""
    album_size: int = 0
    """How many pictures can be sent together (`AlbumSender`); 0: none."""
    limits: Limits = Limits()
    typing_seconds: float = 4.0
    """Seconds after which a typing signal must be repeated."""
    signs_apart: bool = True
    """Typing and reactions have limits of their own: those of messages are another matter."""

    @property
    def live(self) -> bool:
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


class ChatPlatform(Struct, frozen=True, kw_only=True):
    """A platform, as it can be listed without importing its adapter."""

    name: str
    label: str
    capabilities: Capabilities
    adapter: str
    """`module:class`, imported with its first use."""
    credentials: tuple[Credential, ...] = ()
    """All of them must be set; the platform is on if they are and nothing else is said."""
    settings: str = ""
    """`module:struct` of its settings; without one its keys are not checked."""
    hint: str = ""
    """What a model must know to write there: formatting, files, silence. Part of the prompt."""
    setup: str = ""
    """What to do first to get credentials."""
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

    @property
    def settings_type(self) -> type[Any] | None:
        return load_entry_point(self.settings) if self.settings else None


@cache
def platforms() -> Mapping[str, ChatPlatform]:
    """Return the installed platforms by name; a package that is broken is named and left out."""
    found: dict[str, ChatPlatform] = {}
    for name, target in entry_points(GROUP).items():
        try:
            found[name] = load_entry_point(target)
        except ConfigError as error:
            log.warning("The chat platform %s is left out. %s", name, error.message)
    return {each.name: each for each in found.values()}


def credentials() -> Iterator[tuple[ChatPlatform, Credential]]:
    for platform in platforms().values():
        for each in platform.credentials:
            yield platform, each
