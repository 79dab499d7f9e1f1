"""Limits of the HTTP door, on a real gateway: who is let in, how much, and until when."""

import asyncio
import json
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio

from fakes.api_gateway import KEY, ApiGateway, api_config, running_api
from fakes.command import Hermes
from fakes.model import FakeModelServer
from fakes.model_script import Rule, Script, Step
from fakes.raw_http import exchange, request, statuses

MODELS = "/v1/models"
HI = {"input": "Hi"}


def _api(**extra: Any) -> dict[str, Any]:
    own = {"key": KEY, "port": 0, "max_auth_failures": 1_000_000}
    return {"api_server": {"enabled": True, "extra": own | extra}}


# -- Host, Origin, CORS --------------------------------------------------------------


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def narrow(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ApiGateway]:
    """A gateway on loopback with one further host and one origin."""
    folder = tmp_path_factory.mktemp("narrow")
    api = _api(cors_origins=["https://chat.example.org"], allowed_hosts=["hermes.example.org"])
    async with running_api(folder, "http://127.0.0.1:9/v1", platforms=api) as gateway:
        yield gateway


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1", 200),
        ("127.0.0.1:{port}", 200),
        ("localhost:{port}", 200),
        ("LOCALHOST", 200),
        ("[::1]:{port}", 200),
        ("hermes.example.org", 200),
        ("hermes.example.org:443", 200),
        ("evil.example", 403),
        ("evil.example:{port}", 403),
        ("127.0.0.1.evil.example", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1@evil.example", 403),
        ("evil.example#127.0.0.1", 403),
        ("xhermes.example.org", 403),
        ("hermes.example.org.evil.example", 403),
        ("10.0.0.1", 403),
        ("0.0.0.0", 403),
        ("169.254.169.254", 403),
        ("host.docker.internal", 403),
        ("127.0.0.1, evil.example", 403),
        ("", 403),
    ],
)
@pytest.mark.parametrize("path", ["/health", MODELS, "/docs", "/nothing-here"])
async def test_only_known_host_names_are_answered(
    narrow: ApiGateway, host: str, status: int, path: str
) -> None:
    name = host.format(port=narrow.port)
    head = f"GET {path} HTTP/1.1\r\nHost: {name}\r\nAuthorization: Bearer {KEY}\r\n"
    (seen,) = statuses(await exchange(narrow.port, [f"{head}Connection: close\r\n\r\n".encode()]))
    assert seen == (404 if status == 200 and path == "/nothing-here" else status)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        ("https://chat.example.org", True),
        ("HTTPS://CHAT.EXAMPLE.ORG", True),
        ("http://127.0.0.1:{port}", None),
        ("http://chat.example.org", False),
        ("https://chat.example.org:8443", False),
        ("https://chat.example.org.evil.example", False),
        ("https://evil.example", False),
        ("http://127.0.0.1:1", False),
        ("http://localhost:{port}", False),
        ("null", False),
        ("file://", False),
        ("", False),
    ],
)
async def test_only_known_pages_may_use_it(
    narrow: ApiGateway, origin: str, allowed: bool | None
) -> None:
    """None: the server's own page, which needs no permission to read the answer."""
    said = {"origin": origin.format(port=narrow.port)}
    async with narrow.client() as client:
        answer = await client.get(MODELS, headers=said)
        posted = await client.post("/api/sessions", headers=said, json={})
        asked = await client.options(
            "/v1/runs", headers=said | {"access-control-request-method": "POST"}
        )
    if allowed is False:
        assert {answer.status_code, posted.status_code, asked.status_code} == {403}
        assert answer.json()["error"]["code"] == "origin_not_allowed"
    else:
        assert (answer.status_code, posted.status_code, asked.status_code) == (200, 201, 204)
    for each in (answer, posted, asked):
        shown = each.headers.get("access-control-allow-origin")
        assert shown == (said["origin"] if allowed else None)
        assert "access-control-allow-credentials" not in each.headers
        assert "origin" in each.headers["vary"]


# -- what does not start -------------------------------------------------------------


@pytest.mark.parametrize(
    ("extra", "said", "hint"),
    [
        ({"key": ""}, "has no key", "API_SERVER_KEY"),
        ({"key": "short-key", "host": "0.0.0.0"}, "too few to listen on 0.0.0.0", "openssl rand"),
        ({"key": "changeme"}, "placeholder", "openssl rand"),
        ({"key": "x" * 40}, "placeholder", "openssl rand"),
        ({"key": "clé-with-an-accent-1234"}, "a header cannot carry", "openssl rand"),
    ],
)
async def test_a_gateway_that_anybody_could_enter_does_not_start(
    tmp_path: Path, extra: dict[str, str], said: str, hint: str
) -> None:
    config = api_config(platforms=_api(**extra))
    hermes = Hermes(tmp_path, "http://127.0.0.1:9/v1", config)
    outcome = await hermes.run("gateway", "run")
    assert outcome.code == 78, outcome.err
    assert said in outcome.err
    assert hint in outcome.err
    assert "Traceback" not in outcome.err
    if extra["key"]:
        assert extra["key"] not in outcome.out + outcome.err


