"""Who is let in, and that the answer to everybody else gives nothing away."""

import hashlib
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from fakes.http_door import KEY, HttpDoor, bearer, http_door, with_agents
from hermes.control.api_keys import ApiKeys
from hermes.domain.errors import Conflict, NotFound, StoreError, UsageError
from hermes.domain.keys import OWNER, Action, ApiKey
from hermes.domain.ports.ledger import Ledger
from hermes.entry.http.access import require_agent
from hermes.entry.http.endpoint import Answer, Call, Endpoint, HttpContext, JsonAnswer, ServedAgent
from hermes.entry.http.guards import FailureLimit, KeyRing
from hermes.entry.http.settings import HttpSettings
from hermes.testing import FakeClock, ScriptedModel


async def who(call: Call[Any, Any]) -> Answer:
    return JsonAnswer(value={"id": call.caller.key_id, "name": call.caller.name})


async def agent(call: Call[dict[str, Any], None]) -> Answer:
    return JsonAnswer(value=(await require_agent(call, call.body.get("model"))).agent_id)


async def never(call: Call[Any, Any]) -> Answer:
    raise AssertionError("the body was read before the key was checked")


def endpoint(path: str, handler: Any = who, method: str = "GET", **more: Any) -> Endpoint:
    return Endpoint(
        name=path, method=method, path=path, summary=path, tag="T", handler=handler, **more
    )


ENDPOINTS = (
    endpoint("/who"),
    endpoint("/run", action=Action.RUN),
    endpoint("/jobs", action=Action.JOBS),
    endpoint("/public", public=True),
    endpoint("/agent", agent, "POST", body=dict[str, Any]),
    endpoint("/never", never, "POST", body=dict[str, Any]),
    endpoint("/things/{thing_id}"),
)


def two_agents(context: HttpContext) -> HttpContext:
    card = ServedAgent(agent_id="research", name="research")
    return with_agents(context, card)


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[HttpDoor]:
    async with http_door(tmp_path, ScriptedModel(), endpoints=ENDPOINTS, more=two_agents) as door:
        yield door


# -- the matrix ----------------------------------------------------------------


async def test_the_configured_key_is_the_owner(door: HttpDoor) -> None:
    assert (await door.client.get("/who")).json() == {"id": OWNER, "name": "owner"}
    assert (await door.client.get("/jobs")).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": f"bearer {KEY}"},
        {"authorization": f"BEARER  {KEY}"},
        {"x-api-key": KEY},
        {"authorization": "Basic abc", "x-api-key": KEY},
    ],
)
async def test_a_key_may_come_in_several_ways(door: HttpDoor, headers: dict[str, str]) -> None:
    nobody = await door.with_key(None)
    assert (await nobody.get("/who", headers=headers)).status_code == 200


async def test_missing_wrong_revoked_and_expired_keys_get_the_same_answer(door: HttpDoor) -> None:
    _, revoked = await door.new_key("revoked")
    await door.keys.revoke("revoked")
    _, expired = await door.new_key("expired", expires_in=0.000001)
    tried: list[dict[str, str]] = [
        {},
        bearer("hk_wrong"),
        {"authorization": "Bearer"},
        bearer(KEY[:-1]),
        bearer(KEY + "x"),
        bearer(revoked),
        bearer(expired),
        {"authorization": KEY},
        {"authorization": f"Basic {KEY}"},
        {"x-api-key": "no"},
        {"authorization": "Bearer " + "x" * 10_000},
    ]
    nobody = await door.with_key(None)
    answers = [await nobody.get("/who", headers=headers) for headers in tried]
    assert {answer.status_code for answer in answers} == {401}
    assert len({answer.content for answer in answers}) == 1
    varying = {"x-request-id", "date"}
    kept = [{k: v for k, v in a.headers.items() if k not in varying} for a in answers]
    assert all(headers == kept[0] for headers in kept)
    assert kept[0]["www-authenticate"] == "Bearer"
    assert answers[0].json()["error"]["type"] == "authentication_error"


async def test_bytes_that_are_no_text_are_a_wrong_key(door: HttpDoor) -> None:
    nobody = await door.with_key(None)
    answer = await nobody.get("/who", headers={b"authorization": b"Bearer \xff\xfe"})
    assert answer.status_code == 401


async def test_a_key_of_the_ledger_is_let_in_until_it_is_revoked(door: HttpDoor) -> None:
    key, secret = await door.new_key("laptop")
    client = await door.with_key(secret)
    assert (await client.get("/who")).json() == {"id": key.id, "name": "laptop"}
    await door.keys.revoke(key.id)
    assert (await client.get("/who")).status_code == 401


