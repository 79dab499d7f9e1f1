"""Endpoints that show what the machinery makes of requests, and ways to send odd ones."""

import asyncio
from typing import Annotated, Any

from msgspec import Meta, Struct

from fakes.http_door import KEY, SECRET, HttpDoor
from hermes.control.runs.runs import Draining, TooBusy
from hermes.domain.errors import Conflict, HermesError, NotFound, StoreError, UsageError
from hermes.domain.keys import Action
from hermes.entry.http.endpoint import Answer, Call, Endpoint, JsonAnswer, TextAnswer
from hermes.entry.http.errors import Problem

__all__ = ["ENDPOINTS", "LIMIT", "error_of", "head", "raw"]


class Item(Struct, kw_only=True):
    name: str
    count: Annotated[int, Meta(ge=0)] = 0


class Order(Struct, kw_only=True):
    items: list[Item]
    note: str = ""


class Wishes(Struct, kw_only=True):
    text: str = ""


class Paging(Struct, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    deep: bool = False
    scale: float = 1.0
    source: str | None = None
    tag: tuple[str, ...] = ()


FAILURES: dict[str, Exception] = {
    "missing": NotFound("There is no such thing.", hint="Look elsewhere."),
    "conflict": Conflict("Taken."),
    "usage": UsageError(f"The token {SECRET} is wrong."),
    "store": StoreError("The disk is full."),
    "busy": TooBusy("Too many."),
    "draining": Draining("Stopping."),
    "odd": HermesError("Odd."),
    "teapot": Problem(418, "I am a teapot.", code="teapot", param="pot"),
    "bug": RuntimeError(f"secret detail {SECRET}"),
    "group": ExceptionGroup("several", [ValueError("secret detail")]),
}


async def order(call: Call[Order, None]) -> Answer:
    return JsonAnswer(value={"items": call.body.items, "note": call.body.note})


async def wishes(call: Call[Wishes, None]) -> Answer:
    return JsonAnswer(value={"text": call.body.text, "fingerprint": call.fingerprint}, status=201)


async def listed(call: Call[None, Paging]) -> Answer:
    return JsonAnswer(value=call.query)


async def thing(call: Call[None, None]) -> Answer:
    return JsonAnswer(value={"id": call.path["thing_id"], "headers": call.headers})


async def part(call: Call[None, None]) -> Answer:
    return JsonAnswer(value=dict(call.path))


async def fail(call: Call[None, None]) -> Answer:
    raise FAILURES[call.path["kind"]]


async def unsendable(call: Call[None, None]) -> Answer:
    return JsonAnswer(value=object())


async def hello(call: Call[None, None]) -> Answer:
    return TextAnswer(text="hello", headers={"X-Odd": "a\r\nSet-Cookie: x=1"})


async def nothing(call: Call[None, None]) -> Answer:
    return JsonAnswer(value=None, status=204)


def endpoint(name: str, method: str, path: str, handler: Any, **more: Any) -> Endpoint:
    return Endpoint(
        name=name, method=method, path=path, summary=name, tag="Test", handler=handler, **more
    )


ENDPOINTS = (
    endpoint("order", "POST", "/order", order, body=Order),
    endpoint("wishes", "POST", "/wishes", wishes, body=Wishes),
    endpoint("list", "GET", "/things", listed, query=Paging),
    endpoint("thing", "GET", "/things/{thing_id}", thing),
    endpoint("newest", "GET", "/things/newest", hello),
    endpoint("part", "DELETE", "/things/{thing_id}/parts/{part_id}", part),
    endpoint("fail", "GET", "/fail/{kind}", fail),
    endpoint("unsendable", "GET", "/unsendable", unsendable),
    endpoint("hello", "GET", "/hello", hello, public=True),
    endpoint("nothing", "DELETE", "/things/{thing_id}", nothing),
    endpoint("admin", "GET", "/admin", hello, action=Action.ADMIN),
)
LIMIT = 4096


def error_of(answer: Any, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "code", "param"}
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-request-id"].startswith("req_")
    assert isinstance(body["error"], dict)
    return body["error"]


async def raw(door: HttpDoor, data: bytes) -> bytes:
    """Send bytes and return all that comes until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
    try:
        writer.write(data)
        async with asyncio.timeout(10):
            return await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()


def head(method: str, path: str, *lines: str) -> bytes:
    own = ["Host: 127.0.0.1", f"Authorization: Bearer {KEY}", "Connection: close", *lines]
    return "\r\n".join([f"{method} {path} HTTP/1.1", *own, "", ""]).encode("latin-1")
