"""The seam between protocols, transport and client.

A protocol encodes a request into a `WireCall` and decodes what comes back
through a `Decoder`. A `WireFault` is anything that goes wrong on the way; it
carries the evidence, and `failures` decides what it means.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from hermes.domain.messages import AssistantMessage
from hermes.domain.ports.model import CallListener, FailureKind
from hermes.domain.usage import Usage
from hermes.models.bounds import CHARS

_encoder = msgspec.json.Encoder(order="deterministic")


def encode_json(value: Any) -> bytes:
    """Encode with sorted keys, so that equal values are equal bytes."""
    return _encoder.encode(value)


class WireCall(Struct, frozen=True, kw_only=True):
    url: str
    headers: dict[str, str]
    body: bytes
    stream: bool
    verify: bool = True
    ca_file: str = ""


class Repairs(Struct, frozen=True, kw_only=True):
    """What a second try leaves out because the provider refused it."""

    strip_images: bool = False
    drop_reasoning: bool = False
    drop_fields: frozenset[str] = frozenset()
    rename_output_limit: bool = False
    no_stream: bool = False


class Decoded(Struct, frozen=True, kw_only=True):
    message: AssistantMessage
    usage: Usage
    model: str
    complete: bool
    """The provider said that it had finished; otherwise the stream was cut off."""
    cost_usd: float | None = None
    """What the provider itself says that it cost."""
    logprobs: str = ""
    """See `domain.ports.model.ModelReply`."""


_MAX_MESSAGE = 2000


class WireFault(Exception):
    def __init__(
        self,
        message: str,
        *,
        kind: FailureKind | None = None,
        status: int | None = None,
        headers: Mapping[str, str] | None = None,
        code: str = "",
        connected: bool = True,
    ) -> None:
        message = message[:_MAX_MESSAGE]
        super().__init__(message)
        self.message = message
        self.kind = kind
        """Set where it is known without looking at the text."""
        self.status = status
        self.headers = headers or {}
        self.code = code
        self.connected = connected
        """False: there was nobody to talk to."""


_STATUSES = {
    "authentication_error": 401,
    "permission_error": 403,
    "invalid_request_error": 400,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "api_error": 500,
    "server_error": 500,
    "server_is_overloaded": 503,
    "timeout_error": 504,
    "overloaded_error": 529,
}


def stream_fault(error: Any) -> WireFault:
    """Return the fault that a provider reports inside an answer that began well."""
    if not isinstance(error, dict):
        return WireFault(str(error))
    code = str(error.get("code") or error.get("type") or "")
    status = int(code) if code.isdigit() else _STATUSES.get(code)
    return WireFault(str(error.get("message") or code or error), status=status, code=code)


class TokenDetails(Struct, gc=False):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    cache_creation_tokens: int | None = None
    reasoning_tokens: int | None = None


class OpenAIUsage(Struct):
    """Token counts in the spellings of OpenAI and of those who imitate it."""

    prompt_tokens: int | None = None
    input_tokens: int | None = None
    completion_tokens: int | None = None
    output_tokens: int | None = None
    prompt_tokens_details: TokenDetails | None = None
    input_tokens_details: TokenDetails | None = None
    completion_tokens_details: TokenDetails | None = None
    output_tokens_details: TokenDetails | None = None
    prompt_cache_hit_tokens: int | None = None
    cached_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost: float | None = None

    def total(self) -> Usage:
        given = self.prompt_tokens_details or self.input_tokens_details or TokenDetails()
        made = self.completion_tokens_details or self.output_tokens_details or TokenDetails()
        return Usage(
            input_tokens=self.prompt_tokens or self.input_tokens or 0,
            output_tokens=self.completion_tokens or self.output_tokens or 0,
            cache_read_tokens=given.cached_tokens
            or self.prompt_cache_hit_tokens
            or self.cached_tokens
            or self.cache_read_input_tokens
            or 0,
            cache_write_tokens=given.cache_write_tokens
            or given.cache_creation_tokens
            or self.cache_creation_input_tokens
            or 0,
            reasoning_tokens=made.reasoning_tokens or self.reasoning_tokens or 0,
        )


class Sink:
    """Passes deltas on to a listener and remembers whether it heard any.

    Pieces of one kind between `gather` and `flush` are told as one.
    """

    def __init__(self, listener: CallListener | None, *, logprobs: bool = False) -> None:
        self._listener = listener
        self._gathered: list[str] | None = None
        self._kind: tuple[Any, ...] | None = None
        """What tells that which is gathered, and of which call it is."""
        self._chars = 0
        self.logprobs = logprobs
        """Whether anybody asked how probable the tokens are."""
        self.heard = False
        self.final = False
        """Something was told that nobody can take back."""

    def gather(self) -> None:
        self._gathered = []

    def flush(self) -> None:
        pieces, self._gathered = self._gathered, None
        if pieces and self._kind is not None:
            tell, *of = self._kind
            tell(*of, "".join(pieces))

    def text(self, text: str) -> None:
        if self._gathered is not None:
            self._gather((self.text,), text)
            return
        self.count(len(text))
        self.heard = True
        if self._listener is not None:
            self._listener.on_text(text)

    def reasoning(self, text: str) -> None:
        if self._gathered is not None:
            self._gather((self.reasoning,), text)
            return
        self.count(len(text))
        self.heard = True
        if self._listener is not None:
            self._listener.on_reasoning(text)

    def call(self, number: int, name: str, arguments: str) -> None:
        if self._gathered is not None:
            self._gather((self.call, number, name), arguments)
            return
        self.count(len(arguments))
        if self._listener is not None and self._listener.on_call(number, name, arguments):
            self.final = True

    def count(self, chars: int) -> None:
        """Count what is kept of an answer; `AnswerTooLarge` if it is too much."""
        self._chars += chars
        if self._chars > CHARS.most:
            CHARS.hold(self._chars)

    def _gather(self, kind: tuple[Any, ...], piece: str) -> None:
        if kind != self._kind or self._gathered is None:
            self.flush()
            self._gathered, self._kind = [], kind
        self._gathered.append(piece)

    def notice(self, code: str, text: str) -> None:
        if self._listener is not None:
            self._listener.on_notice(code, text)

    def restart(self) -> None:
        self._gathered = None
        self._chars = 0
        if self.heard and self._listener is not None:
            self._listener.on_restart()
        self.heard = False


class Decoder(Protocol):
    """Builds one reply out of events or out of one document.

    What is not of the protocol's form raises `MsgspecError`.
    """

    @property
    def done(self) -> bool:
        """Whether nothing more is to come."""

    def feed(self, data: bytes) -> None:
        """Take the data of one server-sent event."""

    def feed_document(self, data: bytes) -> None:
        """Take the whole answer of a server that does not stream."""

    def finish(self) -> Decoded:
        """Return what arrived."""
