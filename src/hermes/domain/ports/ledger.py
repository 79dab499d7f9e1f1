"""The ledger: what survives a restart, in domain verbs.

Every method is one transaction: when it returns, what it wrote is durable.
The small protocols below group the verbs by subject; a store implements
`Ledger`, all of them together. Failures to read or write raise `StoreError`.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from msgspec import Struct

from hermes.domain.approvals import Approval, ApprovalRequest, Decision
from hermes.domain.events import TurnEvent
from hermes.domain.inbound import InboundMessage, InboxEntry, InboxState
from hermes.domain.jobs import Instant
from hermes.domain.keys import ApiKey
from hermes.domain.messages import AssistantMessage, Message, ToolMessage, UserMessage
from hermes.domain.outbound import OutboxEntry, OutboxState, Target
from hermes.domain.runs import (
    LoggedEvent,
    NewRun,
    OpenedRun,
    Run,
    RunEnding,
    RunOutcome,
    RunQuery,
)
from hermes.domain.session import Lineage, NewSession, SearchHit, Session, StoredMessage
from hermes.domain.turn import NewTurn, Turn, TurnError, TurnState
from hermes.domain.usage import Spent, TurnUsage, UsageRecord
from hermes.domain.webhooks import HookDelivery, HookState


class SessionQuery(Struct, frozen=True, kw_only=True):
    agent_id: str | None = None
    source: str | None = None
    exclude_sources: tuple[str, ...] = ()
    exclude_lineages: tuple[Lineage, ...] = ()
    title: str | None = None
    """A substring of the title, case-insensitive."""
    model: str | None = None
    user_id: str | None = None
    owner: str | None = None
    """Only those of this user, and of those within it: `owner/...`."""
    key: str | None = None
    """Beside those of `source` and `user_id`, also those that this session key has led to."""
    cwd: str | None = None
    started_before: float | None = None
    started_after: float | None = None
    updated_before: float | None = None
    ended: bool | None = None
    for_requests: bool | None = None
    """Opened by a request that named no conversation, and never given a title."""
    min_messages: int | None = None
    max_messages: int | None = None
    limit: int | None = 50
    offset: int = 0


class SessionStore(Protocol):
    async def create_session(self, new: NewSession) -> Session:
        """Open a session; `Conflict` if the id or the title is taken."""

    async def session(self, session_id: str) -> Session | None: ...

    async def find_session(self, reference: str) -> Session | None:
        """Find by id, by unambiguous id prefix, or by title.

        A title also finds its numbered continuations (`name #2`); the most
        recently used wins. An ambiguous prefix raises `Conflict`.
        """

    async def sessions(self, query: SessionQuery) -> list[Session]:
        """List sessions, most recently used first."""

    async def freeze_prompt(self, session_id: str, prompt: str) -> str:
        """Store the system prompt if there is none yet; return the stored one."""

    async def rename_session(self, session_id: str, title: str) -> Session:
        """Set the title a person chose; `Conflict` if it is taken."""

    async def name_session(self, session_id: str, title: str) -> Session:
        """Title a session that has none, numbering the title if it is taken."""

    async def update_session(
        self,
        session_id: str,
        *,
        model: str | None = None,
        provider: str | None = None,
        cwd: str | None = None,
    ) -> Session:
        """Change what a later turn of the session will use."""

    async def end_session(self, session_id: str, reason: str, at: float) -> None: ...

    async def branch_session(self, session_id: str, new: NewSession) -> Session:
        """Open `new` with a copy of the active history and the frozen prompt."""

    async def delete_session(self, session_id: str, *, idle: bool = False) -> bool:
        """Delete a session and all that belongs to it; False if unknown.

        With `idle`, `SessionBusy` if it has an open turn or run, or anything waiting.
        """

    async def prune_sessions(self, query: SessionQuery) -> int:
        """Delete all matching sessions that have no open turn; return how many."""

    async def remember(self, session_id: str, name: str, value: Any) -> None:
        """Keep a small JSON-able fact with the session; None removes it."""

    async def recall(self, session_id: str, name: str) -> Any: ...

    async def facts(self, name: str) -> dict[str, Any]:
        """Return session -> its fact of this name, for all that have one."""

    async def bind_key(self, key: str, session_id: str, at: float) -> None:
        """Point a session key at a session."""

    async def session_for_key(self, key: str) -> Session | None:
        """Return the session a key points at."""

    async def rename_agent(self, old: str, new: str, old_home: str, new_home: str) -> int:
        """Give all that belongs to an agent to its new name; return how many sessions it has.

        `Conflict` if something belongs to an agent of that name already. Directories of
        sessions below `old_home` are then below `new_home`.
        """


class SearchQuery(Struct, frozen=True, kw_only=True):
    text: str
    agent_id: str | None = None
    session_id: str | None = None
    source: str | None = None
    """Only in sessions that came in by this door."""
    user_id: str | None = None
    """Only in sessions of this user."""
    owner: str | None = None
    """Only in those of this user, and of those within it: `owner/...`."""
    exclude_session_ids: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    newest_first: bool = False
    """False: best match first."""
    limit: int = 20


class MessageStore(Protocol):
    async def rebuild_search(self) -> int:
        """Make the search index anew from the messages; return how many there are."""

    async def history(self, session_id: str) -> list[StoredMessage]:
        """Return the active messages in order: what the model is shown."""

    async def transcript(self, session_id: str) -> list[StoredMessage]:
        """Return every message in order, also undone and compacted ones."""

    async def rewind(self, session_id: str, seq: int) -> int:
        """Deactivate the messages from `seq` on; return how many.

        `Conflict` while a turn of the session is open.
        """

    async def append_messages(
        self, session_id: str, messages: Sequence[Message], at: float
    ) -> list[StoredMessage]:
        """Put messages that no turn has said at the end of a history.

        `Conflict` while a turn of the session is open.
        """

    async def hide_messages(self, session_id: str, ids: Sequence[int]) -> int:
        """Deactivate these messages; return how many. `Conflict` as with `rewind`."""

    async def compact(
        self, session_id: str, through_seq: int, summary: UserMessage
    ) -> StoredMessage:
        """Replace the active messages up to `through_seq` by `summary`, in one step.

        The originals stay, inactive. The summary takes the place of the last
        of them.
        """

    async def search(self, query: SearchQuery) -> list[SearchHit]:
        """Search all messages, in any language, by words or by substring."""


class Arrival(Struct, frozen=True, kw_only=True):
    """A routed message on its way into the inbox."""

    agent_id: str
    session_key: str
    session_id: str
    message: InboundMessage
    at: float
    state: InboxState = InboxState.WAITING
    handled_as: str | None = None
    """Set when no turn is to answer it, e.g. `answer`: it is kept for recognition only."""


class Admission(Struct, frozen=True, kw_only=True):
    entry: InboxEntry
    duplicate: bool
    """True if it had been admitted before; `entry` is then the first one."""


class InboxStore(Protocol):
    """Messages that arrived: committed before the platform is told so."""

    async def admit(self, arrival: Arrival) -> Admission:
        """Commit a message under (platform, account, native id), once.

        One that is queued leaves the queue when it is admitted in another state.
        """

    async def came_before(self, message: InboundMessage) -> bool:
        """Tell whether a message was admitted under its platform, account and native id."""

    async def queued(self, platforms: Sequence[str]) -> list[InboxEntry]:
        """Return queued messages and commands that have begun, in order of admission."""

    async def waiting(self, session_id: str) -> list[InboxEntry]:
        """Return what no turn has taken yet, in order of admission."""

    async def sessions_waiting(self) -> list[str]:
        """Return the sessions that have something waiting."""

    async def mark_answered(self, turn_id: str) -> int:
        """Record that the outcome of a turn has been delivered; return for how many entries."""

    async def asked_before(self, entry: InboxEntry, since: float) -> list[int]:
        """Return what others asked in the chat of `entry` before it, and has no answer yet."""

    async def unanswered(self, platforms: Sequence[str]) -> list[InboxEntry]:
        """Return what a turn has taken whose outcome was not delivered yet, oldest first."""

    async def entry(self, inbox_id: int) -> InboxEntry | None: ...

    async def entries_of_turn(self, turn_id: str) -> list[InboxEntry]:
        """Return what a turn has taken, in order of admission."""

    async def drop(self, inbox_ids: Sequence[int], reason: str) -> None:
        """Record that these will deliberately not be answered."""


class BegunTurn(Struct, frozen=True, kw_only=True):
    """A turn that has just begun, with its inputs in their seats."""

    turn: Turn
    inputs: tuple[StoredMessage, ...]


class TurnStore(Protocol):
    async def begin_turn(self, new: NewTurn) -> BegunTurn:
        """Commit the turn, its inputs and the taking of its inbox entries together.

        `SessionBusy` if the session has an open turn; `NotFound` for an
        unknown session. Inbox entries that are no longer waiting are an error.
        Calls that an earlier turn handed to its client get the results in
        `new.results`, or one saying that they were not answered; results for
        any other call are ignored.
        """

    async def add_inputs(
        self, turn_id: str, inputs: Sequence[UserMessage], inbox_ids: Sequence[int], at: float
    ) -> list[StoredMessage]:
        """Append steering text or a notice to a running turn."""

    async def record_reply(
        self,
        turn_id: str,
        message: AssistantMessage,
        usage: UsageRecord | None,
        at: float,
        *,
        ends: bool | RunEnding = False,
        prompt: str | None = None,
    ) -> StoredMessage:
        """Commit an assistant message and its usage; seats its calls' results.

        `ends`: the turn is done with it, and so is the run that is given, as by `finish_run`.
        `prompt`: what the session is to keep as its system prompt, as by `freeze_prompt`.
        """

    async def start_call(self, turn_id: str, call_id: str, at: float) -> None:
        """Record that a call is about to have its effect. Called at most once a call."""

    async def started_calls(self, turn_id: str) -> frozenset[str]:
        """Return the calls of the turn that were started."""

    async def record_result(self, turn_id: str, message: ToolMessage, at: float) -> StoredMessage:
        """Commit a tool result in its reserved seat; `Conflict` if it has one already."""

    async def set_waiting(self, turn_id: str, *, waiting: bool, at: float) -> None:
        """Switch between running and waiting on a person."""

    async def finish_turn(
        self,
        turn_id: str,
        state: TurnState,
        error: TurnError | None,
        at: float,
        *,
        handed: bool = False,
    ) -> None:
        """End the turn. Ending it again is a `Conflict`.

        `handed`: calls of it wait for results that only its client can give.
        """

    async def turn(self, turn_id: str) -> Turn | None: ...

    async def open_turns(self, session_id: str | None = None) -> list[Turn]:
        """Return turns that have not ended, oldest first."""

    async def release_turn(self, turn_id: str, at: float) -> None:
        """Record that its owner released an open turn in an orderly stop, to be resumed later."""

    async def claim_turn(
        self, turn_id: str, *, owner: str, previous: str, at: float
    ) -> Turn | None:
        """Take over an open turn of a dead owner and count the resume.

        None if another process took it or it has ended.
        """


class OutboxStore(Protocol):
    async def enqueue(self, entry: OutboxEntry) -> OutboxEntry:
        """Commit an entry; an id that exists already returns the existing one."""

    async def outbox_entry(self, entry_id: str) -> OutboxEntry | None: ...

    async def claim_send(self, entry_id: str, at: float) -> OutboxEntry | None:
        """Move pending to sending, counting the attempt; None if it is not pending."""

    async def update_outbox(
        self,
        entry_id: str,
        *,
        state: OutboxState,
        at: float,
        native_id: str | None = None,
        content: str | None = None,
        error: str | None = None,
    ) -> OutboxEntry:
        """Record the outcome of a send or an edit. Unset fields stay as they are."""

    async def outbox_of_turn(self, turn_id: str) -> list[OutboxEntry]:
        """Return everything that a turn has sent or wants to send, in order."""

    async def outbox(self, states: Sequence[OutboxState], *, limit: int = 100) -> list[OutboxEntry]:
        """List entries in these states, oldest first and in order within a turn."""

    async def seen_in_chat(self, target: Target, account: str) -> dict[str, float]:
        """Return the ids of the newest messages of a chat, both ways, and since when known."""


class ApprovalStore(Protocol):
    async def ask(self, request: ApprovalRequest) -> Approval:
        """Commit a request; one for the same turn and call returns the existing."""

    async def approval(self, approval_id: str) -> Approval | None: ...

    async def decide(self, approval_id: str, decision: Decision) -> Approval | None:
        """Record the one answer; None if it was not pending any more."""

    async def pending_approvals(self, session_id: str | None = None) -> list[Approval]:
        """Return what waits for an answer, oldest first."""

    async def grants(self, agent_id: str, session_id: str) -> list[Approval]:
        """Return standing permissions: `session` ones of this session, and `always`."""

    async def approvals(self, *, limit: int = 50) -> list[Approval]:
        """List the newest, decided or not."""

    async def revoke(self, approval_id: str, at: float) -> bool:
        """Withdraw a standing permission; False if there is none."""


class UsageStore(Protocol):
    async def record_usage(self, record: UsageRecord) -> None:
        """Commit the usage of a call that is not part of a reply, e.g. a title."""

    async def spent(
        self,
        *,
        session_id: str | None = None,
        agent_id: str | None = None,
        since: float | None = None,
    ) -> Spent:
        """Sum up usage."""

    async def usage_of_turn(self, turn_id: str) -> TurnUsage:
        """Sum up the replies of one turn, and of the child turns that it waited for."""

    async def usage_by_model(self, session_id: str | None = None) -> list[tuple[str, str, Spent]]:
        """Sum up usage by (provider, model), dearest first."""


class RunStore(Protocol):
    async def open_run(self, new: NewRun) -> OpenedRun:
        """Commit the run, its session and the admission of its message together.

        An idempotency key that the same API key used before finds that run
        (`duplicate`); `Conflict` if its fingerprint is another one. `NotFound`
        for a session or an earlier run that is not there.
        """

    async def run(self, run_id: str) -> Run | None: ...

    async def runs(self, query: RunQuery) -> list[Run]:
        """List runs, newest first."""

    async def run_under(self, key_id: str, idempotency_key: str) -> Run | None:
        """Return the run that an API key opened under an idempotency key."""

    async def note_delivery(self, run_id: str) -> None:
        """Note that the answer of a run went out whole."""

    async def runs_retried(
        self, key_id: str, fingerprint: str, at: float, *, since: float = 0.0
    ) -> list[Run]:
        """Return runs of the same request that are open or ended lately, newest first.

        Not those that ended before `since` and whose answer went out whole.
        """

    async def runs_after(self, key_id: str, agent_id: str, digest: str) -> list[Run]:
        """Return the newest runs of a key in which exactly this had been said, newest first."""

    async def log_run(self, run_id: str, events: Sequence[TurnEvent], at: float) -> int:
        """Append events; return the id of the last one in the log."""

    async def run_log(self, run_id: str, *, after: int = 0, limit: int = 1000) -> list[LoggedEvent]:
        """Return logged events with an id greater than `after`, in order."""

    async def finish_run(
        self, run_id: str, outcome: RunOutcome, events: Sequence[TurnEvent], at: float
    ) -> bool:
        """Append the last events and record the outcome together; False if it had one.

        The message counts as answered from then on.
        """

    async def delete_run(self, run_id: str) -> bool:
        """Forget a run and its log; False if there is none. Its session stays."""

    async def prune_runs(self, *, logs_before: float, runs_before: float) -> int:
        """Drop old logs, and old runs altogether, of runs that have ended."""

    async def handed_call(self, call_id: str) -> str | None:
        """Return the session in which this call waits for its client's result."""


