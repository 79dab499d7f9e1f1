"""Brace expansion: `{a,b}` and `{1..9}` on the unquoted text of a word."""

import re

from hermes.execution.policy.scope import COMPUTED
from hermes.execution.policy.syntax import Lit, Param, Part

__all__ = ["expand_braces"]

_MARK = 0xF0000
"""First private-use code point; each stands for a part that braces leave alone."""
_RANGE = re.compile(r"(-?\d+|[A-Za-z])\.\.(-?\d+|[A-Za-z])(?:\.\.-?\d+)?$")
_LIMIT = 2000
_LEFT_OVER = re.compile(r"\{[^{}]*\}[^{}]*,[^{}]*\}|\{[^}]*(?:\.\.|,)[^{]*\}")
_MAX_BRACES = 64


def expand_braces(parts: tuple[Part, ...]) -> tuple[list[tuple[Part, ...]], bool]:
    """Return the words that brace expansion makes of one word, and whether that is certain."""
    braces = sum(p.text.count("{") for p in parts if isinstance(p, Lit) and not p.quoted)
    if not braces:
        return [parts], True
    if braces > _MAX_BRACES:
        return [(Lit(COMPUTED),)], False
    kept: list[Part] = []
    pieces: list[str] = []
    for part in parts:
        if isinstance(part, Lit) and not part.quoted:
            pieces.append(part.text)
        else:
            pieces.append(chr(_MARK + len(kept)))
            kept.append(part)
    texts = _expand("".join(pieces))
    # Bash has its own ideas about `{a},b}`.
    certain = len(texts) < _LIMIT and not any(_LEFT_OVER.search(t) for t in texts)
    return [_decode(text, kept) for text in texts], certain


def _decode(text: str, kept: list[Part]) -> tuple[Part, ...]:
    parts: list[Part] = []
    run = ""
    for char in text:
        index = ord(char) - _MARK
        if 0 <= index < len(kept):
            if run:
                parts.append(Lit(run))
                run = ""
            parts.append(kept[index])
        elif not run and _lengthens(parts, char):
            return (Lit(COMPUTED),)
        else:
            run += char
    if run or not parts:
        parts.append(Lit(run))
    return tuple(parts)


def _lengthens(parts: list[Part], char: str) -> bool:
    """Return whether braces make `char` part of a variable's name: `$x{a,b}` is `$xa $xb`."""
    last = parts[-1] if parts else None
    if not isinstance(last, Param) or last.quoted or not last.bare:
        return False
    return last.name.isidentifier() and (char.isalnum() or char == "_")


def _expand(text: str) -> list[str]:
    start = text.find("{")
    while start >= 0:
        found = _alternatives(text, start)
        if found is not None:
            options, close = found
            out: list[str] = []
            tails = _expand(text[close + 1 :])
            for option in options:
                out.extend(text[:start] + head + tail for head in _expand(option) for tail in tails)
                if len(out) > _LIMIT:
                    break
            return out[:_LIMIT]
        start = text.find("{", start + 1)
    return [text]


def _alternatives(text: str, start: int) -> tuple[list[str], int] | None:
    """Return what stands between the braces at `start`, and where they close."""
    level, options, begin = 0, [], start + 1
    for index in range(start, len(text)):
        char = text[index]
        if char == "{":
            level += 1
        elif char == "," and level == 1:
            options.append(text[begin:index])
            begin = index + 1
        elif char == "}":
            level -= 1
            if level == 0:
                options.append(text[begin:index])
                if len(options) > 1:
                    return options, index
                ranged = _range(options[0])
                return None if ranged is None else (ranged, index)
    return None


def _range(text: str) -> list[str] | None:
    match = _RANGE.match(text)
    if match is None:
        return None
    low, high = match.groups()
    if low.lstrip("-").isdigit() and high.lstrip("-").isdigit():
        first, last = int(low), int(high)
        step = 1 if last >= first else -1
        return [str(n) for n in range(first, last + step, step)[:_LIMIT]]
    if len(low) == len(high) == 1:
        a, b = ord(low), ord(high)
        step = 1 if b >= a else -1
        return [chr(n) for n in range(a, b + step, step)]
    return None
