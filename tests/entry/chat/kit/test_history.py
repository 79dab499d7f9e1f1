"""Catching up from a history after a lost connection."""

from hermes.entry.chat.kit.receiver import HistoryPage, missed


async def page(older: str | None) -> HistoryPage[int]:
    """Twenty messages, the newest first, five on a page."""
    at = int(older or 20)
    items = list(range(at, max(at - 5, 0), -1))
    return HistoryPage(items=items, older=str(at - 5) if at > 5 else None)


async def test_what_was_missed_comes_oldest_first_across_pages() -> None:
    assert await missed(page, lambda number: number <= 12) == [13, 14, 15, 16, 17, 18, 19, 20]
    assert await missed(page, lambda number: number == 20) == []


async def test_a_history_without_anything_known_ends_and_is_bounded() -> None:
    assert await missed(page, lambda _number: False) == list(range(1, 21))
    assert await missed(page, lambda _number: False, most=3) == [18, 19, 20]
