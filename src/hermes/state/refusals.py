"""Why the ledger says no, in the same words from every store."""

from hermes.domain.errors import Conflict, NotFound, SessionBusy

__all__ = [
    "ambiguous",
    "call_started",
    "duplicate_call",
    "has_result",
    "id_taken",
    "idempotency_mismatch",
    "inbox_gone",
    "key_hash_taken",
    "nothing_to_compact",
    "run_open",
    "session_busy",
    "title_taken",
    "turn_ended",
    "turn_open",
    "unknown_call",
    "unknown_instant",
    "unknown_outbox",
    "unknown_run",
    "unknown_session",
    "unknown_turn",
]


def unknown_session(session_id: str) -> NotFound:
    """There is no such session."""
    return NotFound(
        f"There is no session `{session_id}`.",
        hint="List the sessions with: hermes sessions list",
    )


def unknown_turn(turn_id: str) -> NotFound:
    """There is no such turn."""
    return NotFound(f"There is no turn `{turn_id}`.", hint="Its session may have been deleted.")


def unknown_call(call_id: str) -> NotFound:
    """The turn has no such tool call."""
    return NotFound(
        f"The turn has no tool call `{call_id}`.",
        hint="A call is known once the reply that makes it is recorded.",
    )


def unknown_outbox(entry_id: str) -> NotFound:
    """There is no such outbox entry."""
    return NotFound(
        f"There is no outbox entry `{entry_id}`.", hint="Its session may have been deleted."
    )


def unknown_run(run_id: str) -> NotFound:
    """There is no such run."""
    return NotFound(
        f"There is no run `{run_id}`.", hint="It may have been deleted, or forgotten with time."
    )


def unknown_instant(job_id: str, due_at: float) -> NotFound:
    """The instant was not claimed."""
    return NotFound(
        f"Job `{job_id}` has no claimed instant at {due_at}.", hint="Claim an instant first."
    )


def id_taken(what: str, taken: str) -> Conflict:
    """The id is in use."""
    return Conflict(f"There is already a {what} `{taken}`.", hint="Use a new id.")


def title_taken(title: str) -> Conflict:
    """The title is in use."""
    return Conflict(
        f"Another session is already called “{title}”.",
        hint="Choose another title, or rename or delete that session.",
    )


def ambiguous(reference: str) -> Conflict:
    """Several sessions begin like this."""
    return Conflict(
        f"Several sessions have an id that begins with `{reference}`.",
        hint="Give more of the id; `hermes sessions list` shows it in full.",
    )


def session_busy(session_id: str) -> SessionBusy:
    """The session has an open turn."""
    return SessionBusy(
        f"Session `{session_id}` is in the middle of a turn.",
        hint="Wait until it has ended, or interrupt it.",
    )


def turn_open(session_id: str) -> SessionBusy:
    """The history cannot change under an open turn."""
    return SessionBusy(
        f"The history of session `{session_id}` cannot be rewound during a turn.",
        hint="Interrupt the turn first.",
    )


def turn_ended(turn_id: str) -> Conflict:
    """The turn has ended."""
    return Conflict(f"Turn `{turn_id}` has already ended.", hint="Begin a new turn.")


def inbox_gone(inbox_ids: list[int]) -> Conflict:
    """Inbox entries are not there to take."""
    listed = ", ".join(map(str, inbox_ids))
    return Conflict(
        f"Inbox entries are no longer waiting in this session: {listed}.",
        hint="Read the inbox again; another turn has taken them.",
    )


def duplicate_call(call_id: str) -> Conflict:
    """Two calls of one turn have the same id."""
    return Conflict(
        f"Two tool calls of one turn have the id `{call_id}`.", hint="Give each call its own id."
    )


def call_started(call_id: str) -> Conflict:
    """The call was started before."""
    return Conflict(
        f"Tool call `{call_id}` was already started.", hint="Its effect may have happened."
    )


def has_result(call_id: str) -> Conflict:
    """The call has its result."""
    return Conflict(f"Tool call `{call_id}` already has a result.", hint="Read it from history.")


def nothing_to_compact(session_id: str) -> Conflict:
    """No active message lies in the range."""
    return Conflict(
        f"Session `{session_id}` has nothing to compact there.",
        hint="Read the history again; it may have been compacted meanwhile.",
    )


def run_open(run_id: str) -> Conflict:
    """Nobody can go on from a run that has not ended."""
    return Conflict(
        f"Run `{run_id}` has not ended yet.", hint="Wait for its end, then go on from there."
    )


def idempotency_mismatch(idempotency_key: str) -> Conflict:
    """The idempotency key belongs to another request."""
    return Conflict(
        f"The idempotency key `{idempotency_key}` was used for another request.",
        hint="Repeat that request unchanged, or use a new idempotency key.",
    )


def key_hash_taken() -> Conflict:
    """Two API keys have the same secret."""
    return Conflict("This API key exists already.", hint="Make a new key.")
