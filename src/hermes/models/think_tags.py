"""Splits `<think>` blocks out of a stream of text, also across fragments.

An opening tag counts only where the answer has not begun yet or at the start
of a line, so that an answer may talk about the tag. Text that might be the
beginning of a tag is held back until it is clear.
"""

from collections.abc import Callable

_OPEN = ("<think>", "<thinking>")
_CLOSE = ("</think>", "</thinking>")


class ThinkSplitter:
    """Routes text to `text` or `reasoning` and keeps both."""

    def __init__(self, text: Callable[[str], None], reasoning: Callable[[str], None]) -> None:
        self._emit_text = text
        self._emit_reasoning = reasoning
        self._held = ""
        self._thinking = False
        self._line_start = True
        self._trim = False
        self.text: list[str] = []
        self.reasoning: list[str] = []
        self.opened = False

    def feed(self, piece: str) -> None:
        if not self._held and not self._thinking and "<" not in piece and not self._trim:
            self._put_text(piece)
            return
        self._held += piece
        while self._step():
            pass

    def close(self) -> None:
        held, self._held = self._held, ""
        if held:
            self._put(held)

    def unopened(self) -> tuple[str, str] | None:
        """Split text that ends a block which the server's template had opened."""
        whole = "".join(self.text)
        thought, tag, answer = whole.partition(_CLOSE[0])
        at_line_end = not answer or answer[0] in "\r\n"
        if self.opened or not tag or not at_line_end or _OPEN[0] in whole or tag in answer:
            return None
        return thought.strip(), answer.strip()

    def _step(self) -> bool:
        """Consume a part of what is held; False when more input is needed."""
        if self._trim:
            self._held = self._held.lstrip()
            if not self._held:
                return False
            self._trim = False
        tags = _CLOSE if self._thinking else _OPEN
        at = self._held.find("<")
        if at < 0:
            return self._give(len(self._held))
        if at > 0:
            return self._give(at)
        for tag in tags:
            if self._held.startswith(tag) and (self._thinking or self._line_start):
                self._held = self._held[len(tag) :]
                self._thinking = not self._thinking
                self.opened = True
                self._trim = True
                return bool(self._held)
        may_be_tag = any(tag.startswith(self._held) for tag in tags)
        if may_be_tag and (self._thinking or self._line_start):
            return False
        return self._give(1)

    def _give(self, count: int) -> bool:
        self._put(self._held[:count])
        self._held = self._held[count:]
        return bool(self._held)

    def _put(self, piece: str) -> None:
        if self._thinking:
            self.reasoning.append(piece)
            self._emit_reasoning(piece)
        else:
            self._put_text(piece)

    def _put_text(self, piece: str) -> None:
        self.text.append(piece)
        self._emit_text(piece)
        tail = piece.rpartition("\n")[2]
        self._line_start = not tail.strip() and (self._line_start or "\n" in piece)
