"""Text as platforms count it and as people see it.

Lengths in the units of a platform, and the places between which a character
that a person sees (a grapheme cluster) lies.
"""

import re
import unicodedata

from hermes.domain.platforms import LengthUnit
from hermes.domain.wording import clean_text

_UNWANTED = re.compile("[\x00-\x08\x0b-\x1f\x7f]")


def length(text: str, unit: LengthUnit) -> int:
    if unit is LengthUnit.CODEPOINTS or text.isascii():
        return len(text)
    encoding = "utf-16-le" if unit is LengthUnit.UTF16 else "utf-8"
    size = len(text.encode(encoding, "surrogatepass"))
    return size // 2 if unit is LengthUnit.UTF16 else size


def clean(text: str) -> str:
    """Return `text` without what no platform can carry: control characters, half characters."""
    if text.isprintable():
        return text
    return clean_text(_UNWANTED.sub("", text))


def is_blank(text: str) -> bool:
    """Return whether nothing of `text` can be seen."""
    return all(
        character.isspace() or unicodedata.category(character) in _INVISIBLE for character in text
    )


_INVISIBLE = frozenset({"Cf", "Cc", "Mn", "Me", "Zs", "Cn", "Co"})


def width(text: str) -> int:
    """Return how many columns `text` takes in a fixed-width font."""
    if text.isascii() and text.isprintable():
        return len(text)
    # Its tables are large: loaded with the first text that needs them.
    import wcwidth  # noqa: PLC0415

    return wcwidth.width(text, control_codes="ignore")


def fit(text: str, at: int) -> int:
    """Return the last position up to `at` at which `text` may be cut; at least 1."""
    if not 0 < at < len(text):
        return at
    before, after = text[at - 1], text[at]
    if before < "\u0300" and after < "\u0300" and before != "\r":
        return at
    import wcwidth  # noqa: PLC0415

    return wcwidth.grapheme_boundary_before(text, at + 1) or at
