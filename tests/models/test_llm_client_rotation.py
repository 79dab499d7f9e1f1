"""Other keys, waiting, other routes: what is tried when a provider says no."""

import pytest

from fakes.model import FakeModelServer, Script, Step
from fakes.model_client import Heard, InstantClock, ask, client_of, route_to
from hermes.domain.ports.model import FailureKind, ModelFailure
from hermes.models.client import RetryPolicy
from hermes.models.credentials import PoolStrategy, ProviderKey


async def test_a_wrong_key_never_shows_in_the_failure() -> None:
    async with FakeModelServer(Script(keys=["the-right-one"])) as server:
        client = client_of(route_to(server))
        with pytest.raises(ModelFailure) as failure:
            await client.complete(ask())
        await client.close()
    assert failure.value.kind is FailureKind.AUTH
    assert "key-one" not in failure.value.message
    assert "FAKE_API_KEY" in failure.value.hint


@pytest.mark.parametrize("strategy", list(PoolStrategy))
async def test_the_next_key_is_used_when_one_is_refused(strategy: PoolStrategy) -> None:
    keys = tuple(ProviderKey(secret=f"key-{n}", label=f"K{n}") for n in range(3))
    async with FakeModelServer(Script(keys=["key-2"])) as server:
        clock, heard = InstantClock(), Heard()
        client = client_of(route_to(server, keys=keys, strategy=strategy), clock=clock)
        await client.complete(ask(), heard)
        first_call = len(server.requests)
        await client.complete(ask(), heard)
        await client.close()
    assert server.requests[-1].key == "key-2"
    assert first_call <= 3
    refused = [request.key for request in server.requests if request.key != "key-2"]
    assert len(refused) == len(set(refused)), "the refused keys are remembered"
    assert clock.slept == []


async def test_a_rate_limit_uses_another_key_before_it_waits() -> None:
    keys = (ProviderKey(secret="one"), ProviderKey(secret="two"))
    steps = [Step(status=429, headers={"retry-after": "30"}), Step(text="fine")]
    async with FakeModelServer(steps) as server:
        clock = InstantClock()
        client = client_of(route_to(server, keys=keys), clock=clock)
        reply = await client.complete(ask())
        await client.close()
    assert reply.message.text == "fine"
    assert [request.key for request in server.requests] == ["one", "two"]
    assert clock.slept == []


async def test_keys_that_are_limited_for_a_moment_are_not_tried_in_circles() -> None:
    keys = (ProviderKey(secret="one"), ProviderKey(secret="two"))
    step = Step(status=429, headers={"retry-after-ms": "1"})
    async with FakeModelServer(Script(default=step)) as server:
        clock = InstantClock()
        clock.advance_on_read = 1.0
        client = client_of(route_to(server, keys=keys), clock=clock)
        with pytest.raises(ModelFailure):
            await client.complete(ask())
        await client.close()
    assert len(server.requests) <= 1 + len(keys) + 3


async def test_retry_after_is_waited_for_exactly() -> None:
    steps = [Step(status=429, headers={"Retry-After": "7"}), Step(text="fine")]
    async with FakeModelServer(steps) as server:
        clock = InstantClock()
        client = client_of(route_to(server), clock=clock)
        await client.complete(ask())
        await client.close()
    assert clock.slept == [7.0]


async def test_a_retry_after_of_an_hour_is_not_waited_for() -> None:
    async with FakeModelServer([Step(status=429, headers={"Retry-After": "3600"})]) as server:
        clock = InstantClock()
        client = client_of(route_to(server), clock=clock)
        with pytest.raises(ModelFailure) as failure:
            await client.complete(ask())
        await client.close()
    assert (failure.value.kind, failure.value.retry_after) == (FailureKind.RATE_LIMIT, 3600.0)
    assert clock.slept == []


async def test_backoff_doubles_from_five_seconds_with_bounded_jitter() -> None:
    async with FakeModelServer(Script(default=Step(status=500))) as server:
        clock = InstantClock()
        client = client_of(route_to(server), clock=clock)
        with pytest.raises(ModelFailure):
            await client.complete(ask())
        await client.close()
    assert len(clock.slept) == 3
    for delay, base in zip(clock.slept, (5, 10, 20), strict=True):
        assert base <= delay <= base * 1.5


async def test_a_fallback_lasts_the_turn_and_the_next_ones_until_a_probe_succeeds() -> None:
    policy = RetryPolicy(max_retries=1)
    async with (
        FakeModelServer(
            [Step(status=500), Step(status=500), Step(status=500), Step(text="primary again")]
        ) as first,
        FakeModelServer(Script(default=Step(text="from the fallback"))) as second,
    ):
        clock, heard = InstantClock(), Heard()
        fallback = route_to(second, provider="other", model="other-1")
        client = client_of(route_to(first), fallback, policy=policy, clock=clock)
        turn = client.for_turn()
        one = await turn.complete(ask(), heard)
        await clock.sleep(3600.0)
        await turn.complete(ask(), heard)
        asked_in_the_turn = len(first.requests)
        probe = await client.for_turn().complete(ask())
        later = await client.for_turn().complete(ask(), heard)
        asked_while_resting = len(first.requests)
        await clock.sleep(3600.0)
        again = await client.for_turn().complete(ask())
        await client.close()
    assert (one.message.text, one.provider, one.model) == (
        "from the fallback",
        "other",
        "other-1",
    )
    assert asked_in_the_turn == 2, "the call that failed and its retry"
    assert asked_while_resting == 3, "one probe without a retry"
    assert probe.message.text == later.message.text == "from the fallback"
    assert heard.notices == ["retry", "fallback", "fallback"], "once a turn"
    assert again.message.text == "primary again"


async def test_a_refused_connection_goes_to_the_fallback_at_once() -> None:
    async with FakeModelServer([Step(text="gone")]) as first:
        nobody = route_to(first)
    async with FakeModelServer([Step(text="from the fallback")]) as second:
        clock = InstantClock()
        client = client_of(nobody, route_to(second, provider="other"), clock=clock)
        reply = await client.complete(ask())
        await client.close()
    assert reply.message.text == "from the fallback"
    assert clock.slept == []


async def test_a_request_that_is_refused_leaves_the_route_in_use_for_others() -> None:
    refusal = Step(status=400, body={"error": {"message": "flagged by the content policy"}})
    async with (
        FakeModelServer([refusal, Step(text="from the first")]) as first,
        FakeModelServer([Step(text="from the fallback")]) as second,
    ):
        client = client_of(route_to(first), route_to(second, provider="other"))
        replies = [await client.complete(ask()), await client.complete(ask())]
        await client.close()
    assert [reply.message.text for reply in replies] == ["from the fallback", "from the first"]


async def test_when_all_routes_fail_the_first_failure_is_told_and_the_others_named() -> None:
    policy = RetryPolicy(max_retries=0)
    async with (
        FakeModelServer(Script(keys=["x"])) as first,
        FakeModelServer([Step(status=500)]) as second,
    ):
        client = client_of(route_to(first), route_to(second, provider="other"), policy=policy)
        with pytest.raises(ModelFailure) as failure:
            await client.complete(ask())
        await client.close()
    assert failure.value.kind is FailureKind.AUTH
    assert "other: server_error" in failure.value.message
