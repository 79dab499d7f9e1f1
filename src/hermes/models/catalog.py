"""What is known about a model by its name: the longest prefix wins.

The table is indexed on first use. Vendor prefixes (`anthropic/`), variants
(`:free`) and dots in version numbers are ignored in the comparison. A newer
version than any in the table is unknown rather than taken for an older one.
"""

import re
from functools import lru_cache
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from hermes.domain.usage import Usage

Row = tuple[str, int | None, int, bool, float | None, float | None, float | None, float | None]

ROWS: Final[tuple[Row, ...]] = (
    ("claude-fable-5-1", 1_000_000, 128_000, True, 10, 50, 0.25, 12.5),
    ("claude-fable-5", 1_000_000, 128_000, True, 10, 50, 1, 12.5),
    ("claude-opus-5-5", 1_000_000, 128_000, True, 4, 20, 0.2, 5),
    ("claude-opus-5", 1_000_000, 128_000, True, 5, 25, 0.5, 6.25),
    ("claude-sonnet-5-5", 1_000_000, 128_000, True, 2, 10, 0.2, 2.5),
    ("claude-sonnet-5", 1_000_000, 128_000, True, 2, 10, 0.2, 2.5),
    # Priced by the length of the prompt.
    ("claude-haiku-5-5", 1_000_000, 128_000, True, None, None, None, None),
    ("claude-opus-4-8", 200_000, 128_000, True, 5, 25, 0.5, 6.25),
    ("claude-opus-4-7", 200_000, 128_000, True, 5, 25, 0.5, 6.25),
    ("claude-opus-4-6", 200_000, 128_000, True, 5, 25, 0.5, 6.25),
    ("claude-opus-4-5", 200_000, 64_000, True, 5, 25, 0.5, 6.25),
    ("claude-opus-4-1", 200_000, 32_000, True, 15, 75, 1.5, 18.75),
    ("claude-opus-4", 200_000, 32_000, True, 15, 75, 1.5, 18.75),
    ("claude-sonnet-4-6", 200_000, 64_000, True, 3, 15, 0.3, 3.75),
    ("claude-sonnet-4-5", 200_000, 64_000, True, 3, 15, 0.3, 3.75),
    ("claude-sonnet-4", 200_000, 64_000, True, 3, 15, 0.3, 3.75),
    ("claude-haiku-4-5", 200_000, 64_000, True, 1, 5, 0.1, 1.25),
    ("claude-3-7-sonnet", 200_000, 64_000, True, 3, 15, 0.3, 3.75),
    ("claude-3-5-sonnet", 200_000, 8_192, True, 3, 15, 0.3, 3.75),
    ("claude-3-5-haiku", 200_000, 8_192, True, 0.8, 4, 0.08, 1),
    ("gpt-6-sol", None, 128_000, True, 2, 10, 0.2, 2.5),
    ("gpt-6-luna", None, 128_000, True, 0.1, 0.5, 0.01, 0.125),
    ("gpt-5.6-sol", 1_050_000, 128_000, True, None, None, None, None),
    ("gpt-5.5-pro", 1_050_000, 128_000, True, 30, 180, None, None),
    ("gpt-5.5", 1_050_000, 128_000, True, 5, 30, 0.5, None),
    ("gpt-5.4-mini", 400_000, 128_000, True, 0.75, 4.5, 0.075, None),
    ("gpt-5.4", 1_050_000, 128_000, True, 2.5, 15, 0.25, None),
    ("gpt-5.2-pro", 400_000, 128_000, True, 21, 168, None, None),
    ("gpt-5.2", 400_000, 128_000, True, 1.75, 14, 0.175, None),
    ("gpt-5.1-codex-mini", 400_000, 128_000, True, 0.25, 2, 0.025, None),
    ("gpt-5.1", 400_000, 128_000, True, 1.25, 10, 0.125, None),
    ("gpt-5-pro", 400_000, 272_000, True, 15, 120, None, None),
    ("gpt-5-mini", 400_000, 128_000, True, 0.25, 2, 0.025, None),
    ("gpt-5-nano", 400_000, 128_000, True, 0.05, 0.4, 0.005, None),
    ("gpt-5-chat", 128_000, 16_384, True, 1.25, 10, 0.125, None),
    ("gpt-5", 400_000, 128_000, True, 1.25, 10, 0.125, None),
    ("gpt-4.1-mini", 1_047_576, 32_768, True, 0.4, 1.6, 0.1, None),
    ("gpt-4.1-nano", 1_047_576, 32_768, True, 0.1, 0.4, 0.025, None),
    ("gpt-4.1", 1_047_576, 32_768, True, 2, 8, 0.5, None),
    ("gpt-4o-mini", 128_000, 16_384, True, 0.15, 0.6, 0.075, None),
    ("gpt-4o", 128_000, 16_384, True, 2.5, 10, 1.25, None),
    ("gpt-oss-120b", 131_072, 131_072, False, None, None, None, None),
    ("gpt-oss-20b", 131_072, 131_072, False, None, None, None, None),
    ("gpt-oss", 131_072, 131_072, False, None, None, None, None),
    ("o4-mini", 200_000, 100_000, True, 1.1, 4.4, 0.275, None),
    ("o3-mini", 200_000, 100_000, False, 1.1, 4.4, 0.55, None),
    ("o3", 200_000, 100_000, True, 2, 8, 0.5, None),
    ("gemini-3.5-flash", 1_000_000, 64_000, True, 1.5, 9, 0.15, None),
    ("gemini-3-pro", 1_048_576, 65_536, True, 2, 12, 0.2, None),
    ("gemini-3-flash", 1_048_576, 65_536, True, 0.5, 3, 0.05, None),
    ("gemini-2.5-pro", 1_048_576, 65_536, True, 1.25, 10, 0.125, None),
    ("gemini-2.5-flash-lite", 1_048_576, 65_536, True, 0.1, 0.4, 0.01, None),
    ("gemini-2.5-flash", 1_048_576, 65_536, True, 0.3, 2.5, 0.03, None),
    ("gemini-2.0-flash", 1_048_576, 8_192, True, 0.1, 0.4, 0.025, None),
    # Priced by the time of day.
    ("deepseek-flash", 1_048_576, 393_216, True, None, None, None, None),
    ("deepseek-v4-flash", 1_048_576, 393_216, False, None, None, None, None),
    ("deepseek-v4-pro", 1_048_576, 393_216, False, None, None, None, None),
    ("deepseek-chat", 131_072, 8_192, False, None, None, None, None),
    ("deepseek-reasoner", 131_072, 65_536, False, None, None, None, None),
    ("deepseek-v3", 131_072, 65_536, False, None, None, None, None),
    ("deepseek-r1", 131_072, 65_536, False, None, None, None, None),
    ("grok-4-fast", 2_000_000, 30_000, True, 0.2, 0.5, 0.05, None),
    ("grok-4", 256_000, 64_000, True, 3, 15, 0.75, None),
    ("grok-code-fast-1", 256_000, 10_000, False, 0.2, 1.5, 0.02, None),
    ("grok-3-mini", 131_072, 131_072, False, 0.3, 0.5, 0.075, None),
    ("grok-3", 131_072, 131_072, False, 3, 15, 0.75, None),
    ("kimi-k2", 262_144, 32_768, False, 0.6, 2.5, 0.15, None),
    ("glm-4.6", 204_800, 131_072, False, 0.6, 2.2, 0.11, None),
    ("glm-4.5-air", 131_072, 98_304, False, 0.2, 1.1, 0.03, None),
    ("glm-4.5", 131_072, 98_304, False, 0.6, 2.2, 0.11, None),
    ("minimax-m2", 204_800, 131_072, False, 0.3, 1.2, 0.03, None),
    ("qwen3-max", 262_144, 65_536, False, 1.2, 6, None, None),
    ("qwen3-coder", 262_144, 65_536, False, None, None, None, None),
    ("qwen3", 131_072, 32_768, False, None, None, None, None),
    ("qwen2.5", 131_072, 8_192, False, None, None, None, None),
    ("llama-4", 1_048_576, 16_384, True, None, None, None, None),
    ("llama-3.3", 131_072, 16_384, False, None, None, None, None),
    ("llama-3.1", 131_072, 16_384, False, None, None, None, None),
    ("mistral-large", 131_072, 32_768, False, 2, 6, None, None),
    ("mistral-medium", 131_072, 32_768, True, 0.4, 2, None, None),
    ("mistral-small", 131_072, 32_768, True, 0.1, 0.3, None, None),
    ("codestral", 262_144, 32_768, False, 0.3, 0.9, None, None),
    ("devstral", 131_072, 32_768, False, 0.1, 0.3, None, None),
    ("hermes-4-405b", 131_072, 16_384, False, 1, 3, None, None),
    ("hermes-4-70b", 131_072, 16_384, False, 0.13, 0.4, None, None),
    ("hermes-3", 131_072, 16_384, False, None, None, None, None),
)


