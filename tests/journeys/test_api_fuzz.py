"""A real gateway is sent everything that is not a request, and goes on as before.

Whatever comes over the socket: the process lives, answers no 5xx, has no run,
connection or memory left over afterwards, and nothing in its log that only a
programmer could read.
"""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fakes.api_gateway import KEY, ApiGateway, running_api
from fakes.authority import BODIES, ENDPOINTS, PARAMS, path_of
from fakes.model_remote import model_process
from fakes.model_script import Rule, Script, Step
from fakes.odd_requests import Odd, odd_requests
from fakes.open_runs import no_open_run
from fakes.raw_http import exchange, request, statuses

MODELS = "/v1/models"
LISTENING = "0A"
BODY_LIMIT = 200_000
AT_ONCE = 24
SLOWLY = Step(text="one two three four five six seven eight " * 3, interval=0.02)
SCRIPT = Script(rules=[Rule(contains="slowly", steps=[SLOWLY])], default=Step(text="ok"))


@asynccontextmanager
async def fuzzed(folder: Path) -> AsyncIterator[ApiGateway]:
    """Run a gateway with low limits and check that it stands as before in the end."""
    extra = {"key": KEY, "port": 0, "max_auth_failures": 1_000_000}
    limits = {"max_body_bytes": BODY_LIMIT, "body_seconds": 1, "keepalive_seconds": 0.2}
    api = {"api_server": {"enabled": True, "extra": extra | limits}}
    async with model_process(folder, SCRIPT) as model:
        async with running_api(folder, model.base_url, platforms=api) as gateway:
            await _warm(gateway)
            before = _files(gateway)
            yield gateway
            await _stands(gateway, before)


async def _warm(gateway: ApiGateway) -> None:
    async with gateway.client() as client:
        for _ in range(3):
            body = {"messages": [{"role": "user", "content": "Hi"}]}
            assert (await client.post("/v1/chat/completions", json=body)).status_code == 200


async def _things(gateway: ApiGateway) -> dict[str, list[str]]:
    """Make some things of each kind and return their ids by path parameter."""
    made: dict[str, list[str]] = {"session_id": [], "run_id": [], "response_id": [], "job_id": []}
    async with gateway.client() as client:
        for number in range(8):
            session = (await client.post("/api/sessions", json={})).json()["session"]["id"]
            run = await client.post("/v1/runs", json={"input": "Hi", "session_id": session})
            later = {"input": "Hi", "background": bool(number % 2)}
            response = await client.post("/v1/responses", json=later)
            job = await client.post("/api/jobs", json={"schedule": "every 9h", "prompt": "Look."})
            made["session_id"].append(session)
            made["run_id"].append(run.json()["run_id"])
            made["response_id"].append(response.json()["id"])
            made["job_id"].append(job.json()["job"]["id"])
    return made


async def _stands(gateway: ApiGateway, before: int) -> None:
    assert gateway.process is not None
    assert gateway.process.returncode is None, gateway.log()
    async with gateway.client() as client:
        assert (await client.get("/health")).status_code == 200
        await no_open_run(client, 20)
        async with asyncio.timeout(10):
            # One is this client's.
            while _connections(gateway) > 1:  # noqa: ASYNC110 - of another process
                await asyncio.sleep(0.05)
        # Readers of the ledger and connections to the model are kept for later, a few of each.
        assert _files(gateway) <= before + 16
        body = {"messages": [{"role": "user", "content": "Hi"}]}
        answer = await client.post("/v1/chat/completions", json=body)
        assert answer.json()["choices"][0]["message"]["content"] == "ok"
    log = gateway.log()
    assert "Traceback" not in log, log[-8000:]
    assert "never retrieved" not in log, log[-8000:]


def _files(gateway: ApiGateway) -> int:
    assert gateway.process is not None
    return len(list(Path(f"/proc/{gateway.process.pid}/fd").iterdir()))


def _connections(gateway: ApiGateway) -> int:
    """Return how many connections of clients the gateway holds."""
    assert gateway.process is not None
    mine = {each.readlink().name for each in Path(f"/proc/{gateway.process.pid}/fd").iterdir()}
    held = 0
    for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]:
        fields = line.split()
        here = int(fields[1].rpartition(":")[2], 16) == gateway.port
        held += here and fields[3] != LISTENING and f"socket:[{fields[9]}]" in mine
    return held


