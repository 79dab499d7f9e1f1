"""What the machinery makes of requests before a handler sees them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes.http_door import HttpDoor, http_door
from fakes.http_kit import ENDPOINTS, LIMIT, error_of, head, raw
from hermes.entry.http.settings import HttpSettings
from hermes.testing import ScriptedModel


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[HttpDoor]:
    settings = HttpSettings(port=0, max_body_bytes=LIMIT, max_auth_failures=1000)
    async with http_door(tmp_path, ScriptedModel(), endpoints=ENDPOINTS, settings=settings) as door:
        yield door


# -- bodies --------------------------------------------------------------------


async def test_a_body_is_decoded_into_its_struct(door: HttpDoor) -> None:
    answer = await door.client.post("/order", json={"items": [{"name": "pen"}], "more": 1})
    assert answer.json() == {"items": [{"name": "pen", "count": 0}], "note": ""}


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        (b"", "invalid_json", None),
        (b"{", "invalid_json", None),
        (b'{"items": []} x', "invalid_json", None),
        (b'{"items": [], "note": "\xff"}', "invalid_json", None),
        (b'{"items": [], "note": "\\ud800"}', "invalid_json", None),
        (b'{"more": ' + b"[" * 3000, "invalid_json", None),
        (b"[]", "invalid_request", None),
        (b"null", "invalid_request", None),
        (b"{}", "invalid_request", "items"),
        (b'{"items": 5}', "invalid_request", "items"),
        (b'{"items": [{"name": "a"}, {}]}', "invalid_request", "items[1].name"),
        (b'{"items": [{"name": "a", "count": -1}]}', "invalid_request", "items[0].count"),
        (b'{"items": [{"name": "a", "count": 1e999}]}', "invalid_request", "items[0].count"),
    ],
)
async def test_a_wrong_body_is_a_400_that_names_the_place(
    door: HttpDoor, body: bytes, code: str, param: str | None
) -> None:
    headers = {"content-type": "application/json"}
    error = error_of(await door.client.post("/order", content=body, headers=headers), 400)
    assert (error["code"], error["param"]) == (code, param)
    assert error["type"] == "invalid_request_error"


async def test_emoji_and_what_looks_like_an_escape_come_through(door: HttpDoor) -> None:
    body = {"items": [{"name": "a\\u0000b😀"}]}
    answer = await door.client.post("/order", json=body)
    assert answer.json()["items"][0]["name"] == "a\\u0000b😀"


@pytest.mark.parametrize(
    "body",
    [
        {"items": [{"name": "a\x00b"}]},
        {"items": [], "note": "\x00"},
        {"items": [], "x\x00": 1},
        {"items": [{"name": "\\\x00"}]},
    ],
)
async def test_a_nul_character_is_refused_wherever_it_is(
    door: HttpDoor, body: dict[str, object]
) -> None:
    assert error_of(await door.client.post("/order", json=body), 400)["code"] == "nul_character"


@pytest.mark.parametrize(
    ("text", "half"),
    [
        (r"cut \ud83d", r"\ud83d"),
        (r"\uD83D\uDE00 \uD83D!", r"\uD83D"),
        (r"\\ \ude00", r"\ude00"),
        (r"\ud83d\ud83d\ude00", r"\ud83d"),
        (r"\ud83d\n", r"\ud83d"),
    ],
)
async def test_half_a_character_is_called_by_its_name(door: HttpDoor, text: str, half: str) -> None:
    body = b'{"items": [{"name": "%b"}]}' % text.encode()
    headers = {"content-type": "application/json"}
    answer = await door.client.post("/order", content=body, headers=headers)
    error = error_of(answer, 400)
    assert error["code"] == "invalid_json"
    assert f"half a character (`{half}`" in error["message"]


async def test_whole_characters_and_what_looks_like_half_of_one_are_taken(door: HttpDoor) -> None:
    body = rb'{"items": [{"name": "\ud83d\ude00 \\ud83d"}]}'
    headers = {"content-type": "application/json"}
    answer = await door.client.post("/order", content=body, headers=headers)
    assert answer.json()["items"][0]["name"] == "😀 \\ud83d"


async def test_nesting_is_bounded_and_brackets_in_texts_do_not_count(door: HttpDoor) -> None:
    deep = b'{"items": [], "more": ' + b"[" * 99 + b"]" * 99 + b"}"
    headers = {"content-type": "application/json"}
    assert (await door.client.post("/order", content=deep, headers=headers)).status_code == 200
    deeper = b'{"items": [], "more": ' + b"[" * 100 + b"]" * 100 + b"}"
    refused = await door.client.post("/order", content=deeper, headers=headers)
    assert error_of(refused, 400)["message"] == "The body is nested too deeply."
    texts = {"items": [{"name": '[{"\\' * 30} for _ in range(10)]}
    assert (await door.client.post("/order", json=texts)).status_code == 200


async def test_a_body_without_required_fields_may_be_left_out(door: HttpDoor) -> None:
    answer = await door.client.post("/wishes")
    assert answer.status_code == 201
    assert answer.json()["text"] == ""


async def test_the_fingerprint_is_of_method_path_and_body(door: HttpDoor) -> None:
    async def fingerprint(text: str) -> str:
        answer = await door.client.post("/wishes", json={"text": text})
        return str(answer.json()["fingerprint"])

    assert await fingerprint("a") == await fingerprint("a")
    assert await fingerprint("a") != await fingerprint("b")


@pytest.mark.parametrize(
    "kind",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/json; charset=utf-16",
        "applicationjson",
        "application/xml",
    ],
)
async def test_a_body_that_is_not_json_is_a_415(door: HttpDoor, kind: str) -> None:
    headers = {"content-type": kind}
    answer = await door.client.post("/order", content=b'{"items": []}', headers=headers)
    assert error_of(answer, 415)["code"] == "not_json"


@pytest.mark.parametrize(
    "kind", ["application/json; charset=UTF-8", "Application/JSON", "application/vnd.x+json"]
)
async def test_json_has_many_names(door: HttpDoor, kind: str) -> None:
    headers = {"content-type": kind}
    answer = await door.client.post("/order", content=b'{"items": []}', headers=headers)
    assert answer.status_code == 200


async def test_a_body_may_be_as_long_as_the_limit_and_not_longer(door: HttpDoor) -> None:
    def body(size: int) -> bytes:
        frame = b'{"text": ""}'
        return b'{"text": "' + b"x" * (size - len(frame)) + b'"}'

    headers = {"content-type": "application/json"}
    fits = await door.client.post("/wishes", content=body(LIMIT), headers=headers)
    assert fits.status_code == 201
    long = await door.client.post("/wishes", content=body(LIMIT + 1), headers=headers)
    assert error_of(long, 413)["code"] == "body_too_large"


async def test_a_long_body_is_refused_by_its_length_alone(door: HttpDoor) -> None:
    request = head("POST", "/order", "Content-Type: application/json", "Content-Length: 99999999")
    assert (await raw(door, request)).startswith(b"HTTP/1.1 413")


async def test_a_long_body_in_chunks_is_refused_while_it_comes(door: HttpDoor) -> None:
    request = head("POST", "/order", "Transfer-Encoding: chunked")
    chunk = b"400\r\n" + b" " * 0x400 + b"\r\n"
    assert (await raw(door, request + chunk * 6)).startswith(b"HTTP/1.1 413")


async def test_a_body_in_small_chunks_is_put_together(door: HttpDoor) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for byte in b'{"items": [{"name": "slow"}]}':
            yield bytes([byte])

    headers = {"content-type": "application/json"}
    answer = await door.client.post("/order", content=pieces(), headers=headers)
    assert answer.json()["items"][0]["name"] == "slow"


@pytest.mark.parametrize("size", ["-1", "abc", "1e3", "99999999999999999999999999", "+5"])
async def test_an_odd_length_is_refused(door: HttpDoor, size: str) -> None:
    request = head("POST", "/order", f"Content-Length: {size}")
    assert (await raw(door, request + b"{}")).split()[1] in {b"400", b"413"}


async def test_two_different_lengths_are_refused(door: HttpDoor) -> None:
    request = head("POST", "/order", "Content-Length: 2", "Content-Length: 3")
    assert (await raw(door, request + b"{}")).startswith(b"HTTP/1.1 400")


async def test_a_body_that_does_not_come_is_a_408(tmp_path: Path) -> None:
    settings = HttpSettings(port=0, body_seconds=0.05)
    async with http_door(tmp_path, ScriptedModel(), endpoints=ENDPOINTS, settings=settings) as door:
        request = head("POST", "/order", "Content-Length: 50")
        assert (await raw(door, request + b"{")).startswith(b"HTTP/1.1 408")


async def test_a_client_that_leaves_within_its_body_harms_nobody(door: HttpDoor) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", door.port)
    writer.write(head("POST", "/order", "Content-Length: 50") + b"{")
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    assert (await door.client.get("/hello")).text == "hello"


async def test_an_offer_to_go_on_in_http_2_does_not_lose_the_body(door: HttpDoor) -> None:
    body = b'{"items": [{"name": "java"}]}'
    lines = ("Upgrade: h2c", "HTTP2-Settings: AAEAAEAAAAIAAAAB", "Content-Type: application/json")
    request = head("POST", "/order", *lines, f"Content-Length: {len(body)}")
    request = request.replace(b"Connection: close", b"Connection: Upgrade, HTTP2-Settings, close")
    assert b'"java"' in await raw(door, request + body)


# -- queries, headers, paths ---------------------------------------------------


async def test_query_parameters_become_typed_values(door: HttpDoor) -> None:
    answer = await door.client.get("/things?limit=7&deep=true&tag=a&tag=b&source=null&other=1")
    assert answer.json() == {
        "limit": 7,
        "deep": True,
        "scale": 1.0,
        "source": "null",
        "tag": ["a", "b"],
    }


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("limit=x", "limit"),
        ("limit=", "limit"),
        ("limit=0", "limit"),
        ("limit=201", "limit"),
        ("deep=perhaps", "deep"),
        ("scale=nan", "scale"),
        ("scale=inf", "scale"),
        ("source=%00", "source"),
        ("&".join(f"a{n}=1" for n in range(100)), None),
    ],
)
async def test_a_wrong_query_is_a_400_that_names_the_parameter(
    door: HttpDoor, query: str, param: str | None
) -> None:
    error = error_of(await door.client.get(f"/things?{query}"), 400)
    assert (error["code"], error["param"]) == ("invalid_request", param)


async def test_headers_with_a_meaning_reach_the_handler(door: HttpDoor) -> None:
    headers = {
        "X-Hermes-Session-Id": "s1",
        "X-Hermes-Session-Key": "family",
        "Idempotency-Key": "k1",
        "Last-Event-ID": "7",
        "X-Hermes-Task": "title",
        "X-Hermes-Tools": "none",
        "X-Stainless-Retry-Count": "1",
        "X-Hermes-Events": "approvals",
        "X-Hermes-Progress": "text",
        "X-Hermes-Chat-Id": "c1",
        "X-Hermes-User-Id": "u1",
        "X-Hermes-Thread-Id": "t1",
    }
    answer = await door.client.get("/things/1", headers=headers)
    assert answer.json()["headers"] == {
        "session_id": "s1",
        "session_key": "family",
        "idempotency_key": "k1",
        "last_event_id": "7",
        "task": "title",
        "tools": "none",
        "retry_count": "1",
        "events": "approvals",
        "progress": "text",
        "chat_id": "c1",
        "thread_id": "t1",
        "user_id": "u1",
    }


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("X-Hermes-Session-Id", 128),
        ("X-Hermes-Session-Key", 256),
        ("Idempotency-Key", 256),
        ("Last-Event-ID", 64),
        ("X-Hermes-Task", 64),
    ],
)
async def test_headers_are_checked_for_length_and_control_characters(
    door: HttpDoor, name: str, limit: int
) -> None:
    fits = await door.client.get("/things/1", headers={name: "x" * limit})
    assert fits.status_code == 200
    for value in (b"x" * (limit + 1), b"a\tb", b"\xff", "a\x85b".encode()):
        answer = await door.client.get("/things/1", headers={name.encode(): value})
        error = error_of(answer, 400)
        assert (error["code"], error["param"]) == ("invalid_header", name)


async def test_a_header_that_counts_may_not_be_there_twice(door: HttpDoor) -> None:
    for line in ("Host: localhost", "Authorization: Bearer other"):
        answer = await raw(door, head("GET", "/things/1", line))
        assert answer.startswith(b"HTTP/1.1 400")


async def test_path_parameters_are_decoded_one_by_one(door: HttpDoor) -> None:
    answer = await door.client.delete("/things/a%2Fb/parts/c%20d")
    assert answer.json() == {"thing_id": "a/b", "part_id": "c d"}
    assert (await door.client.get("/things/newest")).text == "hello"
    assert (await door.client.get("/thing%73")).status_code == 200


@pytest.mark.parametrize("path", ["/nowhere", "/things/", "/things/a%00b", "/things/" + "x" * 300])
async def test_what_cannot_be_there_is_a_404(door: HttpDoor, path: str) -> None:
    assert error_of(await door.client.get(path), 404)["code"] == "not_found"


async def test_a_wrong_method_is_a_405_that_says_which_are_right(door: HttpDoor) -> None:
    answer = await door.client.put("/things/1")
    assert error_of(answer, 405)["code"] == "method_not_allowed"
    assert answer.headers["allow"] == "DELETE, GET, HEAD, OPTIONS"


async def test_head_is_get_without_the_body(door: HttpDoor) -> None:
    answer = await door.client.head("/hello")
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-length"] == "5"
