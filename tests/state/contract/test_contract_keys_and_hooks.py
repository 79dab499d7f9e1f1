"""API keys and webhook deliveries."""

import asyncio

import msgspec
import pytest

from hermes.domain.errors import Conflict
from hermes.domain.keys import Action, ApiKey
from hermes.domain.ports.ledger import Ledger
from hermes.domain.webhooks import HookDelivery, HookState


def key(key_id: str = "k1", *, at: float = 1.0, expires_at: float | None = None) -> ApiKey:
    return ApiKey(
        id=key_id,
        name=f"name of {key_id}",
        hash=f"hash of {key_id}",
        hint="abcd",
        agents=("main", "other"),
        actions=(Action.RUN, Action.JOBS),
        created_at=at,
        expires_at=expires_at,
    )


async def test_keys_are_found_by_their_hash_and_listed_oldest_first(ledger: Ledger) -> None:
    await ledger.add_key(key("k2", at=2.0))
    await ledger.add_key(key("k1", at=1.0, expires_at=9.0))
    assert await ledger.key_by_hash("hash of k2") == key("k2", at=2.0)
    assert await ledger.key_by_hash("hash") is None
    assert await ledger.keys() == [key("k1", at=1.0, expires_at=9.0), key("k2", at=2.0)]


@pytest.mark.parametrize("same", ["id", "name", "hash"])
async def test_the_id_the_name_and_the_hash_of_a_key_are_its_own(ledger: Ledger, same: str) -> None:
    await ledger.add_key(key("k1"))
    clash = msgspec.structs.replace(key("k2"), **{same: getattr(key("k1"), same)})
    with pytest.raises(Conflict) as caught:
        await ledger.add_key(clash)
    assert "hash of" not in caught.value.message
    assert await ledger.keys() == [key("k1")]


async def test_a_revoked_key_stays_known(ledger: Ledger) -> None:
    await ledger.add_key(key("k1"))
    await ledger.add_key(key("k2"))
    revoked = await ledger.revoke_key("k1", 5.0)
    assert revoked == msgspec.structs.replace(key("k1"), revoked_at=5.0)
    assert await ledger.key_by_hash("hash of k1") == revoked
    assert await ledger.revoke_key("k1", 6.0) is None
    by_name = await ledger.revoke_key("name of k2", 6.0)
    assert by_name is not None
    assert by_name.id == "k2"
    assert await ledger.revoke_key("nobody", 6.0) is None


async def test_a_key_that_has_expired_is_not_good_any_more(ledger: Ledger) -> None:
    await ledger.add_key(key("k1", expires_at=5.0))
    assert await ledger.revoke_key("k1", 5.0) is None
    assert await ledger.revoke_key("k1", 4.0) is not None


async def test_an_id_goes_before_a_name(ledger: Ledger) -> None:
    await ledger.add_key(msgspec.structs.replace(key("k1"), name="k2"))
    await ledger.add_key(key("k2"))
    revoked = await ledger.revoke_key("k2", 5.0)
    assert revoked is not None
    assert revoked.id == "k2"


async def test_the_last_use_of_a_key_only_moves_forward(ledger: Ledger) -> None:
    await ledger.add_key(key("k1"))
    for at in (3.0, 8.0, 5.0):
        await ledger.touch_key("k1", at)
    await ledger.touch_key("nobody", 9.0)
    (found,) = await ledger.keys()
    assert found.last_used_at == 8.0


def delivery(delivery_id: str = "d1", *, at: float = 1.0, route: str = "github") -> HookDelivery:
    return HookDelivery(
        route=route,
        delivery_id=delivery_id,
        event="push",
        received_at=at,
        updated_at=at,
        prompt="Look at this.",
        target="telegram",
        target_extra={"chat_id": "7"},
        deliver_only=True,
    )


async def test_a_delivery_is_received_once(ledger: Ledger) -> None:
    received = await asyncio.gather(*(ledger.receive_hook(delivery()) for _ in range(10)))
    assert [one for one in received if one is not None] == [delivery()]
    assert await ledger.hook("github", "d1") == delivery()
    assert await ledger.hook("other", "d1") is None
    assert await ledger.receive_hook(delivery(route="other")) is not None


async def test_a_proof_belongs_to_the_delivery_that_brought_it_first(ledger: Ledger) -> None:
    assert await ledger.recognise_hook("github", "p", "d1", 10.0, 0.0) == "d1"
    assert await ledger.recognise_hook("github", "p", "d2", 12.0, 0.0) == "d1"
    assert await ledger.recognise_hook("other", "p", "d2", 2.0, 0.0) == "d2"
    await ledger.prune_hooks(10.0)
    assert await ledger.recognise_hook("github", "p", "d3", 13.0, 0.0) == "d1"
    assert await ledger.recognise_hook("other", "p", "d3", 13.0, 0.0) == "d3"
    assert await ledger.recognise_hook("github", "p", "d4", 20.0, 11.0) == "d4", "long ago"
    assert await ledger.recognise_hook("github", "p", "d5", 21.0, 11.0) == "d4"


@pytest.mark.parametrize("state", list(HookState))
async def test_only_a_delivery_that_failed_is_taken_again(ledger: Ledger, state: HookState) -> None:
    await ledger.receive_hook(delivery())
    await ledger.update_hook("github", "d1", state=state, at=2.0, error="It broke.")
    again = await ledger.receive_hook(delivery(at=3.0))
    if state is HookState.FAILED:
        assert again == msgspec.structs.replace(delivery(at=3.0), attempt=2)
        assert await ledger.hook("github", "d1") == again
    else:
        assert again is None


async def test_progress_of_a_delivery_leaves_the_rest_as_it_is(ledger: Ledger) -> None:
    await ledger.receive_hook(delivery())
    running = await ledger.update_hook(
        "github", "d1", state=HookState.RUNNING, at=2.0, session_id="s1"
    )
    assert running == msgspec.structs.replace(
        delivery(), state=HookState.RUNNING, updated_at=2.0, session_id="s1"
    )
    failed = await ledger.update_hook("github", "d1", state=HookState.FAILED, at=3.0, error="no")
    assert failed is not None
    assert (failed.session_id, failed.error) == ("s1", "no")
    assert await ledger.update_hook("github", "d9", state=HookState.DONE, at=3.0) is None


async def test_deliveries_are_listed_oldest_first_and_forgotten_when_over(ledger: Ledger) -> None:
    for number, state in enumerate(HookState):
        name = f"d{number}"
        await ledger.receive_hook(delivery(name, at=10.0 - number))
        await ledger.update_hook("github", name, state=state, at=20.0)
    await ledger.receive_hook(delivery("x", at=0.5, route="other"))

    async def names(*states: HookState, limit: int = 100) -> list[str]:
        found = await ledger.hooks(states, limit=limit)
        return [one.delivery_id for one in found]

    assert await names(HookState.RECEIVED, HookState.RUNNING) == ["x", "d1", "d0"]
    assert await names(HookState.RECEIVED, HookState.RUNNING, limit=1) == ["x"]
    assert await ledger.prune_hooks(20.0) == 0
    assert await ledger.prune_hooks(21.0) == 3
    assert await names(*HookState) == ["x", "d1", "d0"]
