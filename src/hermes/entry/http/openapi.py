"""The OpenAPI 3.1 document, written from the endpoints themselves.

Schemas come from the structs that check requests and shape answers, so the
document cannot say anything else than what the server does. It is written when
somebody asks for it, once.
"""

import ast
import asyncio
import base64
import hashlib
import inspect
import re
import sys
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

import msgspec

from hermes.domain.keys import Action
from hermes.entry.http.endpoint import (
    EVENT_STREAM,
    Call,
    Endpoint,
    Events,
    Operations,
    TextAnswer,
)
from hermes.entry.http.errors import ErrorBody
from hermes.entry.http.events import StreamEvent
from hermes.entry.http.request import HEADERS, MAX_ID_DIGITS, BodyPlan

_PAGE = Path(__file__).with_name("docs.html")
_JSON = "application/json"
_TEMPLATE = "#/components/schemas/{name}"
_PARAMETER = re.compile(r"\{([a-z_]+)\}")
_ERRORS = {
    400: "The request cannot be understood; `param` names the place.",
    401: "The key is missing, wrong, revoked or expired.",
    403: "The key does not allow this, or the host or origin may not be used.",
    404: "There is no such thing, or it is out of reach of this key.",
    405: "There is no such method here.",
    408: "The body did not come in time.",
    409: "It collides with something that is already there.",
    410: "It is gone.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    422: "The request is understood, but cannot be carried out.",
    429: "Too much at once; `Retry-After` says when to try again.",
    500: "Something unexpected went wrong; the log has the details.",
    502: "The agent or its model gave no usable answer.",
    503: "Not available right now: stopping, or the store cannot be used.",
}


def with_description(endpoints: Sequence[Endpoint]) -> tuple[Endpoint, ...]:
    """Return the endpoints, and those that serve the document and a page to read it."""
    kept: dict[str, str] = {}

    about = Operations("About")

    @about("GET /openapi.json", public=True, answers={200: dict[str, Any]})
    async def get_open_api(call: Call[None, None]) -> TextAnswer:
        """This document."""
        if "json" not in kept:
            document = await asyncio.to_thread(openapi_document, listed, call.context.version)
            kept["json"] = msgspec.json.encode(document).decode()
        return TextAnswer(text=kept["json"], media_type=_JSON)

    @about("GET /docs", public=True, answers={200: "text/html"})
    async def get_docs(_call: Call[None, None]) -> TextAnswer:
        """A page to read it."""
        if "page" not in kept:
            kept["page"] = await asyncio.to_thread(_PAGE.read_text, "utf-8")
        return TextAnswer(
            text=kept["page"],
            media_type="text/html; charset=utf-8",
            headers={"content-security-policy": _page_policy(kept["page"])},
        )

    @about("GET /", public=True, answers={302: None})
    async def get_start(_call: Call[None, None]) -> TextAnswer:
        """Leads a browser to the page that says what this is."""
        return TextAnswer(text="", status=302, headers={"location": "/docs"})

    listed = (*endpoints, get_open_api, get_docs, get_start)
    return listed


def openapi_document(endpoints: Sequence[Endpoint], version: str) -> dict[str, Any]:
    schemas = _Schemas(endpoints)
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, schemas)
    tags = dict.fromkeys(endpoint.tag for endpoint in endpoints)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Hermes",
            "version": version,
            "description": "One agent behind many doors: the HTTP door. OpenAI-compatible chat "
            "completions and responses, durable runs, sessions and jobs.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": tag} for tag in tags],
        "security": [{"bearer": []}],
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "responses": {f"Error{status}": _error(status) for status in _ERRORS},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "apiKey": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
    }


