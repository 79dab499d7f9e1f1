"""Fuzzy search for text that a model does not quote exactly.

Strategies are tried in order, strictest first. The first one that finds
anything decides: one place is a match, several are an ambiguity, and a looser
strategy is never used to break a tie. Every strategy but the first works on whole
lines, so that a match cannot begin or end in the middle of a word.

Text and quote come from a model, and both may be large: a search that takes longer than
`MAX_SECONDS` of processor time is given up, also after its call was cancelled.
"""

import difflib
import re
from collections.abc import Callable
from contextvars import ContextVar
from time import thread_time
from typing import TypeVar

from msgspec import Struct

from hermes.domain.errors import UsageError

MAX_SECONDS = 3.0
_T = TypeVar("_T")
_until: ContextVar[float] = ContextVar("until")

_SIMILAR_ENOUGH = 0.85
_COMPARED_LINE = 300
_COMPARED_LINES = 5_000
_COMPARED_MIDDLES = 100_000
"""Characters; comparing takes the square of them."""

_PLAIN = str.maketrans(
    {
        "\u2018": "'", "\u2019": "'", "\u201a": "'", "\u201c": '"', "\u201d": '"', "\u201e": '"',
        "\u2010": "-", "\u2011": "-", "\u2012": "-", "\u2013": "-", "\u2014": "-", "\u2212": "-",
        "\u00a0": " ", "\u2009": " ", "\u202f": " ", "\u3000": " ", "\u200b": None,
        "\ufeff": None, "\u2026": "...",
    }
)  # fmt: skip
_ESCAPED = re.compile(r'\\([nt"\'\\])')
_UNESCAPED = {"n": "\n", "t": "\t", '"': '"', "'": "'", "\\": "\\"}


class FuzzyMatch(Struct, frozen=True, kw_only=True):
    """Where a text was found, as half-open spans of characters."""

    strategy: str
    spans: tuple[tuple[int, int], ...]


def bounded(work: Callable[..., _T], *args: object, **kwargs: object) -> _T:
    """Do `work` in a thread of its own, with an end to what it searches."""
    _until.set(thread_time() + MAX_SECONDS)
    return work(*args, **kwargs)


def _in_time() -> None:
    if thread_time() > _until.get(float("inf")):
        raise UsageError(
            "The text takes too long to find.", hint="Quote fewer lines, or use the terminal."
        )


def find(text: str, wanted: str) -> FuzzyMatch | None:
    """Return the places that `wanted` may mean, by the strictest strategy that finds one."""
    exact = _occurrences(text, wanted)
    if exact:
        return FuzzyMatch(strategy="exact", spans=tuple(exact))
    if not wanted.strip():
        return None
    found = _by_lines(text, wanted)
    if found is None and (spans := _occurrences(text, unescape(wanted))):
        return FuzzyMatch(strategy="escapes", spans=tuple(spans))
    return found


def unescape(text: str) -> str:
    """Return `text` with one level of escapes removed."""
    return _ESCAPED.sub(lambda match: _UNESCAPED[match[1]], text)


def find_lines(lines: list[str], wanted: list[str], start: int = 0) -> tuple[str, list[int]]:
    """Return the strictest line-wise strategy that finds `wanted`, and the lines it starts at."""
    for name, normalise in _NORMALISERS:
        needle = [normalise(line) for line in wanted]
        if not any(needle):
            continue
        _in_time()
        hits = occurrences([normalise(line) for line in lines[start:]], needle)
        if hits:
            return name, [start + hit for hit in hits]
    return "", []


def occurrences(lines: list[str], wanted: list[str]) -> list[int]:
    """Return every line at which `wanted` begins."""
    hits: list[int] = []
    first, count = wanted[0], len(wanted)
    for index in range(len(lines) - count + 1):
        if lines[index] == first:
            _in_time()
            if lines[index : index + count] == wanted:
                hits.append(index)
    return hits


def reindent(block: list[str], wanted: list[str], matched: list[str]) -> list[str]:
    """Shift `block` by as much as the matched lines are indented differently."""
    pairs = [(w, m) for w, m in zip(wanted, matched, strict=False) if w.strip() and m.strip()]
    if not pairs:
        return block
    theirs, ours = _indent(pairs[0][0]), _indent(pairs[0][1])
    if theirs == ours:
        return block
    return [ours + line[len(theirs) :] if line.startswith(theirs) and line.strip() else line
            for line in block]  # fmt: skip


def nearest_line(text: str, wanted: str) -> tuple[int, str] | None:
    """Return the number and text of the line most like the first line of `wanted`."""
    first = next((line.strip() for line in wanted.splitlines() if line.strip()), "")
    lines = text.splitlines()[:_COMPARED_LINES]
    hay = [line.strip()[:_COMPARED_LINE] for line in lines]
    matches = difflib.get_close_matches(first[:_COMPARED_LINE], hay, n=1, cutoff=0.6)
    for number, line in enumerate(lines, 1):
        if matches and hay[number - 1] == matches[0]:
            return number, line
    return None


def _occurrences(text: str, wanted: str) -> list[tuple[int, int]]:
    """Return every occurrence, overlapping ones too: those are an ambiguity."""
    spans: list[tuple[int, int]] = []
    at = text.find(wanted) if wanted else -1
    while at >= 0:
        _in_time()
        spans.append((at, at + len(wanted)))
        at = text.find(wanted, at + 1)
    return spans


def _by_lines(text: str, wanted: str) -> FuzzyMatch | None:
    lines = text.split("\n")
    needle = wanted.split("\n")
    closed = len(needle) > 1 and needle[-1] == ""
    if closed:
        needle.pop()
    strategy, hits = find_lines(lines, needle)
    if not hits:
        strategy, hits = "block_anchor", _anchored(lines, needle)
    if not hits:
        return None
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    spans = [_span(starts, hit, len(needle), len(text), closed=closed) for hit in hits]
    return FuzzyMatch(strategy=strategy, spans=tuple(spans))


def _span(
    starts: list[int], first: int, count: int, length: int, *, closed: bool
) -> tuple[int, int]:
    end = starts[first + count] - (0 if closed else 1)
    return starts[first], min(end, length)


def _anchored(lines: list[str], needle: list[str]) -> list[int]:
    """Return blocks whose ends are as wanted and whose middle is nearly so."""
    if len(needle) < 3 or len(needle[0].strip()) < 4 or not needle[-1].strip():
        return []
    first, last, middle = needle[0].strip(), needle[-1].strip(), "\n".join(needle[1:-1])
    hits: list[int] = []
    compared = 0
    for index in range(len(lines) - len(needle) + 1):
        end = index + len(needle) - 1
        if lines[index].strip() == first and lines[end].strip() == last:
            compared += len(middle)
            if compared > _COMPARED_MIDDLES:
                return []
            similar = difflib.SequenceMatcher(None, middle, "\n".join(lines[index + 1 : end]))
            if similar.ratio() >= _SIMILAR_ENOUGH:
                hits.append(index)
    return hits


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _collapsed(line: str) -> str:
    return " ".join(line.split())


def _plain(line: str) -> str:
    return _collapsed(line.translate(_PLAIN))


_NORMALISERS: tuple[tuple[str, Callable[[str], str]], ...] = (
    ("trailing_space", str.rstrip),
    ("indentation", str.strip),
    ("whitespace", _collapsed),
    ("unicode", _plain),
)
