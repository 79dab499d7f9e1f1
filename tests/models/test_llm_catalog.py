"""What is known about models, and what calls cost."""

import pytest

from hermes.domain.settings.models import Price
from hermes.domain.usage import Usage
from hermes.models.catalog import cost, find_model


@pytest.mark.parametrize(
    ("name", "window"),
    [
        ("claude-sonnet-4-5-20250929", 200_000),
        ("anthropic/claude-sonnet-4.5", 200_000),
        ("openai/gpt-4.1-mini-2025-04-14", 1_047_576),
        ("deepseek-chat", 131_072),
    ],
)
def test_a_model_is_found_by_its_longest_prefix(name: str, window: int) -> None:
    facts = find_model(name)
    assert facts is not None
    assert facts.context_window == window


def test_the_longer_prefix_wins_over_the_shorter() -> None:
    mini, full = find_model("gpt-5-mini"), find_model("gpt-5")
    assert mini is not None
    assert full is not None
    assert mini.price is not None
    assert full.price is not None
    assert mini.price.input < full.price.input


def test_an_unknown_model_has_no_facts_and_no_price() -> None:
    assert find_model("my-own-model") is None
    assert cost(Usage(input_tokens=1), None) is None


@pytest.mark.parametrize("name", ["gpt-5.9", "claude-opus-4.9", "kimi-k2.5", "qwen35", "o3x"])
def test_a_newer_version_is_not_taken_for_an_older_one(name: str) -> None:
    assert find_model(name) is None


def test_a_free_variant_costs_nothing() -> None:
    facts = find_model("google/gemini-2.5-flash:free")
    assert facts is not None
    assert cost(Usage(input_tokens=1_000_000), facts.price) == 0


def test_cached_tokens_have_their_own_prices() -> None:
    price = Price(input=3, output=15, cache_read=0.3, cache_write=3.75)
    usage = Usage(
        input_tokens=1_000_000,
        output_tokens=200_000,
        cache_read_tokens=600_000,
        cache_write_tokens=100_000,
    )
    assert cost(usage, price) == pytest.approx(0.9 + 0.18 + 0.375 + 3.0)


def test_cached_tokens_cost_as_much_as_others_where_no_price_is_known() -> None:
    usage = Usage(input_tokens=1_000_000, cache_read_tokens=400_000)
    assert cost(usage, Price(input=2, output=1)) == pytest.approx(2.0)