async def test_a_port_that_is_taken_is_named_with_a_way_out(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        hermes = Hermes(tmp_path, "http://127.0.0.1:9/v1", api_config(platforms=_api(port=port)))
        outcome = await hermes.run("gateway", "run")
    assert outcome.code not in {0, 78}
    assert f"Something else listens on 127.0.0.1:{port} already." in outcome.err
    assert "API_SERVER_PORT" in outcome.err
    assert "Traceback" not in outcome.err


# -- how much, and until when --------------------------------------------------------


async def test_bodies_and_fields_have_limits(tmp_path: Path) -> None:
    api = _api(max_body_bytes=100_000, body_seconds=1)
    async with running_api(tmp_path, "http://127.0.0.1:9/v1", platforms=api) as gateway:
        async with gateway.client() as client:
            large = await client.post("/v1/runs", json={"input": "x" * 100_000})
            assert large.status_code == 413
            assert large.json()["error"]["code"] == "body_too_large"
            long = await client.post("/v1/runs", json={"input": "x", "user": "u" * 513})
            assert (long.status_code, long.json()["error"]["param"]) == (400, "user")
            head = await client.post("/v1/runs", json=HI, headers={"idempotency-key": "k" * 257})
            assert head.json()["error"]["code"] == "invalid_header"
        announced = request("POST", "/v1/runs", "Content-Length: 100001", key=KEY)
        assert statuses(await exchange(gateway.port, [announced], stop_after=1)) == [413]
        chunk = b"8000\r\n" + b"x" * 0x8000 + b"\r\n"
        unannounced = request("POST", "/v1/runs", "Transfer-Encoding: chunked", key=KEY)
        pieces = [unannounced, *([chunk] * 5)]
        assert statuses(await exchange(gateway.port, pieces, stop_after=1)) == [413]
        slow = request("POST", "/v1/runs", "Content-Length: 9", body=b'{"in', key=KEY)
        late = await exchange(gateway.port, [slow], idle_seconds=5)
        assert statuses(late) == [408]
        assert b"connection: close" in late


async def _started(client: httpx2.AsyncClient, **headers: str) -> httpx2.Response:
    return await client.post("/v1/runs", json=HI, headers=headers)


async def test_more_runs_than_allowed_are_told_to_come_back(tmp_path: Path) -> None:
    script = Script(default=Step(text="Done.", stall="first"))
    limits: dict[str, Any] = {"gateway": {"api_server": {"max_concurrent_runs": 2}}}
    async with (
        FakeModelServer(script) as model,
        running_api(tmp_path, model.base_url, platforms=_api(), **limits) as gateway,
        gateway.client() as client,
    ):
        first, second = await _started(client, **{"Idempotency-Key": "a"}), await _started(client)
        assert (first.status_code, second.status_code) == (202, 202)
        for path, body in (
            ("/v1/runs", HI),
            ("/v1/responses", HI),
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}),
            ("/v1/responses", {"input": "Hi", "stream": True}),
        ):
            refused = await client.post(path, json=body)
            assert refused.status_code == 429, refused.text
            assert int(refused.headers["retry-after"]) >= 1
            assert refused.json()["error"]["type"] == "rate_limit_error"
        repeat = await _started(client, **{"Idempotency-Key": "a"})
        assert repeat.json() == first.json()
        assert (await client.get("/health")).status_code == 200
        model.release()
        async with asyncio.timeout(15):
            while (await _started(client)).status_code != 202:  # noqa: ASYNC110 - told to retry
                await asyncio.sleep(0.05)


async def test_a_gateway_on_its_way_down_finishes_and_takes_nothing_new(tmp_path: Path) -> None:
    slow = Step(text="Well, this takes a while.", stall="middle")
    script = Script(rules=[Rule(contains="slowly", steps=[slow])])
    drain: dict[str, Any] = {"agent": {"restart_drain_timeout": 20}}
    async with (
        FakeModelServer(script) as model,
        running_api(tmp_path, model.base_url, platforms=_api(), **drain) as gateway,
        gateway.client() as client,
    ):
        body = {"messages": [{"role": "user", "content": "slowly"}], "stream": True}
        async with client.stream("POST", "/v1/chat/completions", json=body) as stream:
            lines = stream.aiter_lines()
            assert "assistant" in await anext(lines)
            assert gateway.process is not None
            gateway.process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(10):
                while (await client.get("/ready")).status_code != 503:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            assert (await client.get("/health")).status_code == 200
            for path, new in (("/v1/runs", HI), ("/v1/responses", HI)):
                refused = await client.post(path, json=new)
                assert refused.status_code == 503, refused.text
                assert int(refused.headers["retry-after"]) >= 1
                assert refused.json()["error"]["type"] == "server_error"
            model.release()
            rest = [line.removeprefix("data: ") async for line in lines if line]
        assert rest.pop() == "[DONE]"
        choices = [choice for each in rest for choice in json.loads(each)["choices"]]
        told = "".join(choice["delta"].get("content") or "" for choice in choices)
        assert told == "Well, this takes a while."
        assert choices[-1]["finish_reason"] == "stop"
        async with asyncio.timeout(20):
            assert await gateway.process.wait() == 0
        assert "Traceback" not in gateway.log()
