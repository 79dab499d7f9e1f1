"""Replies that mean: say nothing.

A whole reply that is one of the markers sends nothing. While a reply streams
it is held back for as long as it could still become one.
"""

from hermes.domain.silence import SILENT_MARKERS

__all__ = ["is_silent", "may_become_silent"]


def is_silent(text: str) -> bool:
    """Return whether the whole of `text` asks for silence."""
    return text.strip() in SILENT_MARKERS


def may_become_silent(text: str) -> bool:
    """Return whether `text` is the beginning of a marker, or of nothing yet."""
    begun = text.strip()
    return any(marker.startswith(begun) for marker in SILENT_MARKERS)
