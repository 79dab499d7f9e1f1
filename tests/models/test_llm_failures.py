"""What providers say, and what it means."""

import pytest

from hermes.domain.ports.model import FailureKind
from hermes.models.failures import PLANS, classify, explain
from hermes.models.wire import WireFault

K = FailureKind
SAID: list[tuple[int | None, str, str, FailureKind]] = [
    (401, "", "Incorrect API key provided", K.AUTH),
    (403, "", "This request requires more credits", K.BILLING),
    (403, "", "Request not allowed", K.AUTH),
    (400, "", "Your credit balance is too low to access the Anthropic API", K.BILLING),
    (402, "", "Payment required", K.BILLING),
    (429, "insufficient_quota", "You exceeded your current quota", K.BILLING),
    (429, "", "Rate limit reached for gpt-5", K.RATE_LIMIT),
    (529, "overloaded_error", "Overloaded", K.OVERLOADED),
    (503, "", "Loading model", K.OVERLOADED),
    (500, "", "Internal error", K.SERVER),
    (502, "", "Bad gateway", K.SERVER),
    (501, "", "Unsupported method ('POST')", K.WRONG_PATH),
    (504, "", "Gateway timeout", K.TIMEOUT),
    (524, "", "A timeout occurred", K.TIMEOUT),
    (413, "", "Request too large", K.PAYLOAD_TOO_LARGE),
    (400, "context_length_exceeded", "x", K.CONTEXT_OVERFLOW),
    (400, "", "prompt is too long: 205000 tokens > 200000 maximum", K.CONTEXT_OVERFLOW),
    (400, "", "This model's maximum context length is 8192 tokens", K.CONTEXT_OVERFLOW),
    (
        400,
        "",
        "the request exceeds the available context size, try increasing it",
        K.CONTEXT_OVERFLOW,
    ),
    (500, "", "input is larger than n_ctx", K.CONTEXT_OVERFLOW),
    (
        400,
        "",
        "The input token count (1200000) exceeds the maximum number of tokens",
        K.CONTEXT_OVERFLOW,
    ),
    (404, "", "No endpoints found that support image input", K.IMAGE_REJECTED),
    (400, "", "image exceeds 5 MB maximum", K.IMAGE_REJECTED),
    (400, "", "unknown variant `image_url`, expected `text`", K.IMAGE_REJECTED),
    (404, "", "Not Found", K.WRONG_PATH),
    (404, "", "<html>404 page not found</html>", K.WRONG_PATH),
    (404, "model_not_found", "The model `x` does not exist", K.MODEL_NOT_FOUND),
    (404, "", 'model "llama9" not found, try pulling it first', K.MODEL_NOT_FOUND),
    (400, "", "foo/bar is not a valid model ID", K.MODEL_NOT_FOUND),
    (400, "", "Invalid `signature` in `thinking` block", K.REASONING_REJECTED),
    (400, "invalid_encrypted_content", "could not be verified", K.REASONING_REJECTED),
    (400, "content_policy_violation", "no", K.POLICY),
    (403, "", "Your prompt was flagged by moderation", K.POLICY),
    (400, "invalid_request_error", "Unsupported parameter: temperature", K.BAD_REQUEST),
    (422, "", "extra fields not permitted", K.BAD_REQUEST),
    (307, "", "it redirects to https://x", K.BAD_REQUEST),
    (None, "rate_limit_exceeded", "slow down", K.RATE_LIMIT),
    (None, "", "upstream is overloaded", K.OVERLOADED),
    (None, "", "something else", K.UNKNOWN),
    (418, "", "teapot", K.UNKNOWN),
]


@pytest.mark.parametrize(("status", "code", "message", "kind"), SAID)
def test_a_refusal_is_understood(
    status: int | None, code: str, message: str, kind: FailureKind
) -> None:
    assert classify(WireFault(message, status=status, code=code)) is kind


@pytest.mark.parametrize("kind", list(FailureKind))
def test_every_kind_has_a_plan_a_sentence_and_a_next_step(kind: FailureKind) -> None:
    assert kind in PLANS
    names = {"provider": "acme", "model": "m-1", "base_url": "http://x", "key_name": "ACME_KEY"}
    failure = explain(kind, WireFault("because", status=400), names)
    assert failure.message.endswith(": because.")
    assert failure.hint.endswith(".")
    assert "{" not in failure.message + failure.hint


def test_a_page_instead_of_an_error_is_told_without_its_markup() -> None:
    page = "<!DOCTYPE HTML>\n<html><head><style>p { x }</style><title>Oh no</title></head>\n"
    fault = WireFault(f"{page}<body><p>Error code: 502</p></body></html>", status=502)
    names = {"provider": "acme", "model": "m-1", "base_url": "http://x", "key_name": "ACME_KEY"}
    assert explain(K.SERVER, fault, names).message.endswith("(HTTP 502): Oh no Error code: 502.")
