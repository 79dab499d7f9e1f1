"""Keys of one provider, which of them is used next, and which are spent.

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
    """A secret that does not show itself by accident."""

    secret: str
    label: str = ""
    """Where it came from, e.g. the name of a variable."""

    def __repr__(self) -> str:
        return f"ProviderKey({self.label or 'key'})"


class _Slot:
    def __init__(self, key: ProviderKey) -> None:
        self.key = key
        self.uses = 0
        self.dead = False
        self.exhausted_until = 0.0


class CredentialPool:
    """Hands out keys and remembers what became of them."""

    def __init__(
        self,
        keys: Sequence[ProviderKey],
        strategy: PoolStrategy,
        clock: Clock,
        seed: int | None = None,
    ) -> None:
        self._slots = [_Slot(key) for key in keys]
        self._strategy = strategy
        self._clock = clock
        self._random = random.Random(seed)  # noqa: S311 - spreads load, guards nothing
        self._next = 0

    def __len__(self) -> int:
        return len(self._slots)

    def acquire(self) -> ProviderKey | None:
        """Return a usable key and count the use; None if all are spent."""
        usable = self._usable()
        if not usable:
            return None
        slot = self._pick(usable)
        slot.uses += 1
        return slot.key

    def exhaust(self, key: ProviderKey, seconds: float) -> None:
        slot = self._slot(key)
        slot.exhausted_until = max(slot.exhausted_until, self._clock.monotonic() + seconds)

    def bury(self, key: ProviderKey) -> None:
        """Never use a key again: the provider refuses it."""
        self._slot(key).dead = True

    def revive(self, key: ProviderKey) -> None:
        slot = self._slot(key)
        slot.dead = False
        slot.exhausted_until = 0.0

    def reset(self) -> None:
        """Make every key usable again; a call that has no other key tries anyway."""
        for slot in self._slots:
            self.revive(slot.key)

    def _slot(self, key: ProviderKey) -> _Slot:
        return next(slot for slot in self._slots if slot.key is key)

    def _usable(self) -> list[_Slot]:
        now = self._clock.monotonic()
        return [slot for slot in self._slots if not slot.dead and slot.exhausted_until <= now]

    def _pick(self, usable: list[_Slot]) -> _Slot:
        match self._strategy:
            case PoolStrategy.ROUND_ROBIN:
                chosen = min(
                    usable, key=lambda s: (self._slots.index(s) - self._next) % len(self._slots)
                )
                self._next = self._slots.index(chosen) + 1
                return chosen
            case PoolStrategy.RANDOM:
                return self._random.choice(usable)
            case PoolStrategy.LEAST_USED:
                return min(usable, key=lambda slot: slot.uses)
            case _:
                return usable[0]