def _resident_kb(gateway: ApiGateway) -> int:
    assert gateway.process is not None
    status = Path(f"/proc/{gateway.process.pid}/status").read_text(encoding="ascii")
    return int(status.partition("VmRSS:")[2].split()[0])


async def _try(gateway: ApiGateway, odd: Odd) -> list[int]:
    got = await exchange(
        gateway.port,
        odd.pieces,
        abort=odd.abort,
        half_close=odd.half_close,
        stop_after=odd.stop_after,
    )
    found = statuses(got)
    bad = re.search(rb"HTTP/1.1 5(?!03)\d\d [^\x00]{,1500}", got)
    assert bad is None, (bad[0], odd)
    return found


async def _throw(gateway: ApiGateway, seed: int, count: int) -> Counter[int]:
    """Send odd requests, several at once; return how often each status came."""
    seen: Counter[int] = Counter()
    waiting = odd_requests(seed, count, KEY, await _things(gateway))

    async def worker() -> None:
        for odd in waiting:
            seen.update(await _try(gateway, odd))

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(worker())
    return seen


@pytest.mark.timeout(120)
async def test_nothing_that_comes_over_the_socket_hurts(tmp_path: Path) -> None:
    async with fuzzed(tmp_path) as gateway:
        seen = await _throw(gateway, 20260101, 1500)
        assert {200, 202, 400, 403, 404, 405, 408, 413, 415} <= seen.keys()


async def test_a_nul_character_is_refused_in_every_text_of_every_request(tmp_path: Path) -> None:
    async with fuzzed(tmp_path) as gateway, gateway.client() as client:
        things = {name: ids[0] for name, ids in (await _things(gateway)).items()}
        for endpoint in ENDPOINTS:
            path = path_of(endpoint, {**dict.fromkeys(PARAMS, "x"), "model": "hermes"} | things)
            for body in _spoilt(BODIES.get(endpoint.name, {})):
                if endpoint.body is None:
                    continue
                answer = await client.request(endpoint.method, path, json=body)
                assert answer.status_code == 400, (endpoint.name, answer.text)
                assert answer.json()["error"]["code"] == "nul_character"
            query = await client.request(endpoint.method, path, params={"q": "a\x00b"})
            assert query.status_code < 500


def _spoilt(value: Any) -> Iterator[Any]:
    """Yield the value with a NUL in each of its texts, one at a time, or in a new one."""
    if isinstance(value, str):
        yield f"{value}\x00"
    elif isinstance(value, list):
        for at, item in enumerate(value):
            for spoilt in _spoilt(item):
                yield [*value[:at], spoilt, *value[at + 1 :]]
    elif isinstance(value, dict):
        yield value | {"user": "\x00"}
        for name, item in value.items():
            for spoilt in _spoilt(item):
                yield value | {name: spoilt}


async def test_offers_to_speak_another_protocol_are_not_taken_up(tmp_path: Path) -> None:
    upgrade = ("Connection: Upgrade, close", "Sec-WebSocket-Version: 13")
    async with fuzzed(tmp_path) as gateway:
        for protocol in ("websocket", "h2c", "TLS/1.3", "x" * 200):
            for path, status in ((MODELS, 200), ("/v1/nothing", 404)):
                made = request("GET", path, f"Upgrade: {protocol}", *upgrade, key=KEY)
                got = await exchange(gateway.port, [made])
                assert statuses(got) == [status], (protocol, got)
                assert b"101 Switching" not in got


@pytest.mark.slow
@pytest.mark.timeout(1500)
async def test_nothing_grows_while_it_goes_on(tmp_path: Path) -> None:
    async with fuzzed(tmp_path) as gateway:
        await _throw(gateway, 1, 3000)
        settled = _resident_kb(gateway)
        for seed in range(2, 6):
            await _throw(gateway, seed, 3000)
        assert _resident_kb(gateway) < settled + 16 * 1024
