"""Failures of providers: how they are classified, and the plan for each kind.

The classifier looks at the status first, then at error codes, then at words;
`failures.toml` has these with the texts for people. The plan for each kind is a
table: retry, use another key, let the core compress, use the next route.
"""

import re
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hermes.domain.messages import AssistantMessage
from hermes.domain.ports.model import FailureKind, ModelFailure, ModelRequest, Withheld
from hermes.domain.wording import one_line
from hermes.models.encode_common import images_of
from hermes.models.wire import Repairs, WireFault


class Plan(Struct, frozen=True, kw_only=True):
    """What is done about one kind of failure, in this order."""

    retry: bool = False
    rotate: bool = False
    compress: bool = False
    fallback: bool = True


_TRANSIENT: Final = Plan(retry=True)
_COMPRESS: Final = Plan(compress=True, fallback=False)
_PLANS: Final = {
    FailureKind.AUTH: Plan(rotate=True),
    FailureKind.BILLING: Plan(rotate=True),
    FailureKind.RATE_LIMIT: Plan(retry=True, rotate=True),
    FailureKind.OVERLOADED: _TRANSIENT,
    FailureKind.SERVER: _TRANSIENT,
    FailureKind.TIMEOUT: _TRANSIENT,
    FailureKind.CONNECTION: _TRANSIENT,
    FailureKind.CONTEXT_OVERFLOW: _COMPRESS,
    FailureKind.PAYLOAD_TOO_LARGE: _COMPRESS,
    FailureKind.MALFORMED: _TRANSIENT,
    FailureKind.EMPTY: _TRANSIENT,
    FailureKind.UNKNOWN: _TRANSIENT,
}
PLANS: Final = MappingProxyType({kind: _PLANS.get(kind, Plan()) for kind in FailureKind})
"""Kinds that the table does not name go to the next route."""

MARKUP_CHARS = 150

_REFUSALS: Final = (
    FailureKind.CONTEXT_OVERFLOW,
    FailureKind.REASONING_REJECTED,
    FailureKind.IMAGE_REJECTED,
    FailureKind.BILLING,
    FailureKind.POLICY,
    FailureKind.MODEL_NOT_FOUND,
    FailureKind.AUTH,
)
"""What a refused request may mean, in the order in which the words are looked for."""
_TROUBLES: Final = (FailureKind.RATE_LIMIT, FailureKind.OVERLOADED, FailureKind.TIMEOUT)


class _Known(Struct, frozen=True):
    said: str
    hint: str
    codes: str = ""
    words: tuple[str, ...] = ()


@cache
def _known() -> dict[FailureKind, _Known]:
    """Return `failures.toml`; read on first use, because most processes see no failure."""
    text = Path(__file__).with_name("failures.toml").read_text("utf-8")
    return msgspec.toml.decode(text, type=dict[FailureKind, _Known])


def classify(fault: WireFault) -> FailureKind:
    if fault.kind is not None:
        return fault.kind
    text = f"{fault.code} {fault.message}"
    coded = next((k for k, known in _known().items() if fault.code in known.codes.split()), None)
    status = fault.status
    if status is None:
        return coded or _by_words(text, (*_REFUSALS, *_TROUBLES)) or FailureKind.UNKNOWN
    if 300 <= status < 400:
        return FailureKind.BAD_REQUEST
    if status in {401, 403}:
        return _by_words(text, (FailureKind.BILLING, FailureKind.POLICY)) or FailureKind.AUTH
    if status in {400, 404, 405, 409, 415, 422, 501}:
        return _bad_request(status, coded, text)
    return _by_status(status, text)


def _bad_request(status: int, coded: FailureKind | None, text: str) -> FailureKind:
    found = coded or _by_words(text, _REFUSALS)
    if found is not None:
        return found
    return FailureKind.WRONG_PATH if status in {404, 405, 501} else FailureKind.BAD_REQUEST


def _by_status(status: int, text: str) -> FailureKind:
    match status:
        case 402:
            return FailureKind.BILLING
        case 408 | 504 | 524:
            return FailureKind.TIMEOUT
        case 413:
            return FailureKind.PAYLOAD_TOO_LARGE
        case 429:
            return _by_words(text, (FailureKind.BILLING,)) or FailureKind.RATE_LIMIT
        case 503 | 529:
            return FailureKind.OVERLOADED
    if status >= 500:
        return _by_words(text, (FailureKind.CONTEXT_OVERFLOW,)) or FailureKind.SERVER
    return FailureKind.UNKNOWN


