"""The keys of one provider: which one is used next, and which are exhausted.

A key is ok, exhausted until some moment (rate limit, credit) or dead (the
provider does not know it). The pool lives as long as the client, so what one
call learns about a key the next call knows.
"""

import random
from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

from hermes.domain.ports.clock import Clock


class PoolStrategy(StrEnum):
    FILL_FIRST = "fill_first"
    ROUND_ROBIN = "round_robin"
    RANDOM = "random"
    LEAST_USED = "least_used"


class ProviderKey(Struct, frozen=True, kw_only=True):
    """A secret that `repr` does not show."""

    secret: str
    label: str = ""
    """Where it came from, e.g. the name of a variable."""

    def __repr__(self) -> str:
        return f"ProviderKey({self.label or 'key'})"


class CredentialPool:
    """Chooses keys and tracks which of them are exhausted."""

    def __init__(
        self,
        keys: Sequence[ProviderKey],
        strategy: PoolStrategy,
        clock: Clock,
        seed: int | None = None,
    ) -> None:
        self._keys = tuple(keys)
        self._strategy = strategy
        self._clock = clock
        self._random = random.Random(seed)  # noqa: S311 - spreads load, guards nothing
        self._last = -1
        self._uses = [0] * len(keys)
        self._spent_until = [0.0] * len(keys)

    def __len__(self) -> int:
        return len(self._keys)

    def acquire(self) -> ProviderKey | None:
        """Return a usable key and count the use; None if all are exhausted."""
        now = self._clock.monotonic()
        usable = [at for at, until in enumerate(self._spent_until) if until <= now]
        if not usable:
            return None
        self._last = self._pick(usable)
        self._uses[self._last] += 1
        return self._keys[self._last]

    def exhaust(self, key: ProviderKey, seconds: float) -> None:
        """Stop using a key for some seconds; `inf` if the provider refuses it."""
        at = self._keys.index(key)
        self._spent_until[at] = max(self._spent_until[at], self._clock.monotonic() + seconds)

    def revive(self, key: ProviderKey) -> None:
        self._spent_until[self._keys.index(key)] = 0.0

    def reset(self) -> None:
        """Make every key usable again, for a call that has no other."""
        self._spent_until = [0.0] * len(self._keys)

    def _pick(self, usable: list[int]) -> int:
        match self._strategy:
            case PoolStrategy.ROUND_ROBIN:
                return min(usable, key=lambda at: (at - self._last - 1) % len(self._keys))
            case PoolStrategy.RANDOM:
                return self._random.choice(usable)
            case PoolStrategy.LEAST_USED:
                return min(usable, key=self._uses.__getitem__)
            case _:
                return usable[0]
