"""Splits `<think>` blocks out of a stream of text, also across fragments.

An opening tag counts only where the answer has not begun yet or at the start
of a line, so that an answer may talk about the tag. Text that might be the
beginning of a tag is held back until it is clear. Each fragment is gone through
once, and what it adds is told in as few pieces as it has changes of kind.
"""

import re
from collections.abc import Callable

_OPEN = ("<think>", "<thinking>")
_CLOSE = ("</think>", "</thinking>")
_LONGEST = max(map(len, (*_OPEN, *_CLOSE)))
_OPENED = re.compile("|".join(_OPEN))
_CLOSED = re.compile("|".join(_CLOSE))
_FIRST = re.compile(r"[^\S\n]*<")
_LATER = re.compile(r"\n[^\S\n]*<")
_BLANK = re.compile(r"\s*")


class ThinkSplitter:
    """Routes text to `text` or `reasoning` and keeps both."""

    def __init__(self, text: Callable[[str], None], reasoning: Callable[[str], None]) -> None:
        self._emit_text = text
        self._emit_reasoning = reasoning
        self._held = ""
        self._thinking = False
        self._line_start = True
        self._trim = False
        self._gathered: list[str] = []
        """What the current fragment adds, of one kind."""
        self.text: list[str] = []
        self.reasoning: list[str] = []
        self.opened = False

    def feed(self, piece: str) -> None:
        if not self._held and not self._thinking and "<" not in piece and not self._trim:
            self._put(piece)
        else:
            whole = self._held + piece
            self._held = whole[self._split(whole) :]
        self._tell()

    def close(self) -> None:
        held, self._held = self._held, ""
        self._put(held)
        self._tell()

    def unopened(self) -> tuple[str, str] | None:
        """Split text that ends a block which the server's template had opened."""
        whole = "".join(self.text)
        thought, tag, answer = whole.partition(_CLOSE[0])
        at_line_end = not answer or answer[0] in "\r\n"
        if self.opened or not tag or not at_line_end or _OPEN[0] in whole or tag in answer:
            return None
        return thought.strip(), answer.strip()

    def _split(self, text: str) -> int:
        """Route `text` up to where more of it is needed, and return that place."""
        at = 0
        while at < len(text):
            if self._trim:
                blank = _BLANK.match(text, at)
                at = blank.end() if blank is not None else at
                self._trim = at == len(text)
                continue
            begins, ends = self._next_tag(text, at)
            self._put(text[at:begins])
            if ends is None:
                return begins
            self._tell()
            at = ends
            self._thinking = not self._thinking
            self.opened = self._trim = True
        return at

    def _next_tag(self, text: str, at: int) -> tuple[int, int | None]:
        """Return where the next tag begins and ends; no end if it is not there yet, or none is."""
        if self._thinking:
            closed = _CLOSED.search(text, at)
            if closed is not None:
                return closed.start(), closed.end()
            half = text.rfind("<", max(at, len(text) - _LONGEST))
            return (half if half >= 0 and _may_be(text[half:], _CLOSE) else len(text)), None
        found = _FIRST.match(text, at) if self._line_start else None
        found = found or _LATER.search(text, at)
        while found is not None:
            begins = found.end() - 1
            opened = _OPENED.match(text, begins)
            if opened is not None:
                return begins, opened.end()
            if len(text) - begins < _LONGEST and _may_be(text[begins:], _OPEN):
                return begins, None
            found = _LATER.search(text, begins)
        return len(text), None

    def _put(self, piece: str) -> None:
        if piece:
            self._gathered.append(piece)
            if not self._thinking:
                tail = piece.rpartition("\n")[2]
                self._line_start = not tail.strip() and (self._line_start or "\n" in piece)

    def _tell(self) -> None:
        """Tell what was gathered, before the kind changes."""
        piece = "".join(self._gathered)
        self._gathered.clear()
        if piece:
            kept, emit = (
                (self.reasoning, self._emit_reasoning)
                if self._thinking
                else (self.text, self._emit_text)
            )
            kept.append(piece)
            emit(piece)


def _may_be(text: str, tags: tuple[str, ...]) -> bool:
    return any(tag.startswith(text) for tag in tags)