def _by_words(text: str, order: tuple[FailureKind, ...]) -> FailureKind | None:
    words = ((kind, "|".join(_known()[kind].words)) for kind in order)
    return next((kind for kind, said in words if re.search(said, text, re.IGNORECASE)), None)


def _without_markup(text: str) -> str:
    """Return what a page says that a server answered with instead of an error."""
    if not re.match(r"\s*<(!doctype|html|head|body)\b", text, re.IGNORECASE):
        return text.strip()
    plain = re.sub(r"(?is)<(style|script)\b.*?(</\1>|$)|<[^>]*(>|$)", " ", text)
    return one_line(plain, MARKUP_CHARS)


def explain(
    kind: FailureKind, fault: WireFault, names: dict[str, str], retry_after: float | None = None
) -> ModelFailure:
    """Return the failure that a person sees: what happened and what to do."""
    known = _known()[kind]
    filtered = kind is FailureKind.POLICY and fault.code in known.codes.split()
    detail = _without_markup(fault.message).rstrip(".")
    status = f" (HTTP {fault.status})" if fault.status is not None else ""
    said = f"{known.said.format(**names)}{status}"
    return (Withheld if filtered else ModelFailure)(
        kind,
        f"{said}: {detail}." if detail else f"{said}.",
        hint=known.hint.format(**names),
        status=fault.status,
        retry_after=retry_after,
        provider=names["provider"],
    )


_OPTIONAL_FIELDS = (
    "stream_options",
    "parallel_tool_calls",
    "temperature",
    "top_p",
    "service_tier",
    "verbosity",
    "prediction",
    "strict",
    "reasoning_effort",
    "output_config",
    "thinking",
    "reasoning",
    "tool_choice",
    "prompt_cache_key",
    "session_id",
    "cache_control",
    "usage",
    "include",
)
_NO_STREAMING = re.compile(
    r"(stream(ing)?\b.{0,60}(not|n't|un)\s?(be )?(support|allow|available|enabled))"
    r"|((not|n't) support.{0,20}stream(ing)?\b(?!_))"
    r"|(must be verified to stream)",
    re.IGNORECASE,
)
_LIMIT_FIELD = re.compile(r"max_(completion_)?tokens", re.IGNORECASE)
_OTHER_NAME = re.compile(r"unsupported|not supported|unrecognized|unknown|instead", re.IGNORECASE)


def mend(
    kind: FailureKind, fault: WireFault, request: ModelRequest, done: Repairs
) -> tuple[Repairs, str] | None:
    """Return the repairs for the next try and what to tell the person; None if there is none."""
    if kind is FailureKind.IMAGE_REJECTED and not done.strip_images and _has_images(request):
        return replace(done, strip_images=True), "sending again without images"
    if kind is FailureKind.REASONING_REJECTED and not done.drop_reasoning and _has_thought(request):
        return replace(done, drop_reasoning=True), "sending again without earlier reasoning"
    if kind is FailureKind.BAD_REQUEST:
        mended = _mend_field(fault.message, done)
        if mended is None and request.reasoning_effort:
            # Some servers refuse fields that they do not know without naming them.
            mended = _dropping("reasoning_effort", done)
        return mended
    return None


def _mend_field(message: str, done: Repairs) -> tuple[Repairs, str] | None:
    if not done.no_stream and _NO_STREAMING.search(message) and "stream_options" not in message:
        return replace(done, no_stream=True), "sending again without streaming"
    if _LIMIT_FIELD.search(message):
        if _OTHER_NAME.search(message) and not done.rename_output_limit:
            return replace(done, rename_output_limit=True), "renaming the output limit"
        return _dropping("max_tokens", done)
    for name in _OPTIONAL_FIELDS:
        if name not in done.drop_fields and re.search(rf"\b{name}\b", message, re.IGNORECASE):
            return _dropping(name, done)
    return None


def _dropping(name: str, done: Repairs) -> tuple[Repairs, str] | None:
    names = {name, "max_completion_tokens"} if name == "max_tokens" else {name}
    if names <= done.drop_fields:
        return None
    return (
        replace(done, drop_fields=done.drop_fields | names),
        f"sending again without `{name}`",
    )


def _has_thought(request: ModelRequest) -> bool:
    return any(isinstance(m, AssistantMessage) and m.reasoning for m in request.messages)


def _has_images(request: ModelRequest) -> bool:
    return any(
        images_of(message.content)
        for message in request.messages
        if not isinstance(message, AssistantMessage)
    )
