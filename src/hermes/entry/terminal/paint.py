"""Lines of text for the terminal at hand: what it can show, colours, widths.

`TerminalKind` is decided once from the environment. A `Painter` brings the
colours of a skin down to what there is, and characters down to ASCII where
there is no Unicode.
"""

import re
from collections.abc import Mapping
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING

import wcwidth
from msgspec import Struct

from hermes.domain.wording import harmless
from hermes.entry.terminal.skins import Skin
from hermes.streaming.units import width

if TYPE_CHECKING:
    from rich.style import Style


class Colours(Enum):
    """The colours of a terminal, under the names that rich has for them."""

    NONE = None
    STANDARD = "standard"
    EIGHT_BIT = "256"
    TRUECOLOR = "truecolor"


class TerminalKind(Struct, frozen=True, kw_only=True):
    colours: Colours
    unicode: bool
    cursor: bool
    """The cursor can be moved; without it the chat goes line by line."""


def terminal_kind(
    environ: Mapping[str, str], *, is_tty: bool, encoding: str | None
) -> TerminalKind:
    """Read NO_COLOR, TERM, COLORTERM and the locale."""
    term = environ.get("TERM", "")
    dumb = term in ("", "dumb", "unknown")
    return TerminalKind(
        colours=Colours.NONE if dumb or not is_tty else _colours(environ, term),
        unicode=_is_utf8(environ, encoding),
        cursor=is_tty and not dumb,
    )


def _colours(environ: Mapping[str, str], term: str) -> Colours:
    if environ.get("NO_COLOR"):
        return Colours.NONE
    if environ.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return Colours.TRUECOLOR
    return Colours.EIGHT_BIT if "256" in term or term.endswith("-direct") else Colours.STANDARD


def _is_utf8(environ: Mapping[str, str], encoding: str | None) -> bool:
    named = environ.get("LC_ALL") or environ.get("LC_CTYPE") or environ.get("LANG") or ""
    codeset = named.partition(".")[2].partition("@")[0]
    if codeset:
        return _plain(codeset) == "utf8"
    if environ.get("LC_ALL") in ("C", "POSIX"):
        return False
    return _plain(encoding or "") == "utf8"


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


_ASCII = str.maketrans("❯⚕┊•·─━│▌▏↑↓❔“”‘’–—", ">*|*---|||^v?\"\"''--") | {
    ord("…"): "...",
    ord("→"): "->",
    ord("✓"): "ok",
    ord("✗"): "x",
}


def ascii_text(text: str) -> str:
    translated = text.translate(_ASCII)
    return translated.encode("ascii", "replace").decode("ascii")


_HEX = re.compile("#[0-9a-fA-F]{6}")


class Painter:
    """Paints text in the colours of a skin, by their names in its palette.

    Whatever it paints is made harmless: nothing in it reaches the terminal as a command.
    """

    def __init__(self, skin: Skin, kind: TerminalKind) -> None:
        self.skin = skin
        self.kind = kind

    def __call__(self, text: str, colour: str = "") -> str:
        text = harmless(text) if self.kind.unicode else ascii_text(harmless(text))
        value = self.hex(colour)
        return _style(value, self.kind.colours).render(text) if value else text

    def hex(self, colour: str) -> str:
        """Return `#rrggbb` for a colour of the palette; empty if there is none to use."""
        if self.kind.colours is Colours.NONE or not colour:
            return ""
        value: str = getattr(self.skin.colors, colour)
        return value if _HEX.fullmatch(value) else ""


@cache
def _style(value: str, colours: Colours) -> "Style":
    # Loaded with the first colour: a chat in a pipe has none.
    from rich.color import Color, ColorSystem  # noqa: PLC0415
    from rich.style import Style  # noqa: PLC0415

    return Style(color=Color.parse(value).downgrade(ColorSystem[colours.name]))


def cut(text: str, cells: int) -> str:
    if width(text) <= cells:
        return text
    return wcwidth.clip(text, 0, cells - 1).rstrip() + "…" if cells > 0 else ""


_LONG_WORD = re.compile(r"\S{500}|\s{500}")
LONG_TEXT = 20_000


def wrap(text: str, cells: int) -> list[str]:
    """Break text into lines of at most `cells`, between words where possible.

    Very long words and texts are cut without looking for words: that takes time in
    proportion to their length.
    """
    lines: list[str] = []
    cells = max(1, cells)
    for paragraph in text.split("\n"):
        if len(paragraph) <= cells and paragraph.isascii() and paragraph.isprintable():
            lines.append(paragraph.rstrip())
        elif len(text) > LONG_TEXT or _LONG_WORD.search(paragraph):
            step = cells if paragraph.isascii() else max(1, cells // 2)
            lines += [paragraph[at : at + step] for at in range(0, len(paragraph), step)] or [""]
        else:
            lines += wcwidth.wrap(
                paragraph, cells, replace_whitespace=False, break_on_hyphens=False
            ) or [""]
    return lines
