"""From the JSON a model wrote to typed arguments, with errors it can act on.

Small mistakes are put right: numbers and booleans in quotes, lists and
objects as JSON text, null for "not given". Everything else comes back as one
sentence that says which field is wrong and what is expected.
"""

import difflib
from typing import Any

import msgspec
from msgspec import Struct

from hermes.agent.tools.define import Tool
from hermes.domain.errors import UsageError

__all__ = ["decode_arguments", "parse_object"]


def parse_object(text: str) -> dict[str, Any] | None:
    """Return the JSON object in `text`; None if it holds anything else."""
    try:
        value = msgspec.json.decode(text or "{}")
    except msgspec.DecodeError:
        return None
    return value if isinstance(value, dict) else None


def decode_arguments(tool: Tool, text: str) -> Struct:
    """Return the arguments of a call; `UsageError` tells the model what to change."""
    name = tool.spec.name
    values = parse_object(text)
    if values is None:
        raise UsageError(f"The arguments of `{name}` are not a JSON object: {_usage(tool)}")
    fields = tool.spec.parameters["properties"]
    unknown = [field for field in values if field not in fields]
    if unknown:
        raise UsageError(
            f"`{name}` has no argument `{unknown[0]}`{_near(unknown[0], fields)}: {_usage(tool)}"
        )
    cleaned = {
        field: _unquoted(value, fields[field])
        for field, value in values.items()
        if value is not None
    }
    try:
        return msgspec.convert(cleaned, tool.arguments, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(f"Wrong arguments for `{name}`: {error}. {_usage(tool)}") from error


def _unquoted(value: Any, schema: dict[str, Any]) -> Any:
    wanted = schema.get("type")
    if isinstance(value, str) and wanted in ("array", "object"):
        try:
            value = msgspec.json.decode(value)
        except msgspec.DecodeError:
            return [value] if wanted == "array" else value
    if isinstance(value, list) and "items" in schema:
        return [_unquoted(item, schema["items"]) for item in value]
    if isinstance(value, dict) and "properties" in schema:
        fields = schema["properties"]
        return {name: _unquoted(item, fields.get(name, {})) for name, item in value.items()}
    if wanted == "string" and isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    return value


def _near(name: str, known: dict[str, Any]) -> str:
    matches = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean `{matches[0]}`?)" if matches else ""


def _usage(tool: Tool) -> str:
    parameters = tool.spec.parameters
    required = parameters.get("required", [])
    named = [f"{f} (required)" if f in required else f for f in parameters["properties"]]
    return f"It takes {', '.join(named) or 'nothing'}."
