"""Splitting Markdown into pieces that fit into messages.

A cut depends only on the text up to the limit, never on what follows, so a
piece that is finished stays as it is however much text still arrives: earlier
messages need no further edit, and a text that comes token by token is split
exactly like one that comes at once.

Cuts are made at the border of a paragraph, a line, a sentence or a word, in
this order, in the second half of a piece if there is one. Links, code spans
and styles up to half a piece long stay whole, characters always. A code block
or a table that is cut begins again in the next piece.
"""

import re
from collections.abc import Callable, Iterator

from msgspec import Struct

from hermes.streaming.markup.inline import MarkupSpan, parse
from hermes.streaming.markup.scan import Fence, is_delimiter, open_fence
from hermes.streaming.units import fit, is_blank

CLOSING = 7
"""Room for the line that closes a code block: a newline and at most six marks."""
_SMALLEST = 4 * CLOSING
_BLANK_LINES = re.compile(r"(?:[ \t]*\n)*")
_REST_OF_LINE = re.compile(r"[ \t]*(?:\n(?:[ \t]*\n)*)?")
_NEWLINE = re.compile(r"\n?")
_SENTENCE = re.compile(r"(?:[.!?…:;]['\")\]*_]*(?=\s)|[。！？；])")
_WORD = re.compile(r"\S(?=\s)")


class _Cut(Struct, frozen=True, kw_only=True):
    """A place to cut the window at: where a piece may end and how the next one begins."""

    at: int
    fence: Fence | None
    """The code block that goes on behind it."""
    table: str
    """Header of the table that goes on behind it."""
    skip: re.Pattern[str]
    """What of the text behind it falls away."""


class _Line(_Cut, frozen=True, kw_only=True):
    """A border between two lines of the window, at its newline."""

    skip: re.Pattern[str] = _BLANK_LINES
    paragraph: bool
    good: bool
    """Nothing is torn apart that belongs together, like a table and its header."""


class Chunker:
    def __init__(self, limit: int, weigh: Callable[[str], int]) -> None:
        if limit < _SMALLEST:
            raise ValueError(f"a message of {limit} is too short to split text into")
        self._limit = limit - CLOSING
        self._weigh = weigh
        self.text = ""
        self._start = 0
        self._skip = _BLANK_LINES
        self._carry = ""
        self.finished: list[str] = []
        """Pieces that will never change."""

    def add(self, text: str) -> None:
        self.text += text
        while (piece := self._next()) is not None:
            if piece:
                self.finished.append(piece)

    @property
    def open(self) -> str:
        """The piece that still grows; empty if there is nothing to see in it."""
        return close_code(_whole(self._carry, self.text[self._begin() :].rstrip()))

    @property
    def pieces(self) -> list[str]:
        growing = self.open
        return [*self.finished, growing] if growing else list(self.finished)

    def _begin(self) -> int:
        found = self._skip.match(self.text, self._start)
        return found.end() if found else self._start

    def _next(self) -> str | None:
        begin = self._begin()
        # No character weighs less than one, so the window never needs to be longer.
        window = self._carry + self.text[begin : begin + self._limit + 1]
        if self._weigh(window) <= self._limit:
            return None
        within = self._within(window)
        cut = _cut(window, within, len(self._carry))
        self._start = begin + cut.at - len(self._carry)
        self._skip = cut.skip if cut.fence is None else _NEWLINE
        piece = _whole(self._carry, window[len(self._carry) : cut.at].rstrip())
        carry = cut.table if cut.fence is None else f"{cut.fence.opener()}\n"
        self._carry = carry if self._weigh(carry) <= self._limit // 3 else ""
        if cut.fence is not None:
            piece = piece and f"{piece}\n{cut.fence.marker}"
            self._carry = self._carry or f"{cut.fence.marker}\n"
        return piece

    def _within(self, window: str) -> int:
        """Return the longest beginning of `window` that fits."""
        low, high = 0, len(window)
        while low < high:
            middle = (low + high + 1) // 2
            if self._weigh(window[:middle]) <= self._limit:
                low = middle
            else:
                high = middle - 1
        return max(low, len(self._carry) + 1)


