"""Faults: their meaning, and what is done about each kind.

Providers say the same thing in many ways; the classifier looks at the status
first, then at error codes, then at words. The plan for each kind is a table:
try again, use another key, let the core compress, use the next route.
"""

import re
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from hermes.domain.ports.model import FailureKind, ModelFailure
from hermes.models.wire import WireFault


class Plan(Struct, frozen=True, kw_only=True):
    """What is tried for one kind of failure, in this order."""

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
"""What no table entry names goes to the next route."""


def _words(*patterns: str) -> str:
    """Return one pattern, compiled when first needed: most processes never see a failure."""
    return "|".join(patterns)


def _says(text: str, words: str) -> bool:
    return re.search(words, text, re.IGNORECASE) is not None


_CONTEXT = _words(
    r"context[ _-]?(length|window|size)",
    r"maximum context",
    r"(prompt|input|request) (is )?too (long|many tokens)",
    r"too many (input )?tokens",
    r"exceeds? the (available context|model'?s? (maximum )?(context|token))",
    r"max_model_len",
    r"n_ctx",
    r"input token count.{0,40}exceeds",
    r"reduce the length",
    r"string_above_max_length",
)
_BILLING = _words(
    r"insufficient[_ ](quota|credits?|balance|funds)",
    r"exceeded your current quota",
    r"credit balance is too low",
    r"billing",
    r"payment required",
    r"more credits",
    r"out of credits",
)
_IMAGE = _words(
    r"image.{0,60}(too (large|big)|exceed|unsupported|not support|invalid|could not|cannot)",
    r"(not|n't) support.{0,30}(image|vision|multimodal)",
    r"image_url.{0,40}(not|unsupported|invalid|unknown variant)",
    r"unknown variant `?image",
    r"no endpoints found that support image",
    r"could not process image",
    r"multimodal",
    r"mmproj",
)
_REASONING = _words(
    r"thinking.{0,60}(signature|block)",
    r"signature.{0,40}(invalid|thinking|required)",
    r"invalid[_ ]encrypted[_ ]content",
    r"encrypted[_ ]content.{0,60}(could not|invalid|verif)",
    r"reasoning.{0,40}(item|detail).{0,80}(not found|invalid|without|required)",
    r"reasoning_content.{0,60}(not allowed|unexpected|extra)",
)
_MODEL = _words(
    r"model.{0,80}(not found|does not exist|not exist|is not available|unknown|not a valid)",
    r"(unknown|invalid|no such) model",
    r"not a valid model",
    r"model_not_found",
    r"no endpoints found",
    r"try pulling it",
)
_POLICY = _words(
    r"content[_ ]policy",
    r"content_filter",
    r"moderation",
    r"usage policies",
    r"responsible ?ai",
    r"data policy",
    r"safety system",
    r"sensitive_words",
)
_RATE = _words(r"rate[ _-]?limit", r"too many requests", r"throttl", r"resource.?exhausted")
_OVERLOAD = _words(r"overloaded", r"at capacity", r"(temporarily )?unavailable", r"loading model")
_AUTH = _words(
    r"invalid.{0,20}(api[ _-]?key|x-api-key|token|credential)",
    r"incorrect api key",
    r"unauthori[sz]ed",
    r"authentication",
    r"no auth credentials",
    r"permission[_ ]denied",
)
_TIMED_OUT = _words(r"timed? ?out", r"deadline exceeded")

_BAD_REQUEST_ORDER: Final = (
    (_CONTEXT, FailureKind.CONTEXT_OVERFLOW),
    (_REASONING, FailureKind.REASONING_REJECTED),
    (_IMAGE, FailureKind.IMAGE_REJECTED),
    (_BILLING, FailureKind.BILLING),
    (_POLICY, FailureKind.POLICY),
    (_MODEL, FailureKind.MODEL_NOT_FOUND),
    (_AUTH, FailureKind.AUTH),
)
_NO_STATUS_ORDER: Final = (
    *_BAD_REQUEST_ORDER,
    (_RATE, FailureKind.RATE_LIMIT),
    (_OVERLOAD, FailureKind.OVERLOADED),
    (_TIMED_OUT, FailureKind.TIMEOUT),
)
_CODES_OF: Final = {
    FailureKind.CONTEXT_OVERFLOW: "context_length_exceeded exceed_context_size_error",
    FailureKind.PAYLOAD_TOO_LARGE: "request_too_large",
    FailureKind.BILLING: "insufficient_quota billing_error",
    FailureKind.RATE_LIMIT: "rate_limit_exceeded rate_limit_error",
    FailureKind.OVERLOADED: "overloaded_error",
    FailureKind.SERVER: "server_error api_error internal_server_error",
    FailureKind.TIMEOUT: "timeout_error",
    FailureKind.AUTH: "invalid_api_key authentication_error permission_error",
    FailureKind.MODEL_NOT_FOUND: "model_not_found not_found_error",
    FailureKind.POLICY: "content_policy_violation content_filter",
    FailureKind.REASONING_REJECTED: "invalid_encrypted_content",
    FailureKind.IMAGE_REJECTED: "invalid_image image_parse_error image_too_large",
}
_CODES: Final = {code: kind for kind, codes in _CODES_OF.items() for code in codes.split()}


