"""Requests that a provider refuses for one detail, sent again without it.

Each mend is made once a call. It is chosen by what the refusal says, and only
if the request really has the thing that is refused.
"""

import re

from msgspec.structs import replace

from hermes.domain.messages import AssistantMessage
from hermes.domain.ports.model import FailureKind, ModelRequest
from hermes.models.encode_common import images_of
from hermes.models.wire import Repairs, WireFault

_OPTIONAL_FIELDS = (
    "stream_options",
    "parallel_tool_calls",
    "temperature",
    "reasoning_effort",
    "output_config",
    "thinking",
    "reasoning",
    "tool_choice",
    "response_format",
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
        return _mend_field(fault.message, done)
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
