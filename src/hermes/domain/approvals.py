"""Approvals and questions: decisions that only a person may make.

Both are ledger rows bound to session, turn, tool call and a hash of the
arguments. They are answered once; expiry is a denial.
"""

from enum import StrEnum

from msgspec import Struct

from hermes.domain.wording import visible


class ApprovalKind(StrEnum):
    APPROVAL = "approval"
    """May this action be carried out?"""
    QUESTION = "question"
    """The model wants to know something."""


class Choice(StrEnum):
    ONCE = "once"
    SESSION = "session"
    ALWAYS = "always"
    DENY = "deny"


class ApprovalState(StrEnum):
    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"
    ANSWERED = "answered"
    EXPIRED = "expired"
    REVOKED = "revoked"


class ApprovalRequest(Struct, frozen=True, kw_only=True):
    id: str
    kind: ApprovalKind
    agent_id: str
    session_id: str
    turn_id: str
    call_id: str
    tool: str
    arguments_hash: str
    subject: str
    """What would be done: the command, the file, or the question itself."""
    reason: str
    """Why it was stopped."""
    pattern: str
    """What `session` and `always` would allow from now on."""
    choices: tuple[str, ...]
    created_at: float
    expires_at: float | None = None


def is_about(asked: str, call_id: str) -> bool:
    """Tell whether something was asked for a call, or for one that it makes itself."""
    return asked == call_id or asked.startswith(f"{call_id}:")


def granted_by(request: ApprovalRequest) -> str:
    """Return what `session` and `always` allow from now on; empty: nothing."""
    rule = request.pattern
    if rule.startswith("= ") and visible(request.subject) != request.subject.expandtabs(4):
        # The rule leaves out what cannot be seen.
        return f"{request.subject}, word for word"
    if rule.startswith("= sha256:"):
        return "this command, word for word"
    return f"{rule.removeprefix('= ')}, word for word" if rule.startswith("= ") else rule


def choice_labels(request: ApprovalRequest) -> dict[Choice, str]:
    """Return what each choice grants, as lists and buttons say it."""
    rule = f": {granted_by(request)}" if request.pattern else ""
    return {
        Choice.ONCE: "Allow once",
        Choice.SESSION: f"Allow for this conversation{rule}",
        Choice.ALWAYS: f"Always allow{rule}",
        Choice.DENY: "Deny",
    }


TURN_STOPPED = "the turn was stopped before an answer"
INPUT_ENDED = "The input has ended: nobody can answer."
"""What stands for the words of a person who cannot be asked any more."""


class Decision(Struct, frozen=True, kw_only=True):
    state: ApprovalState
    choice: Choice | None = None
    text: str = ""
    """The answer to a question, or the reason for a denial."""
    by: str = ""
    at: float = 0.0


class Approval(Struct, frozen=True, kw_only=True):
    request: ApprovalRequest
    state: ApprovalState = ApprovalState.PENDING
    decision: Decision | None = None

    @property
    def lapsed(self) -> bool:
        """Whether its turn ended before anybody answered."""
        if self.decision is None:
            return self.state is not ApprovalState.PENDING
        return self.decision.text == TURN_STOPPED and not self.decision.by


class Gate(StrEnum):
    """The policy's verdict on an action, before a person is asked."""

    ALLOW = "allow"
    ASK = "ask"
    BLOCK = "block"


class Verdict(Struct, frozen=True, kw_only=True):
    gate: Gate
    reason: str = ""
    pattern: str = ""
    opaque: bool = False
    """Whether what would run cannot be read beforehand: only a person may allow it."""
