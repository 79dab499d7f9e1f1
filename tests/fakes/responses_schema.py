"""What the Open Responses specification requires of a response and of its events.

Written down as name -> check; a value that does not pass is reported with its
path. Only what the specification lists is checked; further fields are allowed.
The models made from the published document have their say, too.
"""

from collections.abc import Callable, Mapping
from typing import Any

from fakes.responses_published import published_event_errors, published_resource_errors

Check = Callable[[Any, str], list[str]]


def of_type(*kinds: type) -> Check:
    def check(value: Any, path: str) -> list[str]:
        right = isinstance(value, kinds) and not (isinstance(value, bool) and bool not in kinds)
        return [] if right else [f"{path}: {value!r} is not {kinds}"]

    return check


def one_of(*values: str) -> Check:
    return lambda value, path: [] if value in values else [f"{path}: {value!r} not in {values}"]


def nullable(check: Check) -> Check:
    return lambda value, path: [] if value is None else check(value, path)


def each(check: Check) -> Check:
    def checked(value: Any, path: str) -> list[str]:
        if not isinstance(value, list):
            return [f"{path}: {value!r} is not a list"]
        return [error for n, one in enumerate(value) for error in check(one, f"{path}[{n}]")]

    return checked


def shape(required: Mapping[str, Check], optional: Mapping[str, Check] | None = None) -> Check:
    def check(value: Any, path: str) -> list[str]:
        if not isinstance(value, dict):
            return [f"{path}: {value!r} is not an object"]
        missing = [f"{path}.{name} is missing" for name in required if name not in value]
        fields = {**required, **(optional or {})}
        return missing + [
            error
            for name, field in fields.items()
            if name in value
            for error in field(value[name], f"{path}.{name}")
        ]

    return check


def either(*checks: Check) -> Check:
    def check(value: Any, path: str) -> list[str]:
        found = [one(value, path) for one in checks]
        return [] if any(not errors for errors in found) else found[0]

    return check


def tagged(kinds: Mapping[str, Check]) -> Check:
    def check(value: Any, path: str) -> list[str]:
        kind = value.get("type") if isinstance(value, dict) else None
        if not isinstance(kind, str) or kind not in kinds:
            return [f"{path}: unknown type {kind!r}"]
        return kinds[kind](value, path)

    return check


anything: Check = lambda value, path: []  # noqa: E731
text = of_type(str)
integer = of_type(int)
number = of_type(int, float)
boolean = of_type(bool)
status = one_of("in_progress", "completed", "incomplete")

