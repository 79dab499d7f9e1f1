"""A page to read the OpenAPI document: one file, nothing loaded from elsewhere.

It is written on the server from the document itself. Its style and its script
are allowed by their hashes, so nothing else on the page could ever run.
"""

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

__all__ = [
    "PAGE_POLICY",
    "SCRIPT",
    "STYLE",
    "curl_example",
    "docs_page",
]


STYLE = """
:root {
  color-scheme: light dark;
  --back: #fbfaf8; --card: #fff; --line: #e4e0d8; --text: #22201c; --soft: #6d675c;
  --accent: #8a4b12; --code: #f4f1eb;
  --get: #1f6f54; --post: #2b5fb0; --patch: #8a6a00; --put: #8a6a00; --delete: #a8322d;
}
@media (prefers-color-scheme: dark) {
  :root {
    --back: #16150f; --card: #1e1d17; --line: #35332a; --text: #ece8dd; --soft: #a39d8e;
    --accent: #e0a264; --code: #272519;
    --get: #63c79f; --post: #82aef0; --patch: #d8b84a; --put: #d8b84a; --delete: #ef8a83;
  }
}
* { box-sizing: border-box; }
html { scroll-padding-top: 1rem; }
body {
  margin: 0; background: var(--back); color: var(--text);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
}
a { color: var(--accent); text-decoration: none; }
a:hover { text-decoration: underline; }
code, pre { font-family: ui-monospace, "SF Mono", Menlo, Consolas, monospace; font-size: .86em; }
.frame {
  display: grid; grid-template-columns: 17rem minmax(0, 1fr); max-width: 78rem; margin: auto;
}
nav {
  position: sticky; top: 0; align-self: start; max-height: 100vh; overflow: auto;
  padding: 2rem 1rem 2rem 1.5rem; font-size: .9rem;
}
nav h2 {
  margin: 1.2rem 0 .3rem; font-size: .74rem; letter-spacing: .08em; text-transform: uppercase;
  color: var(--soft);
}
nav a { display: block; padding: .1rem 0; color: var(--text); overflow-wrap: anywhere; }
main { padding: 2rem 1.5rem 6rem; }
h1 { margin: 0; font-size: 2rem; letter-spacing: -.02em; }
h1 small { font-size: .9rem; font-weight: 400; color: var(--soft); letter-spacing: 0; }
.lead { color: var(--soft); max-width: 46rem; }
main > h2 { margin: 2.6rem 0 .8rem; font-size: 1.25rem; }
main > h2::first-letter { text-transform: uppercase; }
input {
  width: 100%; padding: .55rem .8rem; font: inherit; color: inherit; background: var(--card);
  border: 1px solid var(--line); border-radius: .5rem;
}
details {
  background: var(--card); border: 1px solid var(--line); border-radius: .6rem;
  margin: 0 0 .6rem; overflow: hidden;
}
summary {
  display: flex; gap: .8rem; align-items: baseline; padding: .6rem .9rem; cursor: pointer;
  list-style: none;
}
summary::-webkit-details-marker { display: none; }
summary:hover { background: var(--code); }
summary .path { font-weight: 600; overflow-wrap: anywhere; }
summary .what { color: var(--soft); margin-left: auto; text-align: right; font-size: .9rem; }
.method { font-weight: 700; min-width: 4.2rem; }
.get { color: var(--get); } .post { color: var(--post); } .put { color: var(--put); }
.patch { color: var(--patch); } .delete { color: var(--delete); }
.inside { padding: .2rem .9rem 1rem; border-top: 1px solid var(--line); }
h4 {
  margin: 1rem 0 .3rem; font-size: .74rem; letter-spacing: .08em; text-transform: uppercase;
  color: var(--soft);
}
table { width: 100%; border-collapse: collapse; font-size: .9rem; }
td { padding: .35rem .6rem .35rem 0; vertical-align: top; border-top: 1px solid var(--line); }
tr:first-child td { border-top: 0; }
td:first-child { width: 13rem; overflow-wrap: anywhere; }
.need { color: var(--delete); font-size: .78rem; }
.soft { color: var(--soft); }
.tag {
  display: inline-block; padding: 0 .5rem; border: 1px solid var(--line); border-radius: 1rem;
  font-size: .78rem; color: var(--soft);
}
.curl { position: relative; }
pre { margin: 0; padding: .8rem; background: var(--code); border-radius: .5rem; overflow-x: auto; }
button {
  position: absolute; top: .45rem; right: .45rem; font: inherit; font-size: .78rem; cursor: pointer;
  color: var(--soft); background: var(--card); border: 1px solid var(--line); border-radius: .4rem;
}
[hidden] { display: none !important; }
@media (max-width: 52rem) {
  .frame { display: block; } nav { display: none; }
  summary { flex-wrap: wrap; } summary .what { margin-left: 0; text-align: left; width: 100%; }
}
"""

SCRIPT = """
"use strict";
const search = document.getElementById("search");
const cards = [...document.querySelectorAll("details")];
search.addEventListener("input", () => {
  const words = search.value.toLowerCase().split(/\\s+/).filter(Boolean);
  for (const card of cards) {
    const text = card.dataset.words;
    card.hidden = !words.every((word) => text.includes(word));
  }
});
const open = () => {
  const card = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (card && card.tagName === "DETAILS") {
    card.open = true;
    card.scrollIntoView({ behavior: "instant" });
  }
};
for (const example of document.querySelectorAll(".curl pre")) {
  example.textContent = example.textContent.replace("http://127.0.0.1:8642", location.origin);
}
addEventListener("hashchange", open);
open();
for (const button of document.querySelectorAll("button")) {
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(button.nextElementSibling.textContent);
    button.textContent = "copied";
    setTimeout(() => { button.textContent = "copy"; }, 1200);
  });
}
"""


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
