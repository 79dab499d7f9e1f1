"""How long to wait before the next try.

The provider's own wish (`Retry-After` and its relatives) comes first, up to a
bound; otherwise exponential backoff with jitter.
"""

import random
import re
from collections.abc import Mapping
from datetime import UTC, datetime

from hermes.domain.ports.model import FailureKind
from hermes.models.settings import RetryPolicy

_RESET_HEADERS = (
    "x-ratelimit-reset-requests",
    "x-ratelimit-reset-tokens",
    "x-ratelimit-reset",
    "anthropic-ratelimit-requests-reset",
    "anthropic-ratelimit-tokens-reset",
)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_EPOCH = 1_000_000_000


def retries_for(kind: FailureKind, policy: RetryPolicy) -> int:
    """Return how often a failure of this kind is tried again on one route."""
    match kind:
        case FailureKind.TIMEOUT:
            return min(policy.timeout_retries, policy.max_retries)
        case FailureKind.MALFORMED | FailureKind.EMPTY:
            return min(policy.malformed_retries, policy.max_retries)
        case _:
            return policy.max_retries


def backoff(attempt: int, policy: RetryPolicy, rng: random.Random) -> float:
    """Return the delay before retry number `attempt` (from 1)."""
    delay: float = min(policy.base_delay * 2 ** (attempt - 1), policy.max_delay)
    return delay * (1 + policy.jitter * rng.random())


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Return the seconds the provider asks to wait, None if it does not say."""
    lowered = {name.lower(): value.strip() for name, value in headers.items()}
    if (value := lowered.get("retry-after-ms")) and _number(value) is not None:
        return max(0.0, float(value) / 1000)
    if value := lowered.get("retry-after"):
        return _seconds(value, now)
    for name in _RESET_HEADERS:
        if (value := lowered.get(name)) and (seconds := _seconds(value, now)) is not None:
            return seconds
    return None


def _seconds(value: str, now: float) -> float | None:
    """Read seconds, an epoch, `1m30s`, or a date in HTTP or ISO form."""
    number = _number(value)
    if number is not None:
        if number > _EPOCH * 1000:
            number /= 1000
        return max(0.0, number - now) if number > _EPOCH else max(0.0, number)
    if "".join("".join(pair) for pair in _DURATION.findall(value)) == value:
        return sum(float(amount) * _UNITS[unit] for amount, unit in _DURATION.findall(value))
    return _date(value, now)


def _number(value: str) -> float | None:
    try:
        number = float(value)
    except ValueError:
        return None
    return number if 0 <= number < 1e15 else None


def _date(value: str, now: float) -> float | None:
    from email.utils import parsedate_to_datetime  # noqa: PLC0415 - 9 ms, and rarely needed

    for parse in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            moment = parse(value)
        except (ValueError, TypeError, IndexError):
            continue
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return max(0.0, moment.timestamp() - now)
    return None
