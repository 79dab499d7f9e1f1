"""Nesting and size of JSON: how deep it may be, and how many values it may have.

Decoding takes time and memory that grow with the values, and nobody else has the process
meanwhile: doors count them first. What is nested almost too deeply to be read is read here and
breaks there, where the stack is deeper: so it is not taken at all, by any door.
"""

import re

MAX_NESTING = 100
"""Levels; nobody means more."""
MAX_VALUES = 100_000
"""In the body of a request: lists, objects and what commas separate."""
_STRINGS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_SQUARE = bytes.maketrans(b"{}", b"[]")
_OPEN = ord("[")
_MUCH = 3 / 4
_RUNS = re.compile(rb"\[+|\]+")


def more_values_than(most: int, text: bytes) -> bool:
    """Tell whether JSON, or what should be, has more lists, objects and commas outside of texts."""
    return _opened(text, 0, len(text)) > most and values_in(text, most) > most


def values_in(text: bytes, most: int) -> int:
    """Count them, up to more than `most`."""
    found = end = 0
    for texts, string in enumerate(_STRINGS.finditer(text)):
        found += _opened(text, end, string.start())
        end = string.end()
        if found > most or texts > 2 * most:  # a value is two texts at most: its name and itself
            return most + 1
    return found + _opened(text, end, len(text))


def _opened(text: bytes, start: int, end: int) -> int:
    return sum(text.count(mark, start, end) for mark in (b",", b"[", b"{"))


def nested_too_deeply(text: bytes) -> bool:
    """Tell whether JSON, or what should be JSON, has more than `MAX_NESTING` levels."""
    if text.count(b"[") + text.count(b"{") <= MAX_NESTING:
        return False
    brackets, levels = _STRINGS.sub(b"", text).translate(_SQUARE, _NO_BRACKETS), 0
    # Innermost pairs go, as long as many do: few runs of brackets are left then to be walked.
    while len(outer := brackets.replace(b"[]", b"")) < len(brackets) * _MUCH:
        brackets, levels = outer, levels + 1
    deep = 0
    for run in _RUNS.finditer(brackets):
        length = run.end() - run.start()
        deep = deep + length if brackets[run.start()] == _OPEN else max(0, deep - length)
        if deep + levels > MAX_NESTING:
            return True
    return False
