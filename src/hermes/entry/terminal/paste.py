"""Paste collapse: a long paste is a short placeholder in the input, whole when sent."""

import re

__all__ = ["PASTE_CHARS", "PASTE_LINES", "PasteShelf"]

PASTE_LINES = 5
PASTE_CHARS = 2000
_PLACEHOLDER = re.compile(r"\[pasted #(\d+): [^\]\n]*\]")


class PasteShelf:
    """Keeps what long pastes stand for, until the chat ends."""

    def __init__(self) -> None:
        self._pastes: dict[int, str] = {}

    def collapse(self, text: str) -> str:
        """Return what to put into the input for a paste: itself, or a placeholder."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.rstrip("\n").count("\n") + 1
        if lines < PASTE_LINES and len(text) < PASTE_CHARS:
            return text
        number = len(self._pastes) + 1
        self._pastes[number] = text
        return f"[pasted #{number}: {lines} lines, {len(text)} characters]"

    def expand(self, text: str) -> str:
        """Return `text` with every placeholder replaced by what was pasted."""
        return _PLACEHOLDER.sub(self._original, text)

    def _original(self, match: re.Match[str]) -> str:
        return self._pastes.get(int(match[1]), match[0])
