"""A page to read the OpenAPI document: one file, nothing loaded from elsewhere.

It is written on the server from the document itself. Its style and its script
are allowed by their hashes, so nothing else on the page could ever run.
"""

import base64
import hashlib
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from hermes.entry.http.docs_assets import SCRIPT, STYLE
from hermes.entry.http.docs_examples import curl_example

__all__ = ["PAGE_POLICY", "docs_page"]


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


PAGE_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_hash(STYLE)}'; script-src 'sha256-{_hash(SCRIPT)}'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def docs_page(document: Mapping[str, Any]) -> str:
    """Return the page."""
    info = document["info"]
    groups = _by_tag(document)
    schemas = document["components"]["schemas"]
    body = "".join(
        f"<h2>{escape(tag)}</h2>" + "".join(_operation(each, schemas) for each in operations)
        for tag, operations in groups.items()
    )
    shapes = "".join(_schema(name, schema) for name, schema in sorted(schemas.items()))
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(info['title'])} API</title><style>{STYLE}</style>"
        f'<div class="frame"><nav>{_contents(groups)}</nav><main>'
        f"<h1>{escape(info['title'])} API <small>{escape(info['version'])}</small></h1>"
        f'<p class="lead">{escape(info["description"])} The same in a form for programs: '
        '<a href="openapi.json">openapi.json</a>.</p>'
        '<input id="search" type="search" placeholder="Find an operation or a shape …" '
        f'aria-label="Find">{body}<h2 id="shapes">Shapes</h2>{shapes}'
        f"</main></div><script>{SCRIPT}</script></html>"
    )


class _Found:
    """One operation and where it is."""

    def __init__(self, method: str, path: str, operation: Mapping[str, Any]) -> None:
        self.method = method
        self.path = path
        self.operation = operation


def _by_tag(document: Mapping[str, Any]) -> dict[str, list[_Found]]:
    groups: dict[str, list[_Found]] = {tag["name"]: [] for tag in document["tags"]}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            groups[operation["tags"][0]].append(_Found(method, path, operation))
    return groups


def _contents(groups: Mapping[str, list[_Found]]) -> str:
    parts = []
    for tag, operations in groups.items():
        links = "".join(
            f'<a href="#{escape(each.operation["operationId"])}">'
            f"{escape(each.operation['summary'].rstrip('.'))}</a>"
            for each in operations
        )
        parts.append(f"<h2>{escape(tag)}</h2>{links}")
    return "".join(parts) + '<h2><a href="#shapes">Shapes</a></h2>'


def _operation(found: _Found, schemas: Mapping[str, Any]) -> str:
    operation = found.operation
    words = f"{found.method} {found.path} {operation['summary']} {operation['operationId']}"
    return (
        f'<details id="{escape(operation["operationId"])}" data-words="{escape(words.lower())}">'
        f'<summary><span class="method {found.method}">{found.method.upper()}</span>'
        f'<code class="path">{escape(found.path)}</code>'
        f'<span class="what">{escape(operation["summary"].rstrip("."))}</span></summary>'
        f'<div class="inside">{"".join(_inside(found, schemas))}</div></details>'
    )


def _inside(found: _Found, schemas: Mapping[str, Any]) -> Iterator[str]:
    operation = found.operation
    yield f"<p>{_needs(operation)}</p>"
    if operation["parameters"]:
        rows = "".join(_parameter(each) for each in operation["parameters"])
        yield f"<h4>Parameters</h4><table>{rows}</table>"
    body = operation.get("requestBody")
    if body is not None:
        for kind, content in body["content"].items():
            wanted = "" if body["required"] else " (may be left out)"
            yield f"<h4>Body{wanted}</h4><p><code>{escape(kind)}</code> "
            yield f"{_type(content['schema'])}</p>"
    yield f"<h4>Answers</h4><table>{''.join(_responses(operation['responses']))}</table>"
    example = curl_example(found.method, found.path, operation, schemas)
    yield '<h4>Example</h4><div class="curl"><button type="button">copy</button>'
    yield f"<pre>{escape(example)}</pre></div>"


