"""The model, as the agent core sees it.

`complete` pushes deltas into a callback and returns the finished reply.
Nothing is yielded, so timeouts, task groups and cancellation work plainly:
cancelling the awaiting task closes the connection.
"""

from enum import StrEnum
from typing import Any, Protocol

from msgspec import Struct

from hermes.domain.errors import HermesError
from hermes.domain.messages import AssistantMessage, Message
from hermes.domain.tools import ToolSpec
from hermes.domain.turn import ASKABLE, Sampling
from hermes.domain.usage import Usage


class ModelRequest(Sampling, frozen=True, kw_only=True):
    """Everything one call needs, in a provider-neutral form."""

    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    max_tokens: int | None = None
    reasoning_effort: str | None = None
    """`none`, `minimal`, `low`, `medium`, `high`, `xhigh`, `max`; None = provider's default."""
    tool_choice: str | None = None
    """`none` forces a final answer, `required` or a tool's name a call; None leaves the choice
    to the model."""
    response_schema: dict[str, Any] | None = None
    schema_name: str = "reply"
    schema_strict: bool | None = None
    schema_description: str = ""
    json_object: bool = False
    session_id: str | None = None
    """Lets providers route calls of one session to the same cache."""
    task: str = "turn"


class ModelReply(Struct, frozen=True, kw_only=True):
    message: AssistantMessage
    usage: Usage
    provider: str
    model: str
    """The model that really answered."""
    cost_usd: float | None = None
    logprobs: str = ""
    """How probable the tokens of the text were: a list in JSON, as OpenAI tells it.

    Only if that was asked for. Nobody but the client reads it, and it is long.
    """


class ModelInfo(Struct, frozen=True, kw_only=True):
    provider: str
    model: str
    context_window: int | None = None
    max_output: int | None = None
    vision: bool = False
    own_prompt: str | None = None
    """A very small model gets this as its whole system prompt."""
    own_tools: tuple[str, ...] | None = None
    """The only tools such a model can handle; None: no restriction."""
    can_title: bool = True
    """Whether it is able to name a session."""
    takes: frozenset[str] = ASKABLE
    """What may be asked of it: fields of `Sampling`, and which forms of JSON."""
    max_temperature: float = 2.0
    service_tiers: tuple[str, ...] | None = None
    """The values of `service_tier` that mean something there; None: all."""


class CallListener(Protocol):
    """Hears about a call while it runs. Called on the event loop; must not block."""

    def on_text(self, text: str) -> None:
        """A piece of the answer arrived."""

    def on_reasoning(self, text: str) -> None:
        """A piece of the reasoning arrived."""

    def on_call(self, number: int, name: str, arguments: str) -> bool:
        """A piece of the arguments of a tool call arrived; `number` counts the calls of the reply.

        True: it was told to somebody who cannot take it back, so the call must not start over.
        """

    def on_notice(self, code: str, text: str) -> None:
        """Something a person should know happened: waiting, retry, fallback."""

    def on_restart(self) -> None:
        """The call starts over: text heard so far will come again."""


class FailureKind(StrEnum):
    AUTH = "auth"
    BILLING = "billing"
    RATE_LIMIT = "rate_limit"
    OVERLOADED = "overloaded"
    SERVER = "server_error"
    TIMEOUT = "timeout"
    CONNECTION = "connection"
    TLS = "tls"
    CONTEXT_OVERFLOW = "context_overflow"
    PAYLOAD_TOO_LARGE = "payload_too_large"
    IMAGE_REJECTED = "image_rejected"
    MODEL_NOT_FOUND = "model_not_found"
    WRONG_PATH = "wrong_path"
    """The server answers, but not as a model API."""
    POLICY = "policy_blocked"
    BAD_REQUEST = "bad_request"
    REASONING_REJECTED = "reasoning_rejected"
    """The provider refuses reasoning blocks that it signed earlier."""
    MALFORMED = "malformed_reply"
    EMPTY = "empty_reply"
    OVERSIZED = "oversized_reply"
    """More than anybody means to say; the same question would be answered so again."""
    UNKNOWN = "unknown"


_BUSY = "The model is busy at the moment. Try again in a minute."
_UNREACHABLE = (
    "The model gives no answer at the moment."
    " Try again in a minute; if it stays so, tell the operator."
)
_PUBLIC = {
    FailureKind.CONTEXT_OVERFLOW: "This conversation has become too long for the model."
    " /compress shortens it, /new starts over.",
    FailureKind.PAYLOAD_TOO_LARGE: "That is more than the model can take at once. Send less.",
    FailureKind.IMAGE_REJECTED: "The model cannot read this picture. Try a smaller one.",
    FailureKind.POLICY: "The model's provider refused this request.",
    FailureKind.RATE_LIMIT: _BUSY,
    FailureKind.OVERLOADED: _BUSY,
}


class ModelFailure(HermesError):
    """A call that failed after all repairs, retries and fallbacks."""

    code = "model"

    def __init__(
        self,
        kind: FailureKind,
        message: str,
        *,
        hint: str = "",
        status: int | None = None,
        retry_after: float | None = None,
        provider: str = "",
    ) -> None:
        super().__init__(message, hint=hint)
        self.kind = kind
        self.public = _PUBLIC.get(kind, _UNREACHABLE)
        self.status = status
        self.retry_after = retry_after
        self.provider = provider


class Withheld(ModelFailure):
    """A content filter of the provider held the answer back."""

    code = "content_filter"


class Model(Protocol):
    @property
    def info(self) -> ModelInfo:
        """What is known about the primary model."""

    async def complete(
        self, request: ModelRequest, listener: CallListener | None = None
    ) -> ModelReply:
        """Make one call; raise `ModelFailure` when nothing helped."""