def classify(fault: WireFault) -> FailureKind:
    if fault.kind is not None:
        return fault.kind
    text = f"{fault.code} {fault.message}"
    coded = _CODES.get(fault.code)
    status = fault.status
    if status is None:
        return coded or _by_words(text, _NO_STATUS_ORDER) or FailureKind.UNKNOWN
    if 300 <= status < 400:
        return FailureKind.BAD_REQUEST
    if status in {401, 403}:
        order = ((_BILLING, FailureKind.BILLING), (_POLICY, FailureKind.POLICY))
        return _by_words(text, order) or FailureKind.AUTH
    if status in {400, 404, 405, 409, 415, 422}:
        return _bad_request(status, coded, text)
    return _by_status(status, text)


def _bad_request(status: int, coded: FailureKind | None, text: str) -> FailureKind:
    found = coded or _by_words(text, _BAD_REQUEST_ORDER)
    if found is not None:
        return found
    return FailureKind.MODEL_NOT_FOUND if status == 404 else FailureKind.BAD_REQUEST


def _by_status(status: int, text: str) -> FailureKind:
    match status:
        case 402:
            return FailureKind.BILLING
        case 408 | 504 | 524:
            return FailureKind.TIMEOUT
        case 413:
            return FailureKind.PAYLOAD_TOO_LARGE
        case 429:
            return FailureKind.BILLING if _says(text, _BILLING) else FailureKind.RATE_LIMIT
        case 503 | 529:
            return FailureKind.OVERLOADED
    if status >= 500:
        return FailureKind.CONTEXT_OVERFLOW if _says(text, _CONTEXT) else FailureKind.SERVER
    return FailureKind.UNKNOWN


def _by_words(text: str, order: tuple[tuple[str, FailureKind], ...]) -> FailureKind | None:
    return next((kind for words, kind in order if _says(text, words)), None)


_SENTENCES: Final = MappingProxyType(
    {
        FailureKind.AUTH: (
            "{provider} refused the API key",
            "Check the key, then run `hermes config set {key_name} <key>`.",
        ),
        FailureKind.BILLING: (
            "The account at {provider} has no credit left",
            "Add credit there, or add another provider under `fallback_providers:`.",
        ),
        FailureKind.RATE_LIMIT: (
            "{provider} is limiting how often it may be called",
            "Wait a little, or add a second key ({key_name}_2) or `fallback_providers:`.",
        ),
        FailureKind.OVERLOADED: (
            "{provider} is overloaded",
            "Try again in a few minutes, or add `fallback_providers:`.",
        ),
        FailureKind.SERVER: (
            "{provider} failed internally",
            "Try again; if it goes on, look at the provider's status page.",
        ),
        FailureKind.TIMEOUT: (
            "{provider} did not answer in time",
            "Try again, use a faster model, or raise the model timeouts in config.yaml.",
        ),
        FailureKind.CONNECTION: (
            "{provider} cannot be reached at {base_url}",
            "Check that the address is right, the server runs and the network is up.",
        ),
        FailureKind.TLS: (
            "No secure connection to {base_url} could be made",
            "Use http:// if the server has no TLS, or set its `ssl_ca` to your authority's file.",
        ),
        FailureKind.CONTEXT_OVERFLOW: (
            "The conversation is longer than {model} can take",
            "Use `/compress`, start a new session, or choose a model with a larger window.",
        ),
        FailureKind.PAYLOAD_TOO_LARGE: (
            "The request is larger than {provider} accepts",
            "Use `/compress`, or send fewer or smaller attachments.",
        ),
        FailureKind.IMAGE_REJECTED: (
            "{model} does not accept the image",
            "Send a smaller image, or choose a model that can see.",
        ),
        FailureKind.MODEL_NOT_FOUND: (
            "{provider} has no model `{model}`",
            "Choose another one with `hermes model`.",
        ),
        FailureKind.POLICY: (
            "{provider} refused the content because of its policy",
            "Rephrase the request, or use another provider.",
        ),
        FailureKind.BAD_REQUEST: (
            "{provider} rejected the request",
            "Check `api_mode` and `extra_body` of the provider; `/debug` shows the details.",
        ),
        FailureKind.REASONING_REJECTED: (
            "{provider} rejected earlier reasoning of this session",
            "Start a new session, or switch back to the model that wrote it.",
        ),
        FailureKind.MALFORMED: (
            "{provider} sent an answer that could not be understood",
            "Try again; check `api_mode` if this is your own server.",
        ),
        FailureKind.EMPTY: (
            "{model} answered with nothing",
            "Try again or rephrase; a local model may need a larger output limit.",
        ),
        FailureKind.UNKNOWN: (
            "{provider} failed in an unexpected way",
            "Try again, or use another model.",
        ),
    }
)


def explain(
    kind: FailureKind, fault: WireFault, names: dict[str, str], retry_after: float | None = None
) -> ModelFailure:
    """Return the failure that a person sees: what happened and what to do."""
    sentence, hint = _SENTENCES[kind]
    detail = fault.message.strip().rstrip(".")
    status = f" (HTTP {fault.status})" if fault.status is not None else ""
    said = f"{sentence.format(**names)}{status}"
    return ModelFailure(
        kind,
        f"{said}: {detail}." if detail else f"{said}.",
        hint=hint.format(**names),
        status=fault.status,
        retry_after=retry_after,
        provider=names["provider"],
    )
