"""InboundMessage: what every door produces.

Frozen and fully typed: there is no metadata dict for a door to smuggle
things through.
"""

import re
from enum import StrEnum
from pathlib import PurePath

from msgspec import Struct
from msgspec.structs import replace

from hermes.domain.messages import InputKind, shown_text
from hermes.domain.profile import AgentProfile
from hermes.domain.turn import ClientResult, TurnOptions


class ChatKind(StrEnum):
    """What sort of place a chat is; the values appear in session keys."""

    PRIVATE = "dm"
    GROUP = "group"
    CHANNEL = "channel"
    THREAD = "thread"
    FORUM = "forum"
    WEBHOOK = "webhook"


class Chat(Struct, frozen=True, kw_only=True, omit_defaults=True):
    kind: ChatKind
    id: str
    name: str | None = None
    topic: str | None = None
    parent_id: str | None = None
    """The chat that a thread or topic hangs under."""
    scope_id: str | None = None
    """The guild, workspace or team around it."""


class Sender(Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: str
    name: str | None = None
    alt_id: str | None = None
    """A second id for the same person, where a platform has two."""
    is_bot: bool = False
    roles: tuple[str, ...] = ()
    """Ids of the roles they have in the chat's scope, where a platform has roles."""


REFERENCE = "reference"


class Attachment(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file that came with a message: on disk, or still with the platform."""

    kind: str
    """`image`, `audio`, `voice`, `video`, `document`, or `reference`: only its text counts."""
    name: str
    path: str = ""
    """Empty until the file was fetched."""
    remote: str = ""
    """What the adapter fetches it by; the message is committed before that."""
    media_type: str | None = None
    size: int | None = None
    text: str = ""
    """What is in it, if that is short and text."""
    detail: str | None = None
    """See `domain.messages.FilePart`."""


class ReplyRef(Struct, frozen=True, kw_only=True):
    native_id: str
    text: str | None = None
    sender: Sender | None = None
    own: bool = False
    """True when the earlier message was ours."""


class RouteTerms(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a route wants the agent to be where a message came from."""

    model: str = ""
    provider: str = ""
    prompt: str = ""
    toolsets: tuple[str, ...] | None = None

    def applied(self, profile: AgentProfile) -> AgentProfile:
        if self.toolsets is not None:
            profile = replace(profile, toolsets=self.toolsets, own_toolsets=True)
        return replace(
            profile,
            note=self.prompt,
            model=self.model or profile.model,
            provider=self.provider or profile.provider,
        )


class InboundMessage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    platform: str
    account: str
    """Which of our own accounts on that platform received it."""
    native_id: str
    """The platform's id of the message; unique within platform and account."""
    chat: Chat
    sender: Sender
    text: str
    sent_at: float
    made_of: str = ""
    """The id of the message that people see, where this one is a part of it: `/queue TEXT`."""
    thread_id: str | None = None
    attachments: tuple[Attachment, ...] = ()
    reply_to: ReplyRef | None = None
    mentioned: bool = False
    """It names us."""
    missed: bool = False
    """Said while nobody listened: it stops nothing, and is answered by itself."""
    group_id: str | None = None
    """What the parts of one album share, where a platform sends them one by one."""
    context: str = ""
    """What others said before it in the chat: for the model to read, never a command."""
    reply_context: str = ""
    """The adapter's own note, given back with everything that answers this message: a reply
    token, an interaction to answer, the subject of a mail."""
    options: TurnOptions | None = None
    """What the program that sent it asks of the turn; None for people."""
    results: tuple[ClientResult, ...] = ()
    """Results of tool calls that an earlier turn handed to the program."""
    routed: RouteTerms | None = None
    """What the route that brought it here says beside the agent."""
    internal: bool = False
    """Made by Hermes itself (handoff, cron): already authorised."""
    kind: InputKind = InputKind.USER
    """Why it will be in the history."""

    @property
    def shown(self) -> str:
        return shown_text(self.text, self.kind)

    @property
    def seen_as(self) -> str:
        """The id of the message that people see, for replies and reactions."""
        return self.made_of or self.native_id


class InboxState(StrEnum):
    QUEUED = "queued"
    """A command, or what its place said after one: handled in that order, behind the commit."""
    BEGUN = "begun"
    """A command that is being run."""
    WAITING = "waiting"
    TAKEN = "taken"
    """A turn has it in its history."""
    ANSWERED = "answered"
    """The outcome of that turn has been delivered."""
    DROPPED = "dropped"
    """Deliberately not answered; the reason is recorded."""


class InboxEntry(Struct, frozen=True, kw_only=True):
    """A message that has been admitted and therefore cannot be lost."""

    id: int
    agent_id: str
    session_key: str
    session_id: str
    message: InboundMessage
    admitted_at: float
    state: InboxState = InboxState.WAITING
    turn_id: str | None = None
    drop_reason: str | None = None


ENDINGS = {"image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp"}
_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


def image_type(data: bytes) -> str | None:
    """Return the media type that the first bytes show; None if it is no picture models take."""
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in _MAGIC if data.startswith(magic)), None)


INLINE_BYTES = 100_000
"""How much text of its files a message may carry."""
_UNSAFE = re.compile(r"[^\w.-]+")


def safe_name(name: str) -> str:
    """Return a name of a file that stays inside its directory on every file system."""
    safe = _UNSAFE.sub("_", PurePath(name.replace("\\", "/")).name).strip("._") or "file"
    stem, dot, suffix = safe.rpartition(".")
    if dot and len(suffix) <= 10:
        safe = f"{stem[:60]}.{suffix}"
    return safe[:80]


def plain_text(data: bytes) -> str:
    """Return what is in a text file; nothing for other files."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return ""
    odd = any(ord(c) < 32 and c not in "\t\n\r\f\v\x1b" for c in text)
    return "" if odd else text.strip("\n")
