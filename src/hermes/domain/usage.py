"""Tokens and money, counted one way for every provider."""

from msgspec import Struct


class Usage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tokens of one model call.

    `input_tokens` counts the whole prompt; the two cache counters are parts
    of it. `output_tokens` counts everything generated; `reasoning_tokens` is a
    part of it. Providers that count otherwise are converted on arrival.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: "Usage") -> "Usage":
        names = self.__struct_fields__
        return Usage(**{name: getattr(self, name) + getattr(other, name) for name in names})


class UsageRecord(Struct, frozen=True, kw_only=True):
    session_id: str | None
    turn_id: str | None
    agent_id: str
    provider: str
    model: str
    task: str
    """`turn`, or the name of the auxiliary task, e.g. `title_generation`."""
    usage: Usage
    cost_usd: float | None
    """None when the price of the model is not known."""
    at: float


class Spent(Struct, frozen=True, kw_only=True):
    calls: int = 0
    tokens: int = 0
    cost_usd: float = 0.0
    unpriced_calls: int = 0
    """Calls whose price is unknown and therefore missing from `cost_usd`."""


class TurnUsage(Struct, frozen=True, kw_only=True):
    calls: int = 0
    usage: Usage = Usage()
    cost_usd: float | None = 0.0
    """None if the price of a call is not known."""