async def test_the_configured_key_is_rotated_without_a_restart(door: HttpDoor) -> None:
    door.owner_keys[:] = ["another-key-0123456789"]
    assert (await door.client.get("/who")).status_code == 401
    client = await door.with_key("another-key-0123456789")
    assert (await client.get("/who")).json()["id"] == OWNER


async def test_an_action_that_the_key_lacks_is_a_403(door: HttpDoor) -> None:
    _, secret = await door.new_key("runner", actions=(Action.RUN,))
    client = await door.with_key(secret)
    assert (await client.get("/run")).status_code == 200
    refused = await client.get("/jobs")
    assert refused.status_code == 403
    assert refused.json()["error"]["code"] == "action_not_allowed"
    assert refused.json()["error"]["type"] == "permission_error"
    _, admin = await door.new_key("admin", actions=(Action.ADMIN,))
    assert (await (await door.with_key(admin)).get("/jobs")).status_code == 200


async def test_the_key_is_checked_before_the_body_is_read(door: HttpDoor) -> None:
    nobody = await door.with_key(None)
    for body in (b"{", b"x" * 20_000_000):
        answer = await nobody.post("/never", content=body)
        assert answer.status_code == 401


async def test_public_endpoints_need_no_key_and_unknown_paths_are_no_secret(
    door: HttpDoor,
) -> None:
    nobody = await door.with_key(None)
    assert (await nobody.get("/public")).json() == {"id": "", "name": "anybody"}
    assert (await nobody.get("/nowhere")).status_code == 404
    assert (await nobody.get("/things/1")).status_code == 401
    assert (await nobody.get("/openapi.json")).status_code == 200
    assert (await nobody.get("/docs")).status_code == 200


async def test_the_model_names_an_agent_within_reach(door: HttpDoor) -> None:
    async def status(client: Any, model: str | None) -> tuple[int, Any]:
        answer = await client.post("/agent", json={"model": model} if model is not None else {})
        return answer.status_code, answer.json()

    for name in (None, "", "hermes", "main", "hermes-agent"):
        assert await status(door.client, name) == (200, "main")
    assert await status(door.client, "research") == (200, "research")
    _, secret = await door.new_key("scoped", agents=("research",))
    scoped = await door.with_key(secret)
    assert await status(scoped, "research") == (200, "research")
    foreign, unknown = await status(scoped, "hermes"), await status(scoped, "gpt-4o")
    assert foreign[0] == unknown[0] == 404
    assert unknown[1]["error"]["code"] == "model_not_found"
    assert foreign[1]["error"]["code"] == "model_not_found"


# -- failures ------------------------------------------------------------------


async def test_many_wrong_keys_are_slowed_down_and_a_good_one_still_gets_in(
    tmp_path: Path,
) -> None:
    settings = HttpSettings(port=0, max_auth_failures=3)
    async with http_door(tmp_path, ScriptedModel(), endpoints=ENDPOINTS, settings=settings) as door:
        nobody = await door.with_key("wrong")
        statuses = [(await nobody.get("/who")).status_code for _ in range(5)]
        assert statuses == [401, 401, 401, 429, 429]
        slowed = await nobody.get("/who")
        assert 1 <= int(slowed.headers["retry-after"]) <= 60
        assert slowed.json()["error"]["type"] == "rate_limit_error"
        assert (await door.client.get("/who")).status_code == 200


def test_failures_are_forgotten_after_a_minute_and_counted_by_address() -> None:
    clock = FakeClock()
    limit = FailureLimit(2, clock)
    assert [limit.refusal("10.0.0.1").status for _ in range(3)] == [401, 401, 429]
    assert limit.refusal("10.0.0.2").status == 401
    clock.advance(61)
    assert limit.refusal("10.0.0.1").status == 401


def test_addresses_of_one_ipv6_network_count_as_one() -> None:
    limit = FailureLimit(1, FakeClock())
    assert limit.refusal("2001:db8::1").status == 401
    assert limit.refusal("2001:db8::2").status == 429
    assert limit.refusal("2001:db8:0:1::1").status == 401
    assert limit.refusal("not an address").status == 401


def test_the_record_of_failures_does_not_grow_without_bound() -> None:
    limit = FailureLimit(1, FakeClock())
    for number in range(10_000):
        limit.refusal(f"10.{number // 65536}.{number // 256 % 256}.{number % 256}")
    assert len(limit._counts) <= 4096


# -- equal work ----------------------------------------------------------------


