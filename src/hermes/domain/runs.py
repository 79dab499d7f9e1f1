"""Run: one request over HTTP and its outcome.

    queued -> running <-> waiting -> completed | incomplete | failed | cancelled

A run is opened in the transaction that admits its message, so a request that
was accepted exists with everything it needs. Its turn does the work; the run
remembers who asked, what was asked for, and the outcome. Runs that are logged
also keep the events of their turn under ids that count from 1 without a gap.
"""

from enum import StrEnum
from typing import Any

from msgspec import Struct

from hermes.domain.approvals import ApprovalRequest
from hermes.domain.events import TurnEvent
from hermes.domain.inbound import InboundMessage, InboxEntry
from hermes.domain.messages import Message, ToolCall
from hermes.domain.session import NewSession, Opening
from hermes.domain.turn import NewTurn, Turn, TurnError
from hermes.domain.usage import Usage

RETRIED_WITHIN = 60.0
"""Seconds after the end of a run in which a client may still ask for it once more."""


class RunKind(StrEnum):
    CHAT = "chat"
    RESPONSE = "response"
    RUN = "run"
    SESSION = "session"
    """A message to a session by its id, over `/api/sessions/{id}/chat`."""
    WEBHOOK = "webhook"


class RunState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    """On a person's answer."""
    COMPLETED = "completed"
    INCOMPLETE = "incomplete"
    """It ended, but the answer was cut off: by its length limit or by the client leaving."""
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def open(self) -> bool:
        return self in (RunState.QUEUED, RunState.RUNNING, RunState.WAITING)


class SessionChoice(Struct, frozen=True, kw_only=True):
    """Which session a run continues; with nothing set it opens one of its own."""

    session_id: str | None = None
    """This one; `NotFound` if there is none."""
    opened: bool = False
    """There is none yet under that id or key: the session is opened, with a history if one came."""
    key: str | None = None
    """The one this session key points at; a new one is bound to it if there is none."""
    after_run: str | None = None
    """Continue where that run ended: in its session if nothing was said since and no other
    run continued from there, else in a branch of it."""
    turn_id: str | None = None
    """Join this turn of the session, which waits for the answer that the request gives."""


class RunTerms(Struct, frozen=True, kw_only=True):
    """What a request says about its run, beside the message."""

    id: str
    """Chosen by the door in the form its clients know: `run_…`, `resp_…`, `chatcmpl-…`."""
    kind: RunKind
    key_id: str
    """The API key that asked."""
    agent_id: str
    choice: SessionChoice = SessionChoice()
    history: tuple[Message, ...] = ()
    """What was said before, for a new session that is not a branch."""
    request: dict[str, Any] = {}
    """Parts of the request that the door needs later."""
    idempotency_key: str | None = None
    fingerprint: str = ""
    """Of the request; another one under the same idempotency key is a `Conflict`."""
    digest: str | None = None
    """Of everything that was said up to and with the request, if the client sent all of it."""
    logged: bool = False


class NewRun(RunTerms, frozen=True, kw_only=True):
    session: NewSession
    """Opened if the choice needs a new session."""
    message: InboundMessage
    session_key: str
    turn: NewTurn | None = None
    """Begun with it if the session is opened for it: nothing else can be in its way there."""
    at: float


class RunOutcome(Struct, frozen=True, kw_only=True, omit_defaults=True):
    state: RunState
    text: str = ""
    handed: tuple[ToolCall, ...] = ()
    """Calls of client tools that the client has to carry out now."""
    usage: Usage = Usage()
    cost_usd: float | None = None
    model_calls: int = 0
    error: TurnError | None = None
    logprobs: str | tuple[dict[str, Any], ...] = ""
    """See `domain.ports.model.ModelReply`; earlier versions have written its elements."""
    asked: ApprovalRequest | None = None
    """The question that it ended with, for a client that answers in words; its turn waits."""


class RunEnding(Struct, kw_only=True):
    """The outcome of a run that is to be committed with the end of its turn."""

    run_id: str
    outcome: RunOutcome
    kept: bool = False
    """Whether it has been."""


class Run(Struct, frozen=True, kw_only=True):
    id: str
    kind: RunKind
    key_id: str
    agent_id: str
    session_id: str
    inbox_id: int
    turn_id: str | None = None
    """Set once a turn has taken its message."""
    state: RunState = RunState.QUEUED
    request: dict[str, Any] = {}
    idempotency_key: str | None = None
    logged: bool = False
    created_at: float
    updated_at: float
    outcome: RunOutcome | None = None
    through_seq: int | None = None
    """The last seat of the session's history when it ended."""
    previous_id: str | None = None
    """The run that it continues."""
    branched: bool = False
    """True if it continues that run in a branch."""


class OpenedRun(Struct, frozen=True, kw_only=True):
    run: Run
    entry: InboxEntry
    turn: Turn | None = None
    """What has taken the message already."""
    opening: Opening | None = None
    """What that turn finds, if its session is new."""
    duplicate: bool = False


class LoggedEvent(Struct, frozen=True, kw_only=True):
    seq: int
    at: float
    event: TurnEvent


class RunQuery(Struct, frozen=True, kw_only=True):
    key_id: str | None = None
    agent_id: str | None = None
    session_id: str | None = None
    kinds: tuple[RunKind, ...] = ()
    states: tuple[RunState, ...] = ()
    updated_before: float | None = None
    limit: int | None = 50
    offset: int = 0
