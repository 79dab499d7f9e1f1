"""What goes back to the client, and what the wire carries."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes.http_door import SECRET, HttpDoor, http_door
from fakes.http_kit import ENDPOINTS, LIMIT, error_of, head, raw
from hermes.entry.http.settings import HttpSettings
from hermes.testing import ScriptedModel


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[HttpDoor]:
    settings = HttpSettings(port=0, max_body_bytes=LIMIT, max_auth_failures=1000)
    async with http_door(tmp_path, ScriptedModel(), endpoints=ENDPOINTS, settings=settings) as door:
        yield door


# -- answers -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "status", "code"),
    [
        ("missing", 404, "not_found"),
        ("conflict", 409, "conflict"),
        ("usage", 400, "usage"),
        ("store", 503, "store"),
        ("busy", 429, "too_many_runs"),
        ("draining", 503, "draining"),
        ("odd", 500, "error"),
        ("teapot", 418, "teapot"),
    ],
)
async def test_our_errors_have_fitting_statuses(
    door: HttpDoor, kind: str, status: int, code: str
) -> None:
    answer = await door.client.get(f"/fail/{kind}")
    error = error_of(answer, status)
    assert error["code"] == code
    assert SECRET not in answer.text
    if status in {429, 503}:
        assert int(answer.headers["retry-after"]) >= 1


@pytest.mark.parametrize("path", ["/fail/bug", "/fail/group", "/unsendable"])
async def test_a_bug_is_logged_and_answered_without_details(
    door: HttpDoor, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    answer = await door.client.get(path)
    error = error_of(answer, 500)
    assert error["code"] == "internal_error"
    assert "secret detail" not in answer.text
    assert answer.headers["x-request-id"] in error["message"]
    logged = next(record for record in caplog.records if record.exc_info)
    assert answer.headers["x-request-id"] in logged.getMessage()


@pytest.mark.parametrize("path", ["/hello", "/nowhere", "/fail/bug", "/openapi.json"])
async def test_every_answer_has_the_security_headers(door: HttpDoor, path: str) -> None:
    headers = (await door.client.get(path)).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"
    assert headers["content-security-policy"].startswith("default-src 'none'")
    assert headers["x-request-id"].startswith("req_")
    assert "date" in headers
    assert "server" not in headers


async def test_a_header_of_ours_cannot_be_broken_out_of(door: HttpDoor) -> None:
    answer = await door.client.get("/hello")
    assert "set-cookie" not in answer.headers
    assert answer.headers["x-odd"] == "a  Set-Cookie: x=1"


async def test_an_answer_without_content_has_none(door: HttpDoor) -> None:
    answer = await door.client.delete("/things/1")
    assert (answer.status_code, answer.content) == (204, b"")


async def test_requests_are_counted_by_route_and_not_by_path(door: HttpDoor) -> None:
    await door.client.get("/things/1")
    await door.client.get("/things/2")
    await door.client.request("BREW", "/nowhere")
    counter = door.context.metrics.counter("hermes_http_requests_total", "")
    assert counter.value(method="GET", route="/things/{thing_id}", status="200") == 2
    assert all(("method", "BREW") not in labels for _, labels, _ in counter.samples())


# -- the wire ------------------------------------------------------------------


async def test_pipelined_requests_are_answered_in_order(door: HttpDoor) -> None:
    keep = head("GET", "/things/one").replace(b"Connection: close\r\n", b"")
    answer = await raw(door, keep + head("GET", "/things/two"))
    assert answer.count(b"HTTP/1.1 200") == 2
    assert answer.index(b'"one"') < answer.index(b'"two"')


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: local\x00host\r\n\r\n",
        b"GET / HTTP/1.1\r\nBad Header: 1\r\n\r\n",
        b"GET /hello HTTP/1.1\r\nX: " + b"y" * 70_000,
        b"GET /hello HTTP/1.1\r\n" + b"X: y\r\n" * 20_000,
    ],
)
async def test_garbage_is_a_400_and_the_connection_ends(door: HttpDoor, data: bytes) -> None:
    assert (await raw(door, data)).startswith(b"HTTP/1.1 400")
    assert (await door.client.get("/hello")).text == "hello"


async def test_answers_do_not_wait_for_acknowledgements(door: HttpDoor) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
    request = head("GET", "/hello").replace(b"Connection: close\r\n", b"")
    loop = asyncio.get_running_loop()
    began = loop.time()
    for _ in range(20):
        writer.write(request)
        assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200")
    writer.close()
    await writer.wait_closed()
    # With Nagle's algorithm each answer in two segments takes 40 ms.
    assert loop.time() - began < 0.6
