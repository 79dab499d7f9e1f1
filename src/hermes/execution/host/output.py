"""Output between the pipe and the model.

Bytes are decoded piece by piece (a character may be split over two reads),
terminal escape sequences are taken out (they may be split as well), and what
remains goes into a bounded store: `HeadTail` for a command that ends,
`Rolling` for a process that goes on.
"""

import codecs
import re

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x9b[0-?]*[ -/]*[@-~]"  # CSI in one byte
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC, DCS, SOS, PM, APC
    r"|\x1b[ -/]+[0-~]"  # character sets
    r"|\x1b[0-OQ-WYZ\\`-~]"  # the two-character rest
)
_PARTIAL = re.compile(
    r"(?:\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]*\x1b?|[ -/]*)|\x9b[0-?]*[ -/]*)\Z"
)
_MAX_HELD = 4096
"""A sequence longer than this is not one: it is let through."""

_HEAD_SHARE = 0.4


class OutputFilter:
    """Bytes in, clean text out, whatever the reads were cut into."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""

    def feed(self, data: bytes) -> str:
        return self._clean(self._decoder.decode(data), final=False)

    def finish(self) -> str:
        return self._clean(self._decoder.decode(b"", final=True), final=True)

    def _clean(self, text: str, *, final: bool) -> str:
        text = self._held + text
        self._held = ""
        if "\x1b" not in text and "\x9b" not in text:
            return text
        text = _ESCAPES.sub("", text)
        if final:
            return text
        partial = _PARTIAL.search(text, max(0, len(text) - _MAX_HELD))
        if partial is None:
            return text
        self._held = text[partial.start() :]
        return text[: partial.start()]


class HeadTail:
    """Keeps the first 40 % and the last 60 % of `limit` bytes of text."""

    def __init__(self, limit: int) -> None:
        self._head_limit = int(limit * _HEAD_SHARE)
        self._tail_limit = limit - self._head_limit
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped = 0

    def add(self, text: str) -> None:
        data = text.encode("utf-8", "replace")
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._tail_limit:
            self._trim()

    def result(self) -> tuple[str, int]:
        """Return the text with a mark where it was cut, and the bytes missing."""
        self._trim()
        if not self._dropped:
            return (self._head + self._tail).decode("utf-8", "replace"), 0
        head = self._head.decode("utf-8", "ignore")
        tail = self._tail.decode("utf-8", "ignore")
        return f"{head}\n[... {self._dropped} bytes cut out ...]\n{tail}", self._dropped

    def _trim(self) -> None:
        excess = len(self._tail) - self._tail_limit
        if excess > 0:
            del self._tail[:excess]
            self._dropped += excess


class Rolling:
    """Keeps the last `limit` characters; offsets count from the very start."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._text = ""
        self._pieces: list[str] = []
        self._pending = 0
        self._start = 0

    @property
    def end(self) -> int:
        return self._start + len(self._text) + self._pending

    def add(self, text: str) -> None:
        self._pieces.append(text)
        self._pending += len(text)
        if self._pending > self._limit:
            self._join()

    def since(self, offset: int) -> tuple[str, int]:
        """Return what is still there from `offset` on, and the end."""
        self._join()
        return self._text[max(0, offset - self._start) :], self.end

    def _join(self) -> None:
        text = self._text + "".join(self._pieces)
        self._pieces.clear()
        self._pending = 0
        excess = len(text) - self._limit
        if excess > 0:
            text = text[excess:]
            self._start += excess
        self._text = text
