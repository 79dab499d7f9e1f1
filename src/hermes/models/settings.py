"""What the composition root fills in: plain values, no knowledge of the config file."""

from enum import StrEnum
from typing import Any

from msgspec import Struct, field


class ApiMode(StrEnum):
    """The wire protocol an endpoint speaks."""

    CHAT_COMPLETIONS = "chat_completions"
    RESPONSES = "responses"
    ANTHROPIC_MESSAGES = "anthropic_messages"


class CacheTtl(StrEnum):
    """How long a provider keeps a prefix that was marked for its cache."""

    FIVE_MINUTES = "5m"
    ONE_HOUR = "1h"


class PoolStrategy(StrEnum):
    """Which of several keys of one provider is used next."""

    FILL_FIRST = "fill_first"
    ROUND_ROBIN = "round_robin"
    RANDOM = "random"
    LEAST_USED = "least_used"


class Timeouts(Struct, frozen=True, kw_only=True):
    """Bounds on one attempt, in seconds."""

    connect: float = 15.0
    first_byte: float = 180.0
    """From the end of the request to the first byte of the answer's body."""
    idle: float = 120.0
    """Between two arrivals of bytes."""
    total: float = 1800.0
    notice: float = 15.0
    """Silence after which the person is told that the model is being waited for."""


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """How often and how patiently a call is tried again on one route."""

    max_retries: int = 3
    base_delay: float = 5.0
    max_delay: float = 120.0
    jitter: float = 0.5
    """Up to this part of the delay is added at random."""
    max_retry_after: float = 120.0
    """A longer `Retry-After` is not waited for: the next key or route is used."""
    timeout_retries: int = 1
    """Silence is expensive to wait for, so it is tried again less often."""
    malformed_retries: int = 2
    """For replies that are empty, cut off or not understood."""


class Price(Struct, frozen=True, kw_only=True):
    """US dollars for a million tokens."""

    input: float
    output: float
    cache_read: float | None = None
    """None: cached tokens cost as much as others."""
    cache_write: float | None = None


class ProviderSettings(Struct, frozen=True, kw_only=True):
    """One entry of `providers:` in the configuration."""

    base_url: str = ""
    api_keys: tuple[str, ...] = ()
    key_env: tuple[str, ...] = ()
    """Names of secrets, tried in order."""
    api_mode: str = ""
    models: tuple[str, ...] = ()
    context_length: int | None = None
    max_output: int | None = None
    vision: bool | None = None
    price: Price | None = None
    headers: dict[str, str] = field(default_factory=dict)
    extra_body: dict[str, Any] = field(default_factory=dict)
    ssl_verify: bool = True
    ssl_ca: str = ""
    stream: bool = True
    strategy: PoolStrategy = PoolStrategy.FILL_FIRST


class ModelTarget(Struct, frozen=True, kw_only=True):
    """Which model to call: `model:`, an entry of `fallback_providers:` or a task override."""

    model: str
    provider: str = ""
    """A built-in name, a name of `providers:`, `custom`, or empty or `auto` to find out."""
    base_url: str = ""
    api_key: str = ""
    key_env: str = ""
    api_mode: str = ""
    context_length: int | None = None
    max_tokens: int | None = None
    extra_body: dict[str, Any] = field(default_factory=dict)
