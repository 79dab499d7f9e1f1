"""Text as platforms count it and as people see it.

Lengths in the units of a platform, and the places between which a character
that a person sees (a grapheme cluster) lies.
"""

import re
import unicodedata

from hermes.domain.ports.platform import LengthUnit

__all__ = ["between_graphemes", "clean", "fit", "is_blank", "length", "width"]

_UNWANTED = re.compile("[\x00-\x08\x0b-\x1f\x7f]")
_LONE = re.compile("[\ud800-\udfff]")
_ZWJ = "\u200d"


def length(text: str, unit: LengthUnit) -> int:
    """Return how long `text` is in `unit`."""
    if unit is LengthUnit.CODEPOINTS or text.isascii():
        return len(text)
    encoding = "utf-16-le" if unit is LengthUnit.UTF16 else "utf-8"
    size = len(text.encode(encoding, "surrogatepass"))
    return size // 2 if unit is LengthUnit.UTF16 else size


def clean(text: str) -> str:
    """Return `text` without what no platform can carry: control characters, half characters."""
    if text.isprintable():
        return text
    return _LONE.sub("\ufffd", _UNWANTED.sub("", text))


def is_blank(text: str) -> bool:
    """Return whether nothing of `text` can be seen."""
    return all(
        character.isspace() or unicodedata.category(character) in _INVISIBLE for character in text
    )


_INVISIBLE = frozenset({"Cf", "Cc", "Mn", "Me", "Zs", "Cn", "Co"})


def width(text: str) -> int:
    """Return how many columns `text` takes in a fixed-width font."""
    if text.isascii():
        return len(text)
    return sum(_columns(character) for character in text)


def _columns(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def between_graphemes(text: str, at: int) -> bool:
    """Return whether `text` may be cut before position `at`."""
    if at <= 0 or at >= len(text):
        return True
    before, after = text[at - 1], text[at]
    if before < "\u0300" and after < "\u0300":
        return not (before == "\r" and after == "\n")
    if _extends(after) or before == _ZWJ or _prepends(before):
        return False
    if _regional(before) and _regional(after):
        return _flags_complete(text, at)
    return not _hangul_joined(before, after)


def fit(text: str, at: int) -> int:
    """Return the last position up to `at` at which `text` may be cut; at least 1."""
    position = at
    while position > 1 and not between_graphemes(text, position):
        position -= 1
    return position if between_graphemes(text, position) else at


def _extends(character: str) -> bool:
    return (
        character == _ZWJ
        or unicodedata.category(character) in ("Mn", "Me", "Mc")
        or "\U0001f3fb" <= character <= "\U0001f3ff"
        or "\U000e0020" <= character <= "\U000e007f"
        or character in "\u200c\uff9e\uff9f"
    )


def _prepends(character: str) -> bool:
    return "\u0600" <= character <= "\u0605" or character in "\u06dd\u070f\u08e2"


def _regional(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def _flags_complete(text: str, at: int) -> bool:
    count = 0
    while at - count > 0 and _regional(text[at - count - 1]):
        count += 1
    return count % 2 == 0


def _hangul_joined(before: str, after: str) -> bool:
    left, right = _hangul(before), _hangul(after)
    if left == "L":
        return right in ("L", "V", "LV", "LVT")
    if left in ("V", "LV"):
        return right in ("V", "T")
    return left in ("T", "LVT") and right == "T"


def _hangul(character: str) -> str:
    code = ord(character)
    if 0xAC00 <= code <= 0xD7A3:
        return "LV" if (code - 0xAC00) % 28 == 0 else "LVT"
    for first, last, kind in _JAMO:
        if first <= code <= last:
            return kind
    return ""


_JAMO = (
    (0x1100, 0x115F, "L"),
    (0x1160, 0x11A7, "V"),
    (0x11A8, 0x11FF, "T"),
    (0xA960, 0xA97C, "L"),
    (0xD7B0, 0xD7C6, "V"),
    (0xD7CB, 0xD7FB, "T"),
)
