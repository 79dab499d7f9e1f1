"""What a command looks like once nothing in it is invisible."""

import re
import unicodedata

from msgspec import Struct

__all__ = ["Cleaned", "clean"]

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e"
    "\u200b\u200c\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\uffff"
    "\U000e0000-\U000e007f]"
    "|(?<=[\x20-\x7e])\u200d|\u200d(?=[\x20-\x7e])"
)


class Cleaned(Struct, frozen=True):
    """The readings of a command."""

    text: str
    """As the shell reads it, without what no shell or person would see."""
    folded: str
    """With look-alike characters replaced by plain ones; often the same text."""
    odd: bool
    """Whether something invisible was removed."""


def clean(text: str) -> Cleaned:
    """Return the readings of `text`."""
    if text.isascii() and text.isprintable():
        return Cleaned(text, text, odd=False)
    text = text.replace("\r\n", "\n")
    visible = _INVISIBLE.sub("", _ANSI.sub("", text))
    folded = visible if visible.isascii() else unicodedata.normalize("NFKC", visible)
    folded = folded.replace("\u00a0", " ")
    return Cleaned(visible, folded, odd=visible != text)
