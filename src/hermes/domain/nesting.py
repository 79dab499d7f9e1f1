"""Nesting of JSON: how deep it may be.

What is nested almost too deeply to be read is read here and breaks there, where the stack is
deeper: so it is not taken at all, by any door.
"""

import re

MAX_NESTING = 100
"""Levels; nobody means more."""
_STRINGS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_SQUARE = bytes.maketrans(b"{}", b"[]")


def nested_too_deeply(text: bytes) -> bool:
    """Tell whether JSON, or what should be JSON, has more than `MAX_NESTING` levels."""
    if text.count(b"[") + text.count(b"{") <= MAX_NESTING:
        return False
    brackets, depth = _STRINGS.sub(b"", text).translate(_SQUARE, _NO_BRACKETS), 0
    while depth < MAX_NESTING:  # one level of innermost pairs after the other
        outer = brackets.replace(b"[]", b"")
        if len(outer) == len(brackets):
            break
        brackets, depth = outer, depth + 1
    return depth + brackets.count(b"[") > MAX_NESTING
