"""The published Open Responses specification as judge: models that its makers' tools made from it.

`openresponses-types` has a model for each shape of the OpenAPI document. Events
of ours that the specification does not know have the prefix `hermes:`. Tools that a server runs
itself are `mcp_call` items, as in OpenAI's API; the models of its client judge those.
"""

import inspect
from enum import Enum
from functools import lru_cache
from typing import Any

from openai.types import responses as theirs
from openai.types.responses.response_output_item import McpCall
from openresponses_types import types as published
from pydantic import BaseModel, ValidationError

__all__ = ["published_event_errors", "published_resource_errors"]

OURS = "hermes:"
_SERVER_CALLS: dict[str, type[BaseModel]] = {
    "response.mcp_call.in_progress": theirs.ResponseMcpCallInProgressEvent,
    "response.mcp_call.completed": theirs.ResponseMcpCallCompletedEvent,
    "response.mcp_call.failed": theirs.ResponseMcpCallFailedEvent,
    "response.mcp_call_arguments.delta": theirs.ResponseMcpCallArgumentsDeltaEvent,
    "response.mcp_call_arguments.done": theirs.ResponseMcpCallArgumentsDoneEvent,
}


def published_resource_errors(value: Any) -> list[str]:
    """Return what the specification has against a response."""
    calls = [item for item in value["output"] if item.get("type") == "mcp_call"]
    output = [item for item in value["output"] if item not in calls]
    tools = [tool for tool in value["tools"] if tool.get("type") != "mcp"]
    rest = {**value, "output": output, "tools": tools}
    found = _errors(published.ResponseResource, rest)
    return found + [error for call in calls for error in _errors(McpCall, call)]


def published_event_errors(value: Any) -> list[str]:
    """Return what the specification has against a streamed event."""
    kind = value.get("type")
    if isinstance(kind, str) and kind.startswith(OURS):
        return []
    if kind in _SERVER_CALLS:
        return _errors(_SERVER_CALLS[kind], value)
    if value.get("item", {}).get("type") == "mcp_call":
        return _errors(McpCall, value["item"])
    if "response" in value:
        return published_resource_errors(value["response"])
    model = _events().get(kind)
    if model is None:
        return [f"{kind!r} is no event of the specification"]
    return _errors(model, value)


def _errors(model: type[BaseModel], value: Any) -> list[str]:
    try:
        model.model_validate(value)
    except ValidationError as error:
        return [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()]
    return []


@lru_cache(maxsize=1)
def _events() -> dict[str, type[BaseModel]]:
    found = {}
    for name, model in inspect.getmembers(published, inspect.isclass):
        if name.endswith("StreamingEvent") and issubclass(model, BaseModel):
            kind = model.model_fields["type"].annotation
            assert isinstance(kind, type)
            assert issubclass(kind, Enum)
            found.update({str(member.value): model for member in kind})
    return found
