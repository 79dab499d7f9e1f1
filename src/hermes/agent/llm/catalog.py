"""What is known about a model by its name: the longest prefix wins.

The table is indexed on first use. Vendor prefixes (`anthropic/`), variants
(`:free`) and dots in version numbers are ignored in the comparison. A newer
version than any in the table is unknown rather than taken for an older one.
"""

import re
from functools import lru_cache

from msgspec import Struct

from hermes.agent.llm.catalog_data import ROWS
from hermes.agent.llm.settings import Price
from hermes.domain.usage import Usage

__all__ = ["UNKNOWN", "ModelFacts", "cost", "find_model"]


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
        return ModelFacts(
            context_window=facts.context_window,
            max_output=facts.max_output,
            vision=facts.vision,
            price=Price(input=0.0, output=0.0),
        )
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
