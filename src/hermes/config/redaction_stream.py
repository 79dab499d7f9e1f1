"""Taking secrets out of text that comes in pieces.

A piece is passed on at once, except for an end that may be the beginning of a
secret: that waits until it has become one, or something else. Ordinary text
is never held up; what waits comes out with the next piece or at the end.
"""

import re
import string

from hermes.config.secrets import Redactor

__all__ = ["RedactedStream"]

SEED = 4
"""So many characters are recognised as the beginning of a secret; fewer may be shown."""
LONGEST_WORD = 4096
"""A word in the shape of a credential waits for its end, but not for ever."""
LONGEST_BLOCK = 16_384
LOOK_BACK = 32
KEY_BLOCK = "-----BEGIN"
_BLOCK_END = re.compile(r"-----END [A-Z ]*-----")
_WORD = string.ascii_letters + string.digits + "._~+/=:-"


class RedactedStream:
    """One text that comes in pieces."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._seeds: dict[str, list[str]] = {}
        for form in redactor.forms():
            self._seeds.setdefault(form[:SEED], []).append(form)
        seeds = "|".join(map(re.escape, self._seeds))
        # Looked for ahead, so that one may begin within another.
        self._seed = re.compile(f"(?=({seeds}))") if seeds else None
        self._shown = ""
        """The last of what was shown: a secret may have begun there, before it could be told."""
        self._held = ""

    def feed(self, piece: str) -> str:
        """Take a piece; return what may be shown now."""
        return self._take(self._held + piece, end=False)

    def flush(self) -> str:
        """Return what is left at the end."""
        shown = self._take(self._held, end=True) if self._held else ""
        self.clear()
        return shown

    def clear(self) -> None:
        """Forget everything: the text starts over."""
        self._shown = self._held = ""

    def _take(self, new: str, *, end: bool) -> str:
        text, begin = self._shown + new, len(self._shown)
        if not self._suspicious(text):
            self._shown, self._held = text[-LOOK_BACK:], ""
            return new
        cut = len(text) if end else max(begin, self._safe_length(text))
        shown, position = [], begin
        for start, stop, mark in self._redactor.spans(text):
            if position < stop and start < cut:
                shown += [text[position : max(start, position)], mark]
                position = stop
        shown.append(text[position:cut])
        cut = max(cut, position)
        self._shown, self._held = text[max(0, cut - LOOK_BACK) : cut], text[cut:]
        return "".join(shown)

    def _suspicious(self, text: str) -> bool:
        """Tell whether there is anything to look at more closely: mostly there is not."""
        if self._seed is not None and self._seed.search(text):
            return True
        return KEY_BLOCK in text or self._redactor.hints_at_one(text)

    def _safe_length(self, text: str) -> int:
        """Return how much of `text` cannot be part of a secret that is still coming."""
        return min(self._value_start(text), self._shape_start(text))

    def _value_start(self, text: str) -> int:
        """Return where the beginning of a known value stands at the end of `text`."""
        for found in self._seed.finditer(text) if self._seed else ():
            rest = text[found.start() :]
            if any(form.startswith(rest) for form in self._seeds[found.group(1)]):
                return found.start()
        return len(text)

    def _shape_start(self, text: str) -> int:
        """Return where an unfinished word in the shape of a credential begins."""
        block = text.rfind(KEY_BLOCK) if KEY_BLOCK in text else len(text) + 1
        if 0 <= len(text) - block <= LONGEST_BLOCK and not _BLOCK_END.search(text, block):
            return block
        start = len(text.rstrip(_WORD))
        before = text[:start].rstrip()
        if before[-6:].lower() == "bearer":
            start = len(before) - 6
        word = text[start:]
        held = len(word) <= LONGEST_WORD and self._redactor.hints_at_one(word)
        return start if held else len(text)
