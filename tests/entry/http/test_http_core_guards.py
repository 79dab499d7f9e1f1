"""Host, Origin and CORS: what a browser may be made to do here."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.http_door import KEY, HttpDoor, http_door
from hermes.entry.http.endpoint import Answer, Call, Endpoint, JsonAnswer
from hermes.entry.http.errors import Problem
from hermes.entry.http.guards import Guards, host_name
from hermes.entry.http.settings import HttpSettings
from hermes.testing import ScriptedModel

PAGE = "https://chat.example.org"


async def hello(call: Call[Any, Any]) -> Answer:
    return JsonAnswer(value="hello")


ENDPOINTS = (
    Endpoint(name="a", method="GET", path="/hello", summary="a", tag="T", handler=hello),
    Endpoint(name="b", method="POST", path="/hello", summary="b", tag="T", handler=hello),
)


@asynccontextmanager
async def opened(folder: Path, **settings: Any) -> AsyncIterator[HttpDoor]:
    async with http_door(
        folder,
        ScriptedModel(),
        endpoints=ENDPOINTS,
        settings=HttpSettings(port=0, **settings),
    ) as door:
        yield door


Opened = Callable[..., AbstractAsyncContextManager[HttpDoor]]


def allows(named: str, /, **settings: Any) -> bool:
    try:
        Guards(HttpSettings(**settings)).check({b"host": named.encode("latin-1")}, "1.1")
    except Problem as problem:
        return problem.problem_code != "host_not_allowed"
    return True


@pytest.mark.parametrize(
    "host",
    [
        *("localhost", "LOCALHOST:8642", "127.0.0.1", "127.0.0.1:1", "127.9.9.9", "[::1]:8642"),
        *("[::1]", "app.localhost", "localhost."),
    ],
)
def test_loopback_names_are_always_right(host: str) -> None:
    assert allows(host)
    assert allows(host, host="0.0.0.0")


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "localhost.evil.example", "127.0.0.1.nip.io", "192.168.1.5", "hermes"),
        *(
            "",
            "localhost@evil",
            "local host",
            "localhost:99999999",
            "[::1",
            "\xff",
            "u:p@localhost",
        ),
    ],
)
def test_on_loopback_nothing_else_is(host: str) -> None:
    assert not allows(host)


@pytest.mark.parametrize("host", ["192.168.1.5:8642", "[2001:db8::1]", "hermes", "h.internal"])
def test_where_others_connect_names_that_nobody_can_register_are_right_too(host: str) -> None:
    assert allows(host, host="0.0.0.0")


@pytest.mark.parametrize("host", ["evil.example", "internal.evil.example", "1.2.3.4.evil.example"])
def test_where_others_connect_a_name_on_the_internet_has_to_be_configured(host: str) -> None:
    assert not allows(host, host="0.0.0.0")
    assert allows(host, host="0.0.0.0", allowed_hosts=(host,))
    assert allows(host, allowed_hosts=("*",))


def test_the_name_we_listen_on_is_right() -> None:
    assert allows("box.example:8642", host="box.example")


def test_a_missing_host_is_right_only_in_http_1_0() -> None:
    guards = Guards(HttpSettings())
    guards.check({}, "1.0")
    with pytest.raises(Problem) as caught:
        guards.check({}, "1.1")
    assert caught.value.status == 400


@given(st.text())
def test_no_text_makes_the_host_check_fail(text: str) -> None:
    name = host_name(text)
    assert name is None or name == name.lower()


async def test_a_foreign_host_is_refused_before_the_key_is_looked_at(tmp_path: Path) -> None:
    async with opened(tmp_path) as door:
        answer = await door.client.get("/hello", headers={"host": "evil.example"})
        assert answer.status_code == 403
        assert "allowed_hosts" in answer.json()["error"]["message"]


async def test_pages_that_are_not_listed_are_refused(tmp_path: Path) -> None:
    async with opened(tmp_path, cors_origins=(PAGE,)) as door:
        for origin in ("https://evil.example", "null", "http://chat.example.org", PAGE + ".evil"):
            answer = await door.client.get("/hello", headers={"origin": origin})
            assert answer.status_code == 403, origin
            assert answer.json()["error"]["code"] == "origin_not_allowed"
            assert "access-control-allow-origin" not in answer.headers
            assert answer.headers["vary"] == "origin"


async def test_a_listed_page_may_read_answers_and_errors(tmp_path: Path) -> None:
    async with opened(tmp_path, cors_origins=(PAGE,)) as door:
        for path, status in (("/hello", 200), ("/nowhere", 404)):
            answer = await door.client.get(path, headers={"origin": PAGE})
            assert answer.status_code == status
            assert answer.headers["access-control-allow-origin"] == PAGE
            assert "x-request-id" in answer.headers["access-control-expose-headers"]
            assert answer.headers["vary"] == "origin"
            assert "access-control-allow-credentials" not in answer.headers


async def test_any_page_may_be_allowed_but_never_with_credentials(tmp_path: Path) -> None:
    async with opened(tmp_path, cors_origins=("*",)) as door:
        answer = await door.client.get("/hello", headers={"origin": "https://any.example"})
        assert answer.headers["access-control-allow-origin"] == "*"
        assert "access-control-allow-credentials" not in answer.headers


async def test_a_page_of_this_server_is_always_right(tmp_path: Path) -> None:
    async with opened(tmp_path) as door:
        answer = await door.client.post("/hello", headers={"origin": door.base_url})
        assert answer.status_code == 200


def preflight(client: httpx2.AsyncClient, origin: str, **more: str) -> Any:
    headers = {"origin": origin, "access-control-request-method": "POST", **more}
    return client.options("/hello", headers=headers)


async def test_a_listed_page_may_ask_first_without_a_key(tmp_path: Path) -> None:
    async with opened(tmp_path, cors_origins=(PAGE,)) as door:
        nobody = await door.with_key(None)
        asked = {"access-control-request-headers": "authorization,x-stainless-os"}
        answer = await preflight(nobody, PAGE, **asked)
        assert answer.status_code == 204
        assert answer.headers["access-control-allow-origin"] == PAGE
        assert answer.headers["access-control-allow-methods"] == "GET, HEAD, OPTIONS, POST"
        assert answer.headers["access-control-allow-headers"] == "authorization,x-stainless-os"
        assert answer.headers["access-control-max-age"] == "600"
        odd = await preflight(nobody, PAGE, **{"access-control-request-headers": "a(b)"})
        assert "authorization" in odd.headers["access-control-allow-headers"]


async def test_a_page_that_is_not_listed_is_told_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path, cors_origins=(PAGE,)) as door:
        answer = await preflight(door.client, "https://evil.example")
        assert answer.status_code == 403
        assert "access-control-allow-methods" not in answer.headers


async def test_only_a_page_that_is_named_may_reach_into_the_private_network(
    tmp_path: Path,
) -> None:
    asked = {"access-control-request-private-network": "true"}
    name = "access-control-allow-private-network"
    async with opened(tmp_path, cors_origins=(PAGE, "*")) as door:
        assert (await preflight(door.client, PAGE, **asked)).headers[name] == "true"
        assert name not in (await preflight(door.client, "https://x.example", **asked)).headers


async def test_options_without_a_page_names_the_methods(tmp_path: Path) -> None:
    async with opened(tmp_path) as door:
        answer = await door.client.options("/hello")
        assert (answer.status_code, answer.headers["allow"]) == (204, "GET, HEAD, OPTIONS, POST")


async def test_the_key_is_never_in_an_answer(tmp_path: Path) -> None:
    async with opened(tmp_path) as door:
        for path in ("/hello", "/nowhere", "/openapi.json", "/docs"):
            assert KEY not in (await door.client.get(path)).text
