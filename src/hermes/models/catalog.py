"""The catalogue of models by name: the longest prefix wins.

The table is `catalog.csv`, read on first use. Vendor prefixes (`anthropic/`), variants
(`:free`) and dots in version numbers are ignored in the comparison. A newer
version than any in the table is unknown rather than taken for an older one.
"""

import re
from functools import lru_cache
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from hermes.domain.settings.models import Price
from hermes.domain.usage import Usage

FREE = Price(input=0.0, output=0.0)


class ModelFacts(Struct, frozen=True, kw_only=True):
    """Limits and prices of one model; None is unknown."""

    context_window: int | None = None
    max_output: int | None = None
    vision: bool = False
    price: Price | None = None


UNKNOWN = ModelFacts(vision=True)
"""A model that is not in the table gets images; if it refuses them, they are left out."""


def find_model(model: str) -> ModelFacts | None:
    name = _normal(model)
    found = [each for each in catalog() if _matches(name, _normal(each))]
    if not found:
        return None
    facts = catalog()[max(found, key=len)]
    if model.endswith(":free"):
        return replace(facts, price=FREE)
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
def catalog() -> dict[str, ModelFacts]:
    text = Path(__file__).with_name("catalog.csv").read_text("utf-8")
    rows = (line.split(",") for line in text.splitlines() if not line.startswith("#"))
    facts: dict[str, ModelFacts] = {}
    for name, window, output, vision, *dollars in rows:
        given, made, read, write = (float(each) if each else None for each in dollars)
        price = None
        if given is not None and made is not None:
            price = Price(input=given, output=made, cache_read=read, cache_write=write)
        facts[name] = ModelFacts(
            context_window=int(window) if window else None,
            max_output=int(output),
            vision=vision == "yes",
            price=price,
        )
    return facts
