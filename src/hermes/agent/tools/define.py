"""Definition of tools.

A tool is an argument struct, a handler and a `ToolSpec`; `tool` completes the
spec from the handler's signature and docstring. The handler is an async
function or, when it keeps something between calls, a class whose instances
are called; each registry then makes its own instance. Nothing registers
itself: a tool is found by its entry point in the group `hermes.tools`.
"""

import difflib
import inspect
import re
import shlex
import typing
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hermes.domain.errors import UsageError
from hermes.domain.nesting import more_values_than, nested_too_deeply
from hermes.domain.ports.execution import ShellRun
from hermes.domain.tools import ToolContext, ToolResult, ToolSpec

Handler = Callable[[Any, ToolContext], Awaitable[ToolResult]]
Check = Callable[[frozenset[str]], str]
"""Given the names of the secrets at hand: why a tool is unavailable, or nothing."""


def always_available(_secrets: frozenset[str]) -> str:
    return ""


class Tool(Struct, frozen=True, kw_only=True):
    spec: ToolSpec
    arguments: type[Any]
    """A struct; `dict` for tools of others, who check for themselves."""
    make_handler: Callable[[], Handler]
    check: Check = always_available


def tool(handler: Any, spec: ToolSpec, check: Check = always_available) -> Tool:
    """Make a `Tool` of an async function or a callable class; its docstring is the description."""
    is_class = inspect.isclass(handler)
    arguments = typing.get_type_hints(handler.__call__ if is_class else handler)["args"]
    described = replace(
        spec,
        description=" ".join((handler.__doc__ or "").split()),
        parameters=simplified_schema(arguments),
        verb=spec.verb or spec.name,
    )
    make = handler if is_class else (lambda: handler)
    return Tool(spec=described, arguments=arguments, make_handler=make, check=check)


def simplified_schema(arguments: type[Struct]) -> dict[str, Any]:
    """Return the JSON Schema of `arguments` in the plain form that every model reads."""
    (root,), components = msgspec.json.schema_components([arguments])
    schema = _inline(root, components)
    if not isinstance(schema, dict) or schema.get("type") != "object":
        raise UsageError(f"{arguments.__name__} is not a struct of arguments.")
    return schema


MAX_ARGUMENTS = 12 * 1024 * 1024
"""Characters of one call: decoding, judging and writing them holds the event loop up."""
MAX_ARGUMENT_VALUES = 50_000
"""Of one call: each of those who look at it decodes them."""
_SHOWN_CHARS = 100
"""Of a name that the model made up."""
_MAX_SCALAR = 1000
"""Characters of a number or a boolean that was sent as a text."""
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
    return {
        # The names of fields are not words of the schema.
        key: {name: _inline(field, components) for name, field in value.items()}
        if key == "properties"
        else _inline(value, components)
        for key, value in _ordered(schema)
    }


_ORDER = ("type", "description", "enum", "properties", "items", "required")


def _ordered(schema: dict[str, Any]) -> list[tuple[str, Any]]:
    if all(isinstance(choice, str) for choice in schema.get("enum", [0])):
        schema = {**schema, "type": "string"}
    kept = [(key, schema[key]) for key in _ORDER if key in schema and schema[key] != []]
    rest = sorted(item for item in schema.items() if item[0] not in _ORDER)
    return [*kept, *((key, value) for key, value in rest if key not in _NOISE)]


