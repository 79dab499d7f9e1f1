"""Sessions and their keys.

A session is one conversation with one agent: a frozen system prompt and a
growing history. A session key names a place where people talk; it points at
the session that is current there and can be pointed at another.
"""

from enum import StrEnum
from typing import Any

from msgspec import Struct

from hermes.domain.inbound import ChatKind, InboundMessage
from hermes.domain.messages import Message
from hermes.domain.usage import Usage

MODEL_OVERRIDE = "model_override"
CHILD_OF = "child_of"
"""The fact of a child turn's session that names the conversation it all began in."""
PROCESSES = "processes"
"""The fact of a session that tells its background processes, for the time after a restart:
`{id, mark, command, owner, notify}`; the mark is in the environment of the process."""
ENDED_PROCESSES = "ended_processes"
"""The fact of a session that tells how they ended: `{id: exit code}`, the newest last."""
KEPT_INSIDE = "kept_inside"
"""The fact of a session that tells what a person did not want to run outside of the sandbox:
digests of commands, and why they had failed inside."""
YOLO = "yolo"
"""The fact of a session in which nothing is to be asked."""
WORKSPACE_OF = "workspace_of"
"""The fact of a child turn's session that names the one whose files it works on."""
"""Where a session remembers a model chosen for it alone: `{provider, model}`."""


class SessionKey(Struct, frozen=True, kw_only=True):
    agent_id: str
    platform: str
    kind: ChatKind
    chat_id: str
    thread_id: str | None = None
    user_id: str | None = None

    def __str__(self) -> str:
        head = f"agent:{self.agent_id}:{self.platform}:{self.kind.value}:{self.chat_id}"
        return ":".join([head, *(part for part in (self.thread_id, self.user_id) if part)])


class KeyScope(Struct, frozen=True, kw_only=True):
    group_per_user: bool = True
    """In groups everybody has a conversation of their own."""
    thread_per_user: bool = False
    """Threads are shared by their participants unless this is set."""


def session_key(agent_id: str, message: InboundMessage, scope: KeyScope) -> SessionKey:
    """Derive the key of the conversation that `message` belongs to."""
    private = message.chat.kind is ChatKind.PRIVATE
    in_thread = message.thread_id is not None
    per_user = scope.thread_per_user if in_thread else scope.group_per_user
    sender = message.sender.alt_id or message.sender.id
    return SessionKey(
        agent_id=agent_id,
        platform=message.platform,
        kind=message.chat.kind,
        chat_id=message.chat.id,
        thread_id=message.thread_id,
        user_id=None if private or not per_user else sender,
    )


class Lineage(StrEnum):
    BRANCH = "branch"
    COMPRESSION = "compression"
    DELEGATION = "delegation"


class NewSession(Struct, frozen=True, kw_only=True):
    id: str
    agent_id: str
    source: str
    """The door it came in by: `cli`, `telegram`, `api_server`, `cron`, ..."""
    started_at: float
    model: str = ""
    provider: str = ""
    cwd: str | None = None
    user_id: str | None = None
    parent_id: str | None = None
    lineage: Lineage | None = None
    title: str | None = None
    for_requests: bool = False
    """Opened by a request over HTTP that named no conversation."""


class Session(NewSession, frozen=True, kw_only=True):
    updated_at: float
    system_prompt: str | None = None
    """None until the first turn freezes it."""
    ended_at: float | None = None
    end_reason: str | None = None
    message_count: int = 0
    tool_call_count: int = 0
    usage: Usage = Usage()
    cost_usd: float = 0.0
    preview: str = ""
    """The beginning of the first user message, for lists."""
    state: dict[str, Any] = {}
    """Small durable facts tools and doors keep with the session."""

    @property
    def family(self) -> str:
        """The session whose budget counts: for a child turn, that of whoever asked for it."""
        return str(self.state.get(CHILD_OF) or self.id)

    @property
    def workspace(self) -> str:
        """The session in whose environment the tools work."""
        return str(self.state.get(WORKSPACE_OF) or self.id)


class StoredMessage(Struct, frozen=True, kw_only=True):
    """A message with its seat in the history.

    `seq` orders a session. An assistant message reserves the seats after it
    for the results of its calls, so results stand in call order whatever order
    they arrive in.
    """

    id: int
    session_id: str
    turn_id: str | None
    seq: int
    at: float
    message: Message
    active: bool = True
    """False once undone or compacted: kept for search, not sent to the model."""


class Opening(Struct, frozen=True):
    """A session as its first turn finds it."""

    session: Session
    history: tuple[StoredMessage, ...]


class SearchHit(Struct, frozen=True, kw_only=True):
    session_id: str
    title: str | None
    source: str
    message_id: int
    seq: int
    role: str
    at: float
    snippet: str
    """The matching part, with the match between `[` and `]`."""
