"""Sets of command names and options, written as one line of words."""

__all__ = ["words"]


def words(text: str) -> frozenset[str]:
    """Return the words of `text` as a set."""
    return frozenset(text.split())