def parse_object(text: str) -> dict[str, Any] | None:
    """Return the JSON object in `text`; None if it holds anything else, or far too much."""
    try:
        value = _decoded(text or "{}")
    except (msgspec.DecodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _decoded(text: str) -> Any:
    """Decode what a model has written; `DecodeError` also if that would take long."""
    data = text.encode("utf-8", "replace") if len(text) <= MAX_ARGUMENTS else b""
    if not data or more_values_than(MAX_ARGUMENT_VALUES, data) or nested_too_deeply(data):
        raise msgspec.DecodeError("too much")
    return msgspec.json.decode(text)


def decode_arguments(tool: Tool, text: str) -> Any:
    """Return the arguments of a call; `UsageError` tells the model what to change."""
    name = tool.spec.name
    values = parse_object(text)
    if len(text) > MAX_ARGUMENTS:
        raise UsageError(
            f"The arguments of `{name}` are too long.", hint="Write large files with the terminal."
        )
    if values is None:
        wanted = f"a JSON object with at most {MAX_ARGUMENT_VALUES:,} values"
        raise UsageError(f"The arguments of `{name}` are not {wanted}: {_usage(tool)}")
    fields = tool.spec.parameters["properties"]
    unknown = next((field for field in values if field not in fields), None)
    if unknown is not None and tool.arguments is not dict:
        unknown = unknown[:_SHOWN_CHARS]
        raise UsageError(
            f"`{name}` has no argument `{unknown}`{_near(unknown, fields)}: {_usage(tool)}"
        )
    cleaned = {
        field: _unquoted(value, fields.get(field, {}))
        for field, value in values.items()
        if value is not None
    }
    try:
        return msgspec.convert(cleaned, tool.arguments, strict=False)
    except msgspec.ValidationError as error:
        at = re.search(r"\$\.(\w+)", str(error))
        choices = fields.get(at[1], {}).get("enum", ()) if at else ()
        one_of = f" (one of: {', '.join(map(str, choices))})" if choices else ""
        raise UsageError(
            f"Wrong arguments for `{name}`: {error}{one_of}. {_usage(tool)}"
        ) from error


_SCALARS: dict[str, type[Any] | tuple[type[Any], ...]] = {
    "integer": int,
    "number": (int, float),
    "boolean": bool,
}


def _unquoted(value: Any, schema: dict[str, Any]) -> Any:
    wanted = schema.get("type")
    if isinstance(value, str) and wanted in ("array", "object"):
        try:
            value = _decoded(value)
        except (msgspec.DecodeError, RecursionError):
            return [value] if wanted == "array" else value
    if isinstance(value, str) and wanted in _SCALARS and len(value) <= _MAX_SCALAR:
        try:
            read = msgspec.json.decode(value)
        except msgspec.DecodeError:
            return value
        return read if isinstance(read, _SCALARS[wanted]) else value
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


HEAD_CHARS, TAIL_CHARS = 1000, 500
"""What is shown of a result that went to a file."""

# The directory must be ours: anybody may have made one of that name in /tmp.
_STORE = (
    "umask 077; d=/tmp/hermes-results; mkdir -p $d 2>/dev/null;"
    " if [ -L $d ] || [ ! -O $d ]; then d=$(mktemp -d /tmp/hermes-results-XXXXXX) || exit 1; fi;"
    ' mkdir -p "$d/"{session} && cat > "$d/"{session}/{call}.txt'
    ' && printf %s "$d/"{session}/{call}.txt'
)


async def stored(text: str, name: str, context: ToolContext) -> str:
    """Put a text into a file where commands run and return its path; empty if that fails."""
    script = _STORE.format(session=_safe(context.session_id), call=_safe(name))
    result = await context.environment.run(
        ShellRun(script=script, cwd="/", stdin=text.encode("utf-8", "replace"), timeout=30)
    )
    return result.output if result.exit_code == 0 else ""


async def spill(result: ToolResult, limit: int, context: ToolContext) -> ToolResult:
    """Move a text longer than `limit` into a file and return a result with a preview of it."""
    text = result.content
    if not isinstance(text, str) or len(text) <= limit:
        return result
    path = await stored(text, context.call_id, context)
    head, tail = text[:HEAD_CHARS], text[-TAIL_CHARS:]
    where = (
        f"The whole result has {len(text)} characters and is in {path}."
        " Page through it with read_file (offset, limit) or search it with search_files."
        if path
        else f"The whole result had {len(text)} characters and could not be stored."
        " Ask for less at a time."
    )
    content = f"{head}\n\n[Cut here. {where} It ends with:]\n\n{tail}"
    return replace(result, content=content)


def _safe(name: str) -> str:
    return shlex.quote(re.sub(r"[^A-Za-z0-9_-]", "_", name)[:100] or "_")
