"""How a tool is written down.

A tool is an argument struct, a handler and a `ToolSpec`; `tool` makes the
spec from the handler's signature and docstring. The handler is an async
function or, when it keeps something between calls, a class whose instances
are called; each registry then makes its own instance. Nothing registers
itself: a family module lists its tools in `TOOLS`.
"""

import inspect
import typing
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec import Struct

from hermes.domain.errors import UsageError
from hermes.domain.tools import Intent, Parallel, ToolContext, ToolResult, ToolSpec

__all__ = ["Check", "Handler", "Tool", "always_available", "simplified_schema", "tool"]

Handler = Callable[[Any, ToolContext], Awaitable[ToolResult]]
Check = Callable[[frozenset[str]], str]
"""Given the names of the secrets at hand: why a tool is unavailable, or nothing."""


def always_available(_secrets: frozenset[str]) -> str:
    """Find nothing that is missing."""
    return ""


class Tool(Struct, frozen=True, kw_only=True):
    """A tool, ready for a registry."""

    spec: ToolSpec
    arguments: type[Struct]
    make_handler: Callable[[], Handler]
    check: Check = always_available


def tool(  # noqa: PLR0913 - one keyword for each thing a spec can say
    *,
    name: str,
    toolset: str,
    emoji: str = "🔧",
    verb: str = "",
    label_field: str = "",
    parallel: Parallel = Parallel.NEVER,
    path_fields: tuple[str, ...] = (),
    replay_safe: bool = False,
    destructive: bool = False,
    intent: Callable[[dict[str, Any]], Intent] | None = None,
    max_result_chars: int = 100_000,
    check: Check = always_available,
) -> Callable[[Any], Tool]:
    """Make a `Tool` of an async function or a callable class; its docstring is the description."""

    def build(handler: Any) -> Tool:
        is_class = inspect.isclass(handler)
        call = handler.__call__ if is_class else handler
        arguments = typing.get_type_hints(call)["args"]
        spec = ToolSpec(
            name=name,
            description=" ".join((handler.__doc__ or "").split()),
            parameters=simplified_schema(arguments),
            toolset=toolset,
            emoji=emoji,
            verb=verb or name,
            label_field=label_field,
            parallel=parallel,
            path_fields=path_fields,
            replay_safe=replay_safe,
            destructive=destructive,
            intent=intent,
            max_result_chars=max_result_chars,
        )
        make = handler if is_class else (lambda: handler)
        return Tool(spec=spec, arguments=arguments, make_handler=make, check=check)

    return build


def simplified_schema(arguments: type[Struct]) -> dict[str, Any]:
    """Return the JSON Schema of `arguments` in the plain form that every model reads."""
    (root,), components = msgspec.json.schema_components([arguments])
    schema = _inline(root, components)
    if not isinstance(schema, dict) or schema.get("type") != "object":
        raise UsageError(f"{arguments.__name__} is not a struct of arguments.")
    return schema


_NOISE = frozenset({"title", "additionalProperties", "default"})


def _inline(schema: Any, components: dict[str, Any]) -> Any:
    """Resolve references, drop titles and defaults, unwrap optional types."""
    if isinstance(schema, list):
        return [_inline(item, components) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        target = components[schema["$ref"].rsplit("/", 1)[-1]]
        inlined = _inline(target, components)
        inlined.pop("description", None)  # a struct's docstring is for us
        own = {k: v for k, v in schema.items() if k != "$ref"}
        return {**inlined, **_inline(own, components)}
    options = [o for o in schema.get("anyOf", ()) if o != {"type": "null"}]
    if len(options) == 1:
        rest = {k: v for k, v in schema.items() if k != "anyOf"}
        return _inline({**options[0], **rest}, components)
    return {key: _value(key, value, components) for key, value in _ordered(schema)}


def _value(key: str, value: Any, components: dict[str, Any]) -> Any:
    if key == "properties":
        return {name: _inline(field, components) for name, field in value.items()}
    return _inline(value, components)


_ORDER = ("type", "description", "enum", "properties", "items", "required")


def _ordered(schema: dict[str, Any]) -> list[tuple[str, Any]]:
    if all(isinstance(choice, str) for choice in schema.get("enum", [0])):
        schema = {**schema, "type": "string"}
    kept = [(key, schema[key]) for key in _ORDER if key in schema and schema[key] != []]
    rest = sorted(item for item in schema.items() if item[0] not in _ORDER)
    return [*kept, *((key, value) for key, value in rest if key not in _NOISE)]
