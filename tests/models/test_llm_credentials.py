"""Which key is used next."""

import math

from fakes.model_client import InstantClock
from hermes.models.credentials import CredentialPool, PoolStrategy, ProviderKey

KEYS = [ProviderKey(secret=name, label=name) for name in "abc"]


def taken(pool: CredentialPool, times: int) -> str:
    keys = [pool.acquire() for _ in range(times)]
    return "".join(key.secret if key else "-" for key in keys)


def test_fill_first_stays_with_the_first_usable_key() -> None:
    pool = CredentialPool(KEYS, PoolStrategy.FILL_FIRST, InstantClock())
    assert taken(pool, 2) == "aa"
    pool.exhaust(KEYS[0], math.inf)
    assert taken(pool, 2) == "bb"


def test_round_robin_goes_around_and_skips_the_spent() -> None:
    pool = CredentialPool(KEYS, PoolStrategy.ROUND_ROBIN, InstantClock())
    assert taken(pool, 4) == "abca"
    pool.exhaust(KEYS[1], 60)
    assert taken(pool, 3) == "cac"


def test_least_used_evens_out() -> None:
    pool = CredentialPool(KEYS, PoolStrategy.LEAST_USED, InstantClock())
    assert sorted(taken(pool, 6)) == list("aabbcc")


def test_random_uses_all_of_them() -> None:
    pool = CredentialPool(KEYS, PoolStrategy.RANDOM, InstantClock(), seed=7)
    assert set(taken(pool, 50)) == set("abc")


def test_an_exhausted_key_comes_back_with_time_and_a_dead_one_does_not() -> None:
    clock = InstantClock()
    pool = CredentialPool(KEYS[:2], PoolStrategy.FILL_FIRST, clock)
    pool.exhaust(KEYS[0], 60)
    pool.exhaust(KEYS[1], math.inf)
    assert taken(pool, 1) == "-"
    clock.time += 61
    assert taken(pool, 2) == "aa"
    pool.exhaust(KEYS[0], math.inf)
    assert taken(pool, 1) == "-"
    pool.reset()
    assert taken(pool, 1) == "a"