class KeyStore(Protocol):
    """Keys that were made; a revoked one is kept, so that it stays known as revoked."""

    async def add_key(self, key: ApiKey) -> None:
        """Commit a new key; `Conflict` if the id, the name or the hash is taken."""

    async def key_by_hash(self, hash: str) -> ApiKey | None:  # noqa: A002
        """Return the key with this hash, also if it is revoked or expired."""

    async def keys(self) -> list[ApiKey]: ...

    async def revoke_key(self, reference: str, at: float) -> ApiKey | None:
        """Revoke by id or name; None if there is no such key that is still good."""

    async def touch_key(self, key_id: str, at: float) -> None: ...


class HookStore(Protocol):
    async def recognise_hook(
        self, route: str, proof: str, delivery_id: str, at: float, since: float
    ) -> str:
        """Commit that a delivery brought this proof; return the first that did since `since`."""

    async def receive_hook(self, delivery: HookDelivery) -> HookDelivery | None:
        """Commit a delivery; None if it is under way, done or ignored already.

        One that failed before is taken again, with its attempt counted up.
        """

    async def update_hook(
        self,
        route: str,
        delivery_id: str,
        *,
        state: HookState,
        at: float,
        session_id: str | None = None,
        error: str | None = None,
    ) -> HookDelivery | None:
        """Record how far a delivery has come; unset fields stay as they are. None: unknown."""

    async def hook(self, route: str, delivery_id: str) -> HookDelivery | None: ...

    async def hooks(self, states: Sequence[HookState], *, limit: int = 100) -> list[HookDelivery]:
        """List deliveries in these states, oldest first."""

    async def prune_hooks(self, before: float) -> int:
        """Forget deliveries that were over before then; return how many."""


class InstantStore(Protocol):
    """What became of each due instant, in the ledger."""

    async def instants(self, job_id: str, *, limit: int = 50) -> list[Instant]:
        """List the instants of a job, newest first."""


class LedgerStats(Struct, frozen=True, kw_only=True):
    sessions: int
    messages: int
    turns: int
    open_turns: int
    inbox_waiting: int
    outbox_pending: int
    approvals_pending: int
    by_source: dict[str, int]
    bytes: int
    schema_version: int


class Ledger(
    SessionStore,
    MessageStore,
    InboxStore,
    TurnStore,
    OutboxStore,
    ApprovalStore,
    UsageStore,
    RunStore,
    KeyStore,
    InstantStore,
    HookStore,
    Protocol,
):
    async def keep(self, name: str, value: Any) -> None:
        """Keep a small JSON-able fact that belongs to no session; None removes it."""

    async def kept(self, name: str) -> Any: ...

    async def stats(self) -> LedgerStats: ...

    async def close(self) -> None:
        """Finish what was handed in and close the files."""
