"""The document that describes the API, and the page to read it."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import UNSET, Meta, Struct, UnsetType

from fakes.http_door import http_door
from hermes.domain.keys import Action
from hermes.entry.http.api import all_endpoints
from hermes.entry.http.endpoint import Answer, Call, Endpoint, Events, JsonAnswer
from hermes.entry.http.openapi import openapi_document, with_description
from hermes.testing import ScriptedModel


class Part(Struct, kw_only=True):
    """A part of a message."""

    type: Literal["text"] = "text"
    text: str


class Ask(Struct, kw_only=True):
    messages: list[Part]
    model: str | None = None
    stream: bool = False
    note: str = "<script>alert(1)</script>"


class Piece(Struct, kw_only=True):
    delta: str | UnsetType = UNSET


class Told(Struct, kw_only=True):
    kind: Literal["told", "asked"] = "told"
    """Who has spoken,
    and why."""
    parts: list[Part]
    rest: list[Any] = []
    note: str | UnsetType = UNSET


class Paging(Struct, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    """How many."""
    source: str | None = None
    tag: tuple[str, ...] = ()


class Change(Struct, kw_only=True):
    title: str | None = None


async def handler(call: Call[Any, Any]) -> Answer:
    return JsonAnswer(value={"parts": []})


def endpoint(name: str, method: str, path: str, **more: Any) -> Endpoint:
    return Endpoint(
        name=name, method=method, path=path, summary=f"{name}.", tag="Talk", handler=handler, **more
    )


ENDPOINTS = (
    endpoint(
        "ask",
        "POST",
        "/v1/ask",
        body=Ask,
        action=Action.RUN,
        answers={200: (Told, Events(Piece))},
        problems=(409, 502),
    ),
    endpoint("list", "GET", "/v1/things", query=Paging, answers={200: Told}),
    endpoint("events", "GET", "/v1/things/{thing_id}/events", answers={200: Events(Piece)}),
    endpoint("change", "PATCH", "/v1/things/{thing_id}", body=Change, answers={200: Told}),
    endpoint("remove", "DELETE", "/v1/things/{thing_id}", answers={204: None}),
    endpoint("health", "GET", "/health", public=True, answers={200: dict[str, str]}),
)


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    listed = with_description(ENDPOINTS)
    encoded = msgspec.json.encode(openapi_document(listed, "1"))
    decoded: dict[str, Any] = msgspec.json.decode(encoded)
    return decoded


def references(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for each in value.values():
            yield from references(each)
    elif isinstance(value, list):
        for each in value:
            yield from references(each)


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


def test_it_is_an_openapi_3_1_document_whose_references_lead_somewhere(
    document: dict[str, Any],
) -> None:
    assert document["openapi"] == "3.1.0"
    assert {"title", "version"} <= document["info"].keys()
    found = set(references(document))
    assert "#/components/schemas/Ask" in found
    for reference in found:
        place: Any = document
        for step in reference.removeprefix("#/").split("/"):
            place = place[step]
        assert isinstance(place, dict)


def test_operations_have_unique_ids_and_describe_their_path_parameters(
    document: dict[str, Any],
) -> None:
    ids = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(ids) == len(set(ids)) == 9
    for _, path, operation in operations(document):
        named = {each["name"] for each in operation["parameters"] if each["in"] == "path"}
        assert named == set(re.findall(r"\{(\w+)\}", path))
        assert {tag["name"] for tag in document["tags"]} >= set(operation["tags"])


def test_every_answer_of_the_machinery_is_declared(document: dict[str, Any]) -> None:
    ask = document["paths"]["/v1/ask"]["post"]["responses"]
    machinery = {"400", "401", "403", "408", "413", "415", "429", "500", "503"}
    assert set(ask) == {"200", "409", "502"} | machinery
    events = document["paths"]["/v1/things/{thing_id}/events"]["get"]["responses"]
    assert set(events) == {"200", "400", "401", "403", "404", "429", "500", "503"}
    health = document["paths"]["/health"]["get"]["responses"]
    assert set(health) == {"200", "400", "403", "500", "503"}
    error = document["components"]["responses"]["Error401"]["content"]["application/json"]
    assert error["schema"] == {"$ref": "#/components/schemas/ErrorBody"}


def test_streams_and_values_stand_beside_each_other(document: dict[str, Any]) -> None:
    content = document["paths"]["/v1/ask"]["post"]["responses"]["200"]["content"]
    event = [{"$ref": f"#/components/schemas/{name}"} for name in ("Piece", "StreamEvent")]
    assert content == {
        "application/json": {"schema": {"$ref": "#/components/schemas/Told"}},
        "text/event-stream": {"schema": {"anyOf": event}},
    }
    only = document["paths"]["/v1/things/{thing_id}/events"]["get"]["responses"]["200"]["content"]
    assert only["text/event-stream"]["schema"]["anyOf"] == [*event, {"type": "string"}]
    gone = document["paths"]["/v1/things/{thing_id}"]["delete"]["responses"]["204"]
    assert "content" not in gone


def test_a_body_without_required_fields_may_be_left_out(document: dict[str, Any]) -> None:
    paths = document["paths"]
    assert paths["/v1/ask"]["post"]["requestBody"]["required"] is True
    assert paths["/v1/things/{thing_id}"]["patch"]["requestBody"]["required"] is False
    assert "requestBody" not in paths["/v1/things"]["get"]


def test_query_and_header_parameters_are_described(document: dict[str, Any]) -> None:
    listed = document["paths"]["/v1/things"]["get"]["parameters"]
    query = {each["name"]: each["schema"] for each in listed if each["in"] == "query"}
    assert query["limit"] == {"type": "integer", "minimum": 1, "maximum": 200, "default": 50}
    assert query["source"] == {"type": "string"}
    assert query["tag"]["type"] == "array"
    ask = document["paths"]["/v1/ask"]["post"]["parameters"]
    headers = {each["name"]: each["schema"]["maxLength"] for each in ask}
    assert headers["Idempotency-Key"] == 256
    events = document["paths"]["/v1/things/{thing_id}/events"]["get"]["parameters"]
    assert "Last-Event-ID" in {each["name"] for each in events}


def test_generators_find_types_required_fields_and_descriptions(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    told, ask = schemas["Told"], schemas["Ask"]
    assert set(told["required"]) == {"kind", "parts", "rest"}, "all that an answer always has"
    assert told["properties"]["kind"] == {
        "type": "string",
        "enum": ["asked", "told"],
        "description": 'Who has spoken, and why. Default: `"told"`.',
    }
    assert told["properties"]["rest"] == {"type": "array", "items": {}}
    assert ask["required"] == ["messages"]
    assert ask["properties"]["stream"] == {"type": "boolean", "description": "Default: `false`."}
    assert schemas["Part"]["description"] == "A part of a message."
    listed = document["paths"]["/v1/things"]["get"]["parameters"]
    assert [each.get("description") for each in listed if each["name"] == "limit"] == ["How many."]


def test_names_of_schemas_are_short_and_the_wire_is_described() -> None:
    whole = openapi_document(with_description(all_endpoints()), "1")
    schemas = whole["components"]["schemas"]
    assert not [name for name in schemas if not re.fullmatch(r"[A-Z][A-Za-z]{2,27}", name)]
    assert schemas["RunKind"]["enum"] == ["chat", "response", "run", "session", "webhook"]
    assert "waiting_for_approval" in schemas["RunView"]["properties"]["status"]["enum"]
    streams = {
        schema["anyOf"][0]["$ref"]
        for _, _, operation in operations(whole)
        for answer in operation["responses"].values()
        if (schema := answer.get("content", {}).get("text/event-stream", {}).get("schema"))
    }
    names = {"ChatCompletionChunk", "ResponseStreamEvent", "RunEvent", "SessionEvent"}
    assert streams == {f"#/components/schemas/{name}" for name in names}


def test_public_operations_need_no_key(document: dict[str, Any]) -> None:
    assert document["paths"]["/health"]["get"]["security"] == []
    assert document["paths"]["/v1/ask"]["post"]["security"] == [{"bearer": []}, {"apiKey": []}]
    assert set(document["components"]["securitySchemes"]) == {"bearer", "apiKey"}


async def test_both_are_served_without_a_key(tmp_path: Path) -> None:
    async with http_door(tmp_path, ScriptedModel(), endpoints=ENDPOINTS) as door:
        nobody = await door.with_key(None)
        served = await nobody.get("/openapi.json")
        assert served.headers["content-type"] == "application/json"
        assert set(served.json()["paths"]) >= {"/v1/ask", "/openapi.json", "/docs"}
        start = await nobody.get("/")
        assert (start.status_code, start.headers["location"]) == (302, "/docs")
        page = await nobody.get("/docs")
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        policy = page.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; style-src 'sha256-")
        assert "unsafe" not in policy
        assert len(page.headers.get_list("content-security-policy")) == 1
