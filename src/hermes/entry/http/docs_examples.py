"""Examples of requests, made from the schemas they have to follow."""

import json
from collections.abc import Mapping
from typing import Any

__all__ = ["curl_example"]

_DEPTH = 6
_WELL_KNOWN: dict[str, Any] = {
    "model": "hermes",
    "input": "Hello!",
    "message": "Hello!",
    "messages": [{"role": "user", "content": "Hello!"}],
    "text": "Hello!",
    "title": "Garden plans",
    "name": "Morning news",
    "prompt": "Sum up the news.",
    "schedule": "0 8 * * *",
    "choice": "once",
    "role": "user",
    "content": "Hello!",
    "stream": True,
}
_OTHERWISE = ("choice", "title", "name", "message", "prompt")
"""One of these is shown where everything may be left out."""
_WORTH_SHOWING = ("model", "stream")
"""Fields that are shown though they may be left out, where the rest is about an agent."""


def curl_example(
    method: str, path: str, operation: Mapping[str, Any], schemas: Mapping[str, Any]
) -> str:
    """Return a command that makes this request."""
    lines = [f"curl {_flags(method, operation)}http://127.0.0.1:8642{path}"]
    if operation["security"]:
        lines.append('-H "Authorization: Bearer $API_SERVER_KEY"')
    content = operation.get("requestBody", {}).get("content", {})
    if "application/json" in content:
        schema = content["application/json"]["schema"]
        body = _body(schema, schemas)
        lines.append("-H 'Content-Type: application/json'")
        lines.append("-d " + _quoted(json.dumps(body, ensure_ascii=False)))
    return " \\\n  ".join(lines)


def _flags(method: str, operation: Mapping[str, Any]) -> str:
    streams = any(
        "text/event-stream" in response.get("content", {})
        for response in operation["responses"].values()
    )
    posts = method == "post" and "requestBody" in operation
    verb = "" if method == "get" or posts else f"-X {method.upper()} "
    return ("-N " if streams else "") + verb


def _body(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Any:
    body = _example("", schema, schemas, _DEPTH)
    resolved = _resolved(schema, schemas)
    if isinstance(body, dict) and {"messages", "input"} & resolved.get("properties", {}).keys():
        shown = {name for name in _WORTH_SHOWING if name in resolved["properties"]}
        if "input" in resolved["properties"]:
            shown.add("input")
        body = {name: _WELL_KNOWN[name] for name in sorted(shown)} | body
    if body == {}:
        usual = (name for name in _OTHERWISE if name in resolved.get("properties", {}))
        body = {name: _WELL_KNOWN[name] for name in list(usual)[:1]}
    return body


def _example(name: str, schema: Mapping[str, Any], schemas: Mapping[str, Any], depth: int) -> Any:
    schema = _resolved(schema, schemas)
    if "anyOf" in schema:
        parts = [part for part in schema["anyOf"] if part.get("type") != "null"]
        return _example(name, parts[0], schemas, depth - 1) if parts else None
    kinds = schema.get("type")
    if name in _WELL_KNOWN and kinds in ("string", "array", None):
        return _WELL_KNOWN[name]
    if "enum" in schema or "const" in schema:
        return schema["enum"][0] if "enum" in schema else schema["const"]
    if depth <= 0:
        return None
    if kinds == "array":
        return [_example(name, schema.get("items", {}), schemas, depth - 1)]
    if kinds == "object":
        properties = schema.get("properties", {})
        needed = schema.get("required", ())
        return {key: _example(key, properties[key], schemas, depth - 1) for key in needed}
    numbers = {"integer": schema.get("minimum", 1), "number": 1.0, "boolean": True, "null": None}
    return numbers.get(kinds, "…") if isinstance(kinds, str) else "…"


def _resolved(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Mapping[str, Any]:
    seen = 0
    while "$ref" in schema and seen < _DEPTH:
        schema = schemas[schema["$ref"].rpartition("/")[2]]
        seen += 1
    return schema


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
