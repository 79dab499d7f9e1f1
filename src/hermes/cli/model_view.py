"""How models look in lists and in `hermes model show`."""

from typing import Any

from hermes.models.catalog import ModelFacts
from hermes.models.local.files import PROVIDER
from hermes.models.offers import Offer

__all__ = ["facts_text", "offer_data", "offer_line", "price_text", "tokens_text"]


def tokens_text(count: int | None) -> str:
    """Return a number of tokens for people: `128k`, `1M`."""
    if count is None:
        return "?"
    if count >= 1_000_000:
        return f"{count / 1_000_000:.3g}M"
    return f"{count / 1000:.0f}k" if count >= 1000 else str(count)


def price_text(facts: ModelFacts) -> str:
    """Return what a million tokens cost."""
    if facts.price is None:
        return "price unknown"
    if facts.price.input == 0 == facts.price.output:
        return "free"
    return f"${facts.price.input:g} in, ${facts.price.output:g} out per 1M tokens"


def facts_text(facts: ModelFacts) -> str:
    """Return context window and price in a few words."""
    return f"{tokens_text(facts.context_window)} context, {price_text(facts)}"


def offer_line(offer: Offer, *, current: bool = False) -> str:
    """Return one line about an offer."""
    facts = "" if offer.provider == PROVIDER else f"{facts_text(offer.facts)}; "
    mark = "*" if current else " "
    return f"{mark} {offer.model:<32} {offer.provider:<12} {facts}{offer.why}"


def offer_data(offer: Offer, *, current: bool) -> dict[str, Any]:
    """Return an offer as JSON-able data."""
    price = offer.facts.price
    return {
        "provider": offer.provider,
        "model": offer.model,
        "current": current,
        "why": offer.why,
        "base_url": offer.base_url or None,
        "context_window": offer.facts.context_window,
        "usd_per_million": None if price is None else [price.input, price.output],
    }