class CountingStore:
    """The keys of a ledger; counts what is asked of it."""

    def __init__(self, ledger: Ledger) -> None:
        self._inner = ledger
        self.lookups = 0
        self.touches: list[tuple[str, float]] = []
        self.broken = False

    async def add_key(self, key: ApiKey) -> None:
        await self._inner.add_key(key)

    async def key_by_hash(self, hash: str) -> ApiKey | None:  # noqa: A002 - named by the port
        self.lookups += 1
        return await self._inner.key_by_hash(hash)

    async def keys(self) -> list[ApiKey]:
        return await self._inner.keys()

    async def revoke_key(self, reference: str, at: float) -> ApiKey | None:
        return await self._inner.revoke_key(reference, at)

    async def touch_key(self, key_id: str, at: float) -> None:
        if self.broken:
            raise StoreError("The disk is full.")
        self.touches.append((key_id, at))


def counted(digests: list[bytes]) -> Callable[[bytes], str]:
    def digest(key: bytes) -> str:
        digests.append(key)
        return hashlib.sha256(key).hexdigest()

    return digest


async def test_every_outcome_costs_one_hash_and_one_lookup(ledger: Ledger) -> None:
    clock, store, digests = FakeClock(), CountingStore(ledger), []  # type: ignore[var-annotated]
    keys = ApiKeys(store, clock)
    _, good = await keys.create("good")
    _, revoked = await keys.create("revoked")
    await keys.revoke("revoked")
    _, expired = await keys.create("expired", expires_in=1)
    clock.advance(2)
    owner = ["configured-key-1", "configured-key-2"]
    ring = KeyRing(store, clock, lambda: owner, digest=counted(digests))
    await ring.caller(b"warm up: the configured keys are hashed once")
    for presented, known in [
        (b"", False),
        (b"wrong", False),
        (good.encode(), True),
        (revoked.encode(), False),
        (expired.encode(), False),
        (b"configured-key-1", True),
        (b"configured-key-2", True),
    ]:
        digests.clear()
        store.lookups = 0
        assert (await ring.caller(presented) is not None) is known
        assert (len(digests), store.lookups) == (1, 1)


async def test_an_empty_key_is_never_good(ledger: Ledger) -> None:
    for configured in ((), ("",)):
        ring = KeyRing(CountingStore(ledger), FakeClock(), lambda: configured)  # noqa: B023
        assert await ring.caller(b"") is None


async def test_the_use_of_a_key_is_noted_once_a_minute(ledger: Ledger) -> None:
    clock, store = FakeClock(), CountingStore(ledger)
    key, secret = await ApiKeys(store, clock).create("laptop")
    ring = KeyRing(store, clock, tuple)
    for _ in range(3):
        await ring.caller(secret.encode())
    assert [touch[0] for touch in store.touches] == [key.id]
    clock.advance(61)
    await ring.caller(secret.encode())
    assert len(store.touches) == 2


async def test_a_use_that_cannot_be_noted_is_no_reason_to_refuse(ledger: Ledger) -> None:
    clock, store = FakeClock(), CountingStore(ledger)
    _, secret = await ApiKeys(store, clock).create("laptop")
    store.broken = True
    assert await KeyRing(store, clock, tuple).caller(secret.encode()) is not None


# -- making keys ---------------------------------------------------------------


async def test_a_key_is_shown_once_and_kept_as_a_hash(ledger: Ledger) -> None:
    keys = ApiKeys(ledger, FakeClock())
    key, secret = await keys.create("laptop", agents=["main", "main"], actions=[Action.RUN])
    assert secret.startswith("hk_")
    assert len(secret) == 46
    assert secret[-4:] == key.hint
    assert (key.agents, key.actions) == (("main",), (Action.RUN,))
    assert await keys.keys() == [key]
    assert secret not in repr(await keys.keys())


@pytest.mark.parametrize("name", ["", "owner", "a b", "-x", "ü", "x" * 65, "a\nb"])
async def test_a_name_has_to_fit_on_a_command_line(ledger: Ledger, name: str) -> None:
    with pytest.raises(UsageError):
        await ApiKeys(ledger, FakeClock()).create(name)


@pytest.mark.parametrize("seconds", [0, -1, 1e12])
async def test_a_key_is_good_for_some_time(ledger: Ledger, seconds: float) -> None:
    with pytest.raises(UsageError):
        await ApiKeys(ledger, FakeClock()).create("x", expires_in=seconds)


async def test_names_are_taken_and_revoked_keys_stay_listed(ledger: Ledger) -> None:
    keys = ApiKeys(ledger, FakeClock())
    await keys.create("laptop")
    with pytest.raises(Conflict):
        await keys.create("laptop")
    await keys.revoke("laptop")
    with pytest.raises(NotFound):
        await keys.revoke("laptop")
    listed: Sequence[ApiKey] = await keys.keys()
    assert [key.revoked_at is not None for key in listed] == [True]
