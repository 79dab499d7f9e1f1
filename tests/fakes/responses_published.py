"""The published Open Responses specification as judge: models that its makers' tools made from it.

`openresponses-types` has a model for each shape of the OpenAPI document. Events
of ours that the specification does not know have the prefix `hermes.`.
"""

import inspect
from enum import Enum
from functools import lru_cache
from typing import Any

from openresponses_types import types as published
from pydantic import BaseModel, ValidationError

__all__ = ["published_event_errors", "published_resource_errors"]

OURS = "hermes."


def published_resource_errors(value: Any) -> list[str]:
    """Return what the specification has against a response."""
    return _errors(published.ResponseResource, value)


def published_event_errors(value: Any) -> list[str]:
    """Return what the specification has against a streamed event."""
    kind = value.get("type")
    if isinstance(kind, str) and kind.startswith(OURS):
        return []
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