class _Schemas:
    """The schemas of all types that endpoints name, with one place for shared ones."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        asked: dict[Any, None] = {}
        told: dict[Any, None] = {ErrorBody: None, StreamEvent: None}
        for endpoint in endpoints:
            query = (_without_none(field.type) for field in _query_fields(endpoint.query))
            asked.update((kind, None) for kind in (endpoint.body, *query))
            answers = (kind for answer in endpoint.answers.values() for kind in _each(answer))
            told.update((kind.kind if isinstance(kind, Events) else kind, None) for kind in answers)
        listed = [kind for kind in asked | told if not _is_plain(kind)]
        schemas, components = msgspec.json.schema_components(listed, ref_template=_TEMPLATE)
        self._of = dict(zip(listed, _plain(schemas), strict=True))
        self.components = _plain(components)
        asks, tells = (
            _structs(kind for kind in kinds if not _is_plain(kind)) for kinds in (asked, told)
        )
        self.notes = _Notes()
        for struct, fields in (asks | tells).items():
            schema = self.components[struct.__name__]
            if struct not in asks:
                sent = (each.encode_name for each in fields if _always_sent(struct, each))
                schema["required"] = list(dict.fromkeys([*schema.get("required", ()), *sent]))
            for field in fields:
                _describe(
                    schema["properties"][field.encode_name], self.notes.of(struct, field.name)
                )

    def of(self, kind: Any) -> dict[str, Any]:
        return {"type": "string"} if _is_plain(kind) else self._of[kind]


def _operation(endpoint: Endpoint, schemas: _Schemas) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "tags": [endpoint.tag],
        "parameters": [*_path(endpoint), *_query(endpoint, schemas), *_headers(endpoint)],
        "responses": _responses(endpoint, schemas),
    }
    if endpoint.socket:
        operation["x-websocket"] = {"type": endpoint.socket}
    if endpoint.public:
        operation["security"] = []
    else:
        operation["security"] = [{"bearer": []}, {"apiKey": []}]
        operation["x-hermes-action"] = endpoint.action.value if endpoint.action else None
    if endpoint.body is not None:
        kind = "application/octet-stream" if endpoint.body is bytes else _JSON
        operation["requestBody"] = {
            "required": not BodyPlan(endpoint.body).optional,
            "content": {kind: {"schema": schemas.of(endpoint.body)}},
        }
    return operation


def _path(endpoint: Endpoint) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in _PARAMETER.findall(endpoint.path)
    ]


def _query(endpoint: Endpoint, schemas: _Schemas) -> list[dict[str, Any]]:
    parameters = []
    for field in _query_fields(endpoint.query):
        schema = schemas.of(_without_none(field.type))
        if field.default is not msgspec.NODEFAULT and field.default is not None:
            schema = {**schema, "default": msgspec.to_builtins(field.default)}
        named = {"name": field.encode_name, "in": "query", "required": field.required}
        note = schemas.notes.of(endpoint.query, field.name)
        parameters.append({**named, **({"description": note} if note else {}), "schema": schema})
    return parameters


def _headers(endpoint: Endpoint) -> list[dict[str, Any]]:
    starts_run = endpoint.action is Action.RUN and endpoint.method == "POST"
    told = _each(endpoint.answers.get(200))
    streams = endpoint.method == "GET" and any(isinstance(kind, Events) for kind in told)
    parameters = []
    for field, name, limit, text in HEADERS:
        resumes = field == "last_event_id"
        if streams if resumes else starts_run:
            most, pattern = (MAX_ID_DIGITS, "^[0-9]*$") if resumes else (limit, "^[ -~]*$")
            schema = {"type": "string", "maxLength": most, "pattern": pattern}
            shown = {"name": name, "in": "header", "required": False}
            parameters.append({**shown, "description": text, "schema": schema})
    return parameters


def _responses(endpoint: Endpoint, schemas: _Schemas) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status, answer in endpoint.answers.items():
        content = dict(_media_type(kind, schemas, answer) for kind in _each(answer))
        described = {"description": endpoint.summary}
        responses[str(status)] = described | ({"content": content} if content else {})
    for status in sorted(_error_statuses(endpoint)):
        responses.setdefault(str(status), {"$ref": f"#/components/responses/Error{status}"})
    return responses


def _media_type(kind: Any, schemas: _Schemas, answer: Any) -> tuple[str, dict[str, Any]]:
    if not isinstance(kind, Events):
        return kind if isinstance(kind, str) else _JSON, {"schema": schemas.of(kind)}
    # 3.1 has no word for one event of many: some tools take the schema for that of its data, some
    # for that of the event. Generated clients read what is nothing but a stream as text.
    either = [schemas.of(kind.kind), schemas.of(StreamEvent)]
    whole = [] if isinstance(answer, tuple) else [{"type": "string"}]
    return EVENT_STREAM, {"schema": {"anyOf": either + whole}}


def _error_statuses(endpoint: Endpoint) -> set[int]:
    statuses = {400, 403, 500, 503, *endpoint.problems} - endpoint.answers.keys()
    if not endpoint.public:
        statuses |= {401, 429}
    if "{" in endpoint.path:
        statuses.add(404)
    if endpoint.body is not None:
        statuses |= {408, 413, 415}
    return statuses


def _error(status: int) -> dict[str, Any]:
    schema = {"$ref": _TEMPLATE.format(name=ErrorBody.__name__)}
    error: dict[str, Any] = {
        "description": _ERRORS[status],
        "content": {_JSON: {"schema": schema}},
    }
    if status in {429, 503}:
        error["headers"] = {"Retry-After": {"schema": {"type": "integer", "minimum": 0}}}
    if status == 401:
        error["headers"] = {"WWW-Authenticate": {"schema": {"type": "string"}}}
    return error


def _plain(schema: Any) -> Any:
    """Write a schema so that generators of clients get along with it.

    They want the type of an enum and the items of an array named, and take a field with a default
    for one that has to be sent: defaults are told in words.
    """
    if isinstance(schema, list | tuple):
        return [_plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {name: _plain(each) for name, each in schema.items() if name != "default"}
    if isinstance(text := plain.get("description"), str):
        plain["description"] = inspect.cleandoc(text)
    if isinstance(values := plain.get("enum"), list) and all(isinstance(v, str) for v in values):
        plain.setdefault("type", "string")
    if plain.get("type") == "array" and "prefixItems" not in plain:
        plain.setdefault("items", {})
    usual, single = schema.get("default"), len(plain.get("enum", ())) == 1
    if isinstance(usual, str | int | float) and usual != "" and not single:
        _describe(plain, f"Default: `{msgspec.json.encode(usual).decode()}`.")
    return plain


def _describe(schema: dict[str, Any], text: str | None) -> dict[str, Any]:
    """Put a text before what is said of a schema already."""
    if text:
        schema["description"] = " ".join(filter(None, (text, schema.get("description"))))
    return schema


def _structs(kinds: Iterable[Any]) -> dict[type, tuple[msgspec.inspect.Field, ...]]:
    """Return the structs that types are made of, with their fields."""
    found: dict[type, tuple[msgspec.inspect.Field, ...]] = {}
    left: list[Any] = list(msgspec.inspect.multi_type_info(kinds))
    while left:
        kind = left.pop()
        if isinstance(kind, msgspec.inspect.StructType):
            if kind.cls not in found:
                found[kind.cls] = kind.fields
                left += [field.type for field in kind.fields]
        elif isinstance(kind, msgspec.inspect.Type):
            for name in kind.__struct_fields__:
                part = getattr(kind, name)
                left += part if isinstance(part, tuple) else [part]
    return found


def _always_sent(struct: Any, field: msgspec.inspect.Field) -> bool:
    """Tell whether an answer has the field in any case: it is not left out where unset."""
    if struct.__struct_config__.omit_defaults:
        return field.required
    given = (field.default, field.default_factory)
    return field.required or any(each is not msgspec.NODEFAULT for each in given)


class _Notes:
    """What stands below the fields of structs, in their source."""

    def __init__(self) -> None:
        self._modules: dict[str, dict[str, dict[str, str]]] = {}

    def of(self, struct: type, field: str) -> str | None:
        for each in (kind for kind in struct.__mro__ if issubclass(kind, msgspec.Struct)):
            notes = self._module(each.__module__).get(each.__name__, {})
            if field in notes or field in inspect.get_annotations(each):
                return notes.get(field)
        return None

    def _module(self, name: str) -> dict[str, dict[str, str]]:
        if name not in self._modules:
            path = getattr(sys.modules.get(name), "__file__", None) or ""
            source = Path(path).read_text("utf-8") if path.endswith(".py") else ""
            classes = (each for each in ast.parse(source).body if isinstance(each, ast.ClassDef))
            self._modules[name] = {each.name: _field_notes(each) for each in classes}
        return self._modules[name]


def _field_notes(struct: ast.ClassDef) -> dict[str, str]:
    notes = {}
    for field, note in pairwise(struct.body):
        match field, note:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                notes[name] = " ".join(text.split())
    return notes


def _each(answer: Any) -> tuple[Any, ...]:
    """Return the kinds of an answer: one, several in a tuple, or none."""
    if answer is None:
        return ()
    return answer if isinstance(answer, tuple) else (answer,)


def _is_plain(kind: Any) -> bool:
    """Tell whether there is nothing to say about it but that it is text or bytes."""
    return kind is None or kind is bytes or isinstance(kind, str)


def _query_fields(query: Any) -> tuple[msgspec.structs.FieldInfo, ...]:
    return () if query is None else msgspec.structs.fields(query)


def _without_none(kind: Any) -> Any:
    """Return the type of a query field: `null` cannot be said there, it is left out."""
    if get_origin(kind) not in {Union, UnionType}:
        return kind
    rest = tuple(part for part in get_args(kind) if part is not NoneType)
    return Union[rest] if rest else kind  # noqa: UP007 - the parts are values here


def _page_policy(page: str) -> str:
    """Allow the page its own style and script, by their hashes, and our own document."""
    style, script = (
        page.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0] for tag in ("style", "script")
    )
    return (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
