"""Errors of requests, in the envelope that OpenAI clients read.

    {"error": {"message", "type", "code", "param"}}

Handlers raise `Problem`, or any `HermesError`, which has a fitting status.
"""

from msgspec import Struct

from hermes.control.runs.runs import Draining, TooBusy
from hermes.domain.errors import (
    AgentUnavailable,
    BudgetExhausted,
    Conflict,
    HermesError,
    NobodyChosen,
    NotFound,
    StoreError,
    UsageError,
)


class ErrorDetail(Struct, frozen=True, kw_only=True):
    """What went wrong."""

    message: str
    type: str
    code: str | None = None
    param: str | None = None


class ErrorBody(Struct, frozen=True, kw_only=True):
    """The answer to a request that cannot be granted."""

    error: ErrorDetail


class Problem(HermesError):
    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str,
        param: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.problem_code = code
        self.param = param
        self.headers = headers or {}

    def body(self, message: str) -> ErrorBody:
        """Return what the client is told, with the message as it may be shown."""
        kind = _TYPES.get(self.status, "invalid_request_error")
        kind = "server_error" if self.status >= 500 else kind
        return ErrorBody(
            error=ErrorDetail(message=message, type=kind, code=self.problem_code, param=self.param)
        )


_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_STATUS: tuple[tuple[type[HermesError], int], ...] = (
    (AgentUnavailable, 503),
    (NobodyChosen, 503),
    (NotFound, 404),
    (Conflict, 409),
    (UsageError, 400),
    (BudgetExhausted, 429),
    (StoreError, 503),
    (TooBusy, 429),
    (Draining, 503),
)


def problem_of(error: HermesError) -> Problem:
    if isinstance(error, Problem):
        return error
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
    message = f"{error.message} {error.hint}".strip()
    if isinstance(error, AgentUnavailable | NobodyChosen):
        message = error.public  # where its home lies is nobody's business here
    later = {"retry-after": "1"} if status in {429, 503} else None
    return Problem(status, message, code=error.code, headers=later)
