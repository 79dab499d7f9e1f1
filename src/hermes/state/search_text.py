"""Search, from the text that a person typed to matches, ranks and snippets.

Words match whole words, in any order; `"several words"` match in a row, `begin*`
matches beginnings, `OR` separates alternatives. Text without spaces between
words (Chinese, Japanese, Korean, Thai) and text that no whole word matches is
looked for as it stands. Case and accents do not matter.

The stores use this to rank too: they collect the newest matches (a bounded
number, so that a word in every message costs no more than a rare one) and the
best of those come first.
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

from msgspec import Struct

from hermes.domain.messages import AssistantMessage
from hermes.domain.wording import clean_text

MAX_CANDIDATES = 200
"""How many of the newest matches are ranked."""

MAX_SEARCHED = 20_000
"""How many characters of a message can be found; also in the schema."""

_MAX_QUERY = 500
_MAX_NEEDLES = 16
_AROUND = 60

_TOKEN = re.compile(r'"([^"]*)"?|(\S+)')
_WORD = re.compile(r"[^\W_]+")
_UNSPACED = (
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    r"\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]"
)
"""Compiled by the first text that is not ASCII: that takes longer than importing the module."""


class Needle(Struct, frozen=True):
    text: str
    """Folded. For words: the words of a phrase, joined by one space."""
    prefix: bool = False


class SearchPlan(Struct, frozen=True, kw_only=True):
    """One way to look: alternatives, each a set of needles that must all occur."""

    words: bool
    """True: whole words. False: substrings."""
    alternatives: tuple[tuple[Needle, ...], ...]

    def matches(self, folded: str) -> bool:
        """Tell whether folded text satisfies an alternative."""
        return any(
            all(_needle_pattern(needle, words=self.words).search(folded) for needle in needles)
            for needles in self.alternatives
        )


def plans_for(text: str) -> list[SearchPlan]:
    """Return the ways to look for `text`, best first; the first that finds something wins."""
    tokens = _tokens(clean_text(text))
    literal = _plan(tokens, words=False)
    if not text.isascii() and re.search(_UNSPACED, text):
        return [literal] if literal else []
    found = (_plan(tokens, words=True), literal)
    return [plan for plan in found if plan is not None]


def calls_text(message: AssistantMessage) -> str:
    """Return what can be searched of the tool calls of a message."""
    return " ".join(f"{call.name} {call.arguments}" for call in message.tool_calls)


def fold(text: str) -> str:
    """Return `text` without case and accents, character for character."""
    return text.lower() if text.isascii() else "".join(map(_fold_character, text))


def score(plan: SearchPlan, folded: str) -> float:
    """Rate a match: more different needles, more often, in shorter text."""
    found: dict[str, int] = {}
    for count, match in enumerate(_compiled(plan).finditer(folded)):
        if count == 50:
            break
        found[match.group()] = found.get(match.group(), 0) + 1
    length = 0.25 + 0.75 * len(folded) / 500
    return sum(times * 2.2 / (times + 1.2 * length) for times in found.values())


def snippet(plan: SearchPlan, text: str, folded: str) -> str:
    """Return the part of `text` around the first match, matches in brackets."""
    first = _compiled(plan).search(folded)
    start = 0 if first is None else max(0, first.start() - _AROUND)
    end = min(len(text), (start if first is None else first.end()) + _AROUND)
    pieces: list[str] = []
    at = start
    for match in _compiled(plan).finditer(folded, start, end):
        pieces += [text[at : match.start()], "[", text[match.start() : match.end()], "]"]
        at = match.end()
    inside = " ".join("".join([*pieces, text[at:end]]).split())
    return ("…" if start else "") + inside + ("…" if end < len(text) else "")


def _tokens(text: str) -> list[list[str]]:
    """Split into alternatives of tokens; quotes keep words together."""
    alternatives: list[list[str]] = [[]]
    usable = text.replace("\0", " ")[:_MAX_QUERY]
    for quoted, bare in _TOKEN.findall(usable):
        if bare == "OR":
            alternatives.append([])
        elif token := (quoted or bare).strip():
            alternatives[-1].append(token)
    return [tokens[:_MAX_NEEDLES] for tokens in alternatives[:_MAX_NEEDLES] if tokens]


def _plan(alternatives: list[list[str]], *, words: bool) -> SearchPlan | None:
    groups = (tuple(_needles(tokens, words=words)) for tokens in alternatives)
    kept = tuple(group for group in groups if group)
    return SearchPlan(words=words, alternatives=kept) if kept else None


def _needles(tokens: list[str], *, words: bool) -> Iterator[Needle]:
    for token in tokens:
        if not words:
            yield Needle(fold(token))
        elif found := _WORD.findall(fold(token)):
            yield Needle(" ".join(found), token.endswith("*"))


@lru_cache(maxsize=64)
def _compiled(plan: SearchPlan) -> re.Pattern[str]:
    """Return a pattern that finds any needle in folded text."""
    needles = {needle for group in plan.alternatives for needle in group}
    longest_first = sorted(needles, key=lambda needle: (-len(needle.text), needle.text))
    return re.compile("|".join(_expression(needle, words=plan.words) for needle in longest_first))


@lru_cache(maxsize=256)
def _needle_pattern(needle: Needle, *, words: bool) -> re.Pattern[str]:
    return re.compile(_expression(needle, words=words))


def _expression(needle: Needle, *, words: bool) -> str:
    if not words:
        return re.escape(needle.text)
    phrase = r"[\W_]+".join(map(re.escape, needle.text.split(" ")))
    return rf"(?<![^\W_]){phrase}" + ("" if needle.prefix else r"(?![^\W_])")


@lru_cache(maxsize=4096)
def _fold_character(character: str) -> str:
    base = unicodedata.normalize("NFD", character)[0]
    return base.lower()[0]