def _needs(operation: Mapping[str, Any]) -> str:
    if not operation["security"]:
        return '<span class="tag">no key needed</span>'
    action = operation.get("x-hermes-action")
    return f'<span class="tag">key: {escape(action) if action else "any"}</span>'


def _parameter(parameter: Mapping[str, Any]) -> str:
    need = ' <span class="need">required</span>' if parameter["required"] else ""
    text = escape(parameter.get("description", ""))
    return (
        f"<tr><td><code>{escape(parameter['name'])}</code>{need}</td>"
        f'<td>{_type(parameter["schema"])} <span class="soft">in {parameter["in"]}</span> '
        f"{text}</td></tr>"
    )


def _responses(responses: Mapping[str, Any]) -> Iterator[str]:
    """Yield a row for each good answer, and one for all errors: they have one shape."""
    errors = [status for status, response in responses.items() if "$ref" in response]
    for status, response in responses.items():
        if status not in errors:
            content = response.get("content", {})
            shown = ", ".join(
                f"<code>{escape(kind)}</code> {_type(media.get('schema', {'type': ''}))}"
                for kind, media in content.items()
            )
            yield _answer(status, shown or '<span class="soft">nothing</span>')
    if errors:
        yield _answer(" ".join(errors), _type_link("ErrorBody"))


def _answer(status: str, shown: str) -> str:
    return f"<tr><td><code>{escape(status)}</code></td><td>{shown}</td></tr>"


def _schema(name: str, schema: Mapping[str, Any]) -> str:
    required = set(schema.get("required", ()))
    rows = "".join(
        _property(key, value, needed=key in required)
        for key, value in schema.get("properties", {}).items()
    )
    shown = f"<table>{rows}</table>" if rows else f"<p>{_type(schema)}</p>"
    about = escape(schema.get("description", ""))
    return (
        f'<details id="shape-{escape(name)}" data-words="{escape(name.lower())}">'
        f'<summary><code class="path">{escape(name)}</code><span class="what">{about}</span>'
        f'</summary><div class="inside">{shown}</div></details>'
    )


def _property(name: str, schema: Mapping[str, Any], *, needed: bool) -> str:
    need = ' <span class="need">required</span>' if needed else ""
    default = schema.get("default")
    shown = f' <span class="soft">default {escape(repr(default))}</span>' if default else ""
    text = escape(schema.get("description", ""))
    return (
        f"<tr><td><code>{escape(name)}</code>{need}</td><td>{_type(schema)}{shown} {text}</td></tr>"
    )


def _type(schema: Mapping[str, Any]) -> str:
    """Return a schema in a few words."""
    if "$ref" in schema:
        return _type_link(schema["$ref"].rpartition("/")[2])
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type(part) for part in schema["anyOf"]))
    if "enum" in schema:
        return " | ".join(f"<code>{escape(str(value))}</code>" for value in schema["enum"])
    if "const" in schema:
        return f"<code>{escape(str(schema['const']))}</code>"
    if schema.get("type") == "array":
        items = schema.get("items")
        return f"list of {_type(items)}" if items else "list"
    if isinstance(schema.get("additionalProperties"), Mapping) and schema["additionalProperties"]:
        return f"object of {_type(schema['additionalProperties'])}"
    limits = "".join(_limits(schema))
    return f"{escape(str(schema.get('type', 'anything')))}{limits}"


def _limits(schema: Mapping[str, Any]) -> Iterator[str]:
    names = {"minimum": "≥", "maximum": "≤", "maxLength": "at most", "maxItems": "at most"}
    for name, sign in names.items():
        if name in schema:
            yield f' <span class="soft">{sign} {escape(str(schema[name]))}</span>'


def _type_link(name: str) -> str:
    return f'<a href="#shape-{escape(name)}">{escape(name)}</a>'