class Price(Struct, frozen=True, kw_only=True):
    """US dollars for a million tokens."""

    input: float
    output: float
    cache_read: float | None = None
    """None: cached tokens cost as much as others."""
    cache_write: float | None = None


class ModelFacts(Struct, frozen=True, kw_only=True):
    """Limits and prices of one model; None is unknown."""

    context_window: int | None = None
    max_output: int | None = None
    vision: bool = False
    price: Price | None = None


UNKNOWN = ModelFacts(vision=True)
"""A model nobody has told us about is shown pictures: if it refuses, it is asked without them."""


def find_model(model: str) -> ModelFacts | None:
    """Return the facts of a model, None if it is not in the table."""
    name = _normal(model)
    best = max((p for p in _table() if _matches(name, p)), key=len, default=None)
    if best is None:
        return None
    facts = _table()[best]
    if model.endswith(":free"):
        return replace(facts, price=Price(input=0.0, output=0.0))
    return facts


def cost(usage: Usage, price: Price | None) -> float | None:
    """Return US dollars for `usage`, None if the price is not known."""
    if price is None:
        return None
    read = price.input if price.cache_read is None else price.cache_read
    write = price.input if price.cache_write is None else price.cache_write
    plain = max(0, usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens)
    total = (
        plain * price.input
        + usage.cache_read_tokens * read
        + usage.cache_write_tokens * write
        + usage.output_tokens * price.output
    )
    return total / 1_000_000


_OTHER_VERSION = re.compile(r"-\d{1,2}(-|$)|[a-z0-9]")


def _matches(name: str, prefix: str) -> bool:
    """Whether `name` is `prefix` with a date or a variant, not the next version of it."""
    return name.startswith(prefix) and not _OTHER_VERSION.match(name, len(prefix))


def _normal(model: str) -> str:
    return model.lower().rsplit("/", 1)[-1].partition(":")[0].replace(".", "-")


@lru_cache(maxsize=1)
def _table() -> dict[str, ModelFacts]:
    facts: dict[str, ModelFacts] = {}
    for prefix, window, output, vision, dollars_in, dollars_out, read, write in ROWS:
        price = None
        if dollars_in is not None and dollars_out is not None:
            price = Price(input=dollars_in, output=dollars_out, cache_read=read, cache_write=write)
        facts[_normal(prefix)] = ModelFacts(
            context_window=window, max_output=output, vision=vision, price=price
        )
    return facts
