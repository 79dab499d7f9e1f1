"""Errors that a person can act on.

Every failure that may reach a user is a `HermesError`: one sentence saying
what is wrong and a `hint` saying what to do next. Doors print both and never
a traceback. A bug is anything that is *not* a `HermesError`.
"""

from typing import ClassVar, Protocol


class HermesError(Exception):
    """A failure with an explanation and a next step."""

    exit_code: ClassVar[int] = 1
    code: ClassVar[str] = "error"
    public: str = ""
    """What people are told who are not the operator; empty: see `failure_text`."""

    def __init__(self, message: str, *, hint: str = "", public: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if public:
            self.public = public

    @property
    def whole(self) -> str:
        """What is wrong and what to do, for the operator."""
        return f"{self.message} {self.hint}".strip()


class UsageError(HermesError):
    exit_code = 2
    code = "usage"


class ConfigError(HermesError):
    exit_code = 78
    code = "config"


class MissingExtra(HermesError):
    exit_code = 78
    code = "missing_extra"

    def __init__(self, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the optional part `{extra}`, which is not installed.",
            hint=f"Install it with: pip install 'hermes-gateway[{extra}]'",
        )


class NotFound(HermesError):
    exit_code = 4
    code = "not_found"


class AgentUnavailable(NotFound):
    """An agent that is configured cannot work; the reason is for the operator."""

    exit_code = 78
    code = "agent_unavailable"

    def __init__(self, agent_id: str, reason: str, public: str = "") -> None:
        """`public` is the reason in general words, a sentence."""
        super().__init__(
            f"The agent `{agent_id}` cannot answer: {reason}",
            hint="See `hermes status`; the other agents are not concerned.",
        )
        self.public = (
            f"The agent `{agent_id}` cannot answer at the moment."
            f" {public or 'Its configuration has a mistake.'}"
            " The operator finds more with `hermes status`."
        )


class NobodyChosen(NotFound):
    """What chooses the agent of a message has failed: nobody answers in its place."""

    exit_code = 78
    code = "agent_unavailable"
    public = (
        "Nobody can answer here: what chooses the agent has failed (a hook or a route)."
        " Please tell the operator, who finds the reason with `hermes status`."
    )


class Conflict(HermesError):
    exit_code = 5
    code = "conflict"


class SessionBusy(Conflict):
    code = "session_busy"


class StoreError(HermesError):
    exit_code = 74
    code = "store"


class StoreTooNew(StoreError):
    code = "store_too_new"


class BudgetExhausted(HermesError):
    exit_code = 6
    code = "budget"
    public = "The budget for this is used up. The operator can raise it."


class ToolLimit(HermesError):
    """A model that may call no more tools asked for one, and said nothing."""

    code = "max_tool_calls"
    public = "No more tools may be used for this, and there is no answer without them. Ask again."


class ToolRefused(HermesError):
    """A tool call was not carried out; the text goes to the model."""

    code = "tool_refused"


FOR_PEOPLE = frozenset(
    {"usage", "not_found", "conflict", "session_busy", "tool_refused", "compaction_impossible"}
    | {"resume_limit", "too_old", "blocked", "shutdown", "stopped", "lost", "dropped"}
)
"""Codes of failures that say nothing about how Hermes is set up."""
NOT_FOR_PEOPLE = (
    "Something is wrong on my side. Try again in a minute; if it stays so, tell the operator,"
    " who finds the reason in the log."
)


class Explained(Protocol):
    """An error or the record of one."""

    @property
    def code(self) -> str: ...
    @property
    def message(self) -> str: ...
    @property
    def hint(self) -> str: ...
    @property
    def public(self) -> str: ...


def failure_text(error: Explained, *, operator: bool) -> str:
    """Tell what went wrong: addresses, providers and how to mend it are for the operator."""
    if operator or (error.code in FOR_PEOPLE and not error.public):
        return f"{error.message}\n{error.hint}".strip()
    return error.public or NOT_FOR_PEOPLE