def _cut(window: str, within: int, carried: int) -> _Cut:
    text = window[:within]
    lines = [line for line in _lines(text) if line.at > carried and line.good]
    half = carried + (within - carried) // 2
    for borders in (
        [line for line in lines if line.paragraph],
        [line for line in lines if line.fence is None and not line.table],
        lines,
    ):
        if borders and borders[-1].at >= half:
            return borders[-1]
    fence, table, start = _last_run(text)
    place = _inside(text, max(start, carried), half, code=fence is not None)
    if place is None and lines:
        return lines[-1]
    if place is None:
        place = max(fit(window, within), carried + 1)
    return _Cut(at=place, fence=fence, table=table, skip=_REST_OF_LINE)


def _lines(text: str) -> Iterator[_Line]:
    """Yield the borders between the lines of `text` that lie inside of it."""
    fence: Fence | None = None
    table, before, start = "", "", 0
    while (at := text.find("\n", start)) >= 0:
        line = text[start:at]
        if fence is not None:
            opened, fence = False, None if fence.closed_by(line) else fence
        else:
            fence = open_fence(line)
            opened = fence is not None
        table = "" if fence is not None else _table(line, before, table)
        good = not opened and (bool(table) or "|" not in line) and not is_delimiter(line)
        paragraph = fence is None and not table and not line.strip()
        yield _Line(at=at, fence=fence, table=table, paragraph=paragraph, good=good)
        before, start = line, at + 1


def _table(line: str, before: str, table: str) -> str:
    """Return the header of the table that `line` belongs to, with its delimiter line."""
    if table:
        return table if "|" in line else ""
    if is_delimiter(line) and "|" in before:
        return f"{before}\n{line}\n"
    return ""


def _last_run(text: str) -> tuple[Fence | None, str, int]:
    """Return what the end of `text` is part of, and where its last paragraph begins."""
    start, last = 0, None
    for line in _lines(text):
        apart = line.fence is not None or line.table or line.paragraph
        if apart or (last is not None and (last.fence is not None or last.table)):
            start = line.at + 1
        last = line
    return (last.fence, last.table, start) if last is not None else (None, "", 0)


def _inside(text: str, begin: int, half: int, *, code: bool) -> int | None:
    """Return where to cut inside a paragraph; None if there is no good place."""
    words = [found.end() for found in _WORD.finditer(text, begin)]
    if code:
        return _last(words, half, (), text)
    parsed = parse(text[begin:])
    spans = [
        MarkupSpan(start=span.start + begin, end=span.end + begin, firm=span.firm)
        for span in parsed.spans
    ]
    if parsed.open_at is not None and parsed.open_at + begin >= half:
        spans.append(MarkupSpan(start=parsed.open_at + begin, end=len(text) + 1, firm=True))
    sentences = [found.end() for found in _SENTENCE.finditer(text, begin)]
    firm = tuple(span for span in spans if span.firm)
    for places, kept in ((sentences, tuple(spans)), (words, tuple(spans)), (words, firm)):
        place = _last(places, half, kept, text)
        if place is not None:
            return place
    starts = [span.start for span in firm if span.start >= half and span.end >= len(text)]
    if starts:
        return fit(text, min(starts))
    return _last(words, 1, firm, text)


def _last(places: list[int], least: int, kept: tuple[MarkupSpan, ...], text: str) -> int | None:
    for place in reversed(places):
        if place < least:
            return None
        torn = any(span.start < place < span.end for span in kept)
        if not torn and fit(text, place) == place:
            return place
    return None


def _whole(carry: str, body: str) -> str:
    """Return `carry` and `body` together; nothing if there is nothing to see in `body`."""
    fence = open_fence(carry.rstrip("\n"))
    first, _, rest = body.partition("\n")
    if fence is not None and fence.closed_by(first):
        carry, body = "", rest
    return "" if is_blank(body) else carry + body


def close_code(piece: str) -> str:
    """Return `piece` with its last code block closed, if it is open."""
    fence: Fence | None = None
    for line in piece.split("\n"):
        if fence is None:
            fence = open_fence(line)
        elif fence.closed_by(line):
            fence = None
    return f"{piece}\n{fence.marker}" if fence is not None else piece