input_text = shape({"text": text})
input_image = shape({"image_url": nullable(text), "detail": one_of("low", "high", "auto")})
part = tagged(
    {
        "input_text": input_text,
        "output_text": shape({"text": text, "annotations": each(anything)}),
        "summary_text": shape({"text": text}),
        "reasoning_text": shape({"text": text}),
        "refusal": shape({"refusal": text}),
        "input_image": input_image,
    }
)
item = tagged(
    {
        "message": shape(
            {
                "id": text,
                "status": status,
                "role": one_of("user", "assistant", "system", "developer"),
                "content": each(part),
            }
        ),
        "function_call": shape(
            {"id": text, "call_id": text, "name": text, "arguments": text, "status": status}
        ),
        "function_call_output": shape(
            {
                "id": text,
                "call_id": text,
                "output": either(
                    text, each(tagged({"input_text": input_text, "input_image": input_image}))
                ),
                "status": status,
            }
        ),
        "mcp_call": shape(
            {
                "id": text,
                "server_label": one_of("hermes"),
                "name": text,
                "arguments": text,
                "output": nullable(text),
                "error": nullable(shape({"type": text, "content": each(anything)})),
                "status": one_of("in_progress", "completed", "incomplete", "failed"),
            }
        ),
        "reasoning": shape({"id": text, "summary": each(part)}, {"content": each(part)}),
    }
)
tool = tagged(
    {
        "function": shape(
            {
                "name": text,
                "description": nullable(text),
                "parameters": nullable(of_type(dict)),
                "strict": nullable(boolean),
            }
        ),
        "mcp": shape({"server_label": one_of("hermes"), "allowed_tools": nullable(each(text))}),
    }
)
text_format = tagged(
    {
        "text": shape({}),
        "json_object": shape({}),
        "json_schema": shape({"name": text, "description": nullable(text), "strict": boolean}),
    }
)
tool_choice = either(
    one_of("none", "auto", "required"),
    tagged(
        {
            "function": shape({}, {"name": text}),
            "allowed_tools": shape(
                {"tools": each(anything), "mode": one_of("none", "auto", "required")}
            ),
        }
    ),
)
usage = shape(
    {
        "input_tokens": integer,
        "output_tokens": integer,
        "total_tokens": integer,
        "input_tokens_details": shape({"cached_tokens": integer}),
        "output_tokens_details": shape({"reasoning_tokens": integer}),
    }
)
resource = shape(
    {
        "id": text,
        "object": one_of("response"),
        "created_at": integer,
        "completed_at": nullable(integer),
        "status": text,
        "incomplete_details": nullable(shape({"reason": text})),
        "model": text,
        "previous_response_id": nullable(text),
        "instructions": nullable(text),
        "output": each(item),
        "error": nullable(shape({"code": text, "message": text})),
        "tools": each(tool),
        "tool_choice": tool_choice,
        "truncation": one_of("auto", "disabled"),
        "parallel_tool_calls": boolean,
        "text": shape({"format": text_format}, {"verbosity": one_of("low", "medium", "high")}),
        "top_p": number,
        "presence_penalty": number,
        "frequency_penalty": number,
        "top_logprobs": integer,
        "temperature": number,
        "reasoning": nullable(shape({"effort": nullable(text), "summary": nullable(text)})),
        "usage": nullable(usage),
        "max_output_tokens": nullable(integer),
        "max_tool_calls": nullable(integer),
        "store": boolean,
        "background": boolean,
        "service_tier": text,
        "metadata": anything,
        "safety_identifier": nullable(text),
        "prompt_cache_key": nullable(text),
    }
)
_snapshot = {"response": resource}
_place = {"item_id": text, "output_index": integer}
_content = {**_place, "content_index": integer}
_summary = {**_place, "summary_index": integer}
_EVENTS: dict[str, dict[str, Check]] = {
    "response.created": _snapshot,
    "response.queued": _snapshot,
    "response.in_progress": _snapshot,
    "response.completed": _snapshot,
    "response.failed": _snapshot,
    "response.incomplete": _snapshot,
    "response.output_item.added": {"output_index": integer, "item": item},
    "response.output_item.done": {"output_index": integer, "item": item},
    "response.content_part.added": {**_content, "part": part},
    "response.content_part.done": {**_content, "part": part},
    "response.output_text.delta": {**_content, "delta": text},
    "response.output_text.done": {**_content, "text": text},
    "response.function_call_arguments.delta": {**_place, "delta": text},
    "response.function_call_arguments.done": {**_place, "arguments": text},
    "response.mcp_call.in_progress": _place,
    "response.mcp_call.completed": _place,
    "response.mcp_call.failed": _place,
    "response.mcp_call_arguments.delta": {**_place, "delta": text},
    "response.mcp_call_arguments.done": {**_place, "arguments": text},
    "response.reasoning_summary_part.added": {**_summary, "part": part},
    "response.reasoning_summary_part.done": {**_summary, "part": part},
    "response.reasoning_summary_text.delta": {**_summary, "delta": text},
    "response.reasoning_summary_text.done": {**_summary, "text": text},
    "error": {
        "error": shape(
            {"type": text, "code": nullable(text), "message": text, "param": nullable(text)}
        )
    },
}
_event = tagged(
    {name: shape({"sequence_number": integer, **fields}) for name, fields in _EVENTS.items()}
)


def resource_errors(value: Any) -> list[str]:
    """Return what is wrong with a response."""
    return resource(value, "response") + published_resource_errors(value)


def event_errors(value: Any) -> list[str]:
    """Return what is wrong with an event; events of our own have names of their own."""
    if str(value.get("type", "")).startswith("hermes:"):
        return integer(value.get("sequence_number"), "sequence_number")
    return _event(value, "event") + published_event_errors(value)
