"""Lines of text for the terminal at hand: what it can show, colours, widths.

`TerminalKind` is decided once from the environment. A `Painter` brings the
colours of a skin down to what there is, and characters down to ASCII where
there is no Unicode.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from functools import cache

from msgspec import Struct
from wcwidth import iter_graphemes

from hermes.entry.terminal.skins import Skin
from hermes.streaming.units import width

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def harmless(text: str) -> str:
    """Remove control characters other than line ends and tabs, and text-direction tricks."""
    return text if text.isprintable() and text.isascii() else _CONTROL.sub("", text)


class Colours(StrEnum):
    NONE = "none"
    SIXTEEN = "16"
    MANY = "256"
    TRUE = "true"


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
        unicode=not dumb and _is_utf8(environ, encoding),
        cursor=is_tty and not dumb,
    )


def _colours(environ: Mapping[str, str], term: str) -> Colours:
    if environ.get("NO_COLOR"):
        return Colours.NONE
    if environ.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return Colours.TRUE
    return Colours.MANY if "256" in term or term.endswith("-direct") else Colours.SIXTEEN


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


RESET = "\x1b[0m"
_HEX = re.compile("#[0-9a-fA-F]{6}")


class Painter:
    """Paints text in the colours of a skin, by their names in its palette."""

    def __init__(self, skin: Skin, kind: TerminalKind) -> None:
        self.skin = skin
        self.kind = kind

    def __call__(self, text: str, colour: str = "", *, bold: bool = False) -> str:
        if not self.kind.unicode:
            text = ascii_text(text)
        codes = self._codes(colour, bold=bold)
        if not codes or not text:
            return text
        return f"\x1b[{codes}m{text}{RESET}"

    def hex(self, colour: str) -> str:
        """Return `#rrggbb` for a colour of the palette; empty if there is none to use."""
        if self.kind.colours is Colours.NONE or not colour:
            return ""
        value = getattr(self.skin.colors, colour)
        assert isinstance(value, str)
        return value if _HEX.fullmatch(value) else ""

    def _codes(self, colour: str, *, bold: bool) -> str:
        if self.kind.colours is Colours.NONE:
            return ""
        codes = ["1"] if bold else []
        value = self.hex(colour)
        if value:
            codes.append(_codes(value, self.kind.colours))
        return ";".join(codes)


@cache
def _codes(value: str, colours: Colours) -> str:
    # Loaded with the first colour: a chat in a pipe has none.
    from rich.color import Color, ColorSystem  # noqa: PLC0415

    system = {
        Colours.SIXTEEN: ColorSystem.STANDARD,
        Colours.MANY: ColorSystem.EIGHT_BIT,
        Colours.TRUE: ColorSystem.TRUECOLOR,
    }[colours]
    return ";".join(Color.parse(value).downgrade(system).get_ansi_codes())


def cut(text: str, cells: int, *, ellipsis: str = "…") -> str:
    """Return `text`, shortened to at most `cells`."""
    if width(text) <= cells:
        return text
    room = cells - width(ellipsis)
    if room <= 0:
        return ellipsis[: max(0, cells)]
    return _fitting(text, room).rstrip() + ellipsis


def pad(text: str, cells: int) -> str:
    return text + " " * max(0, cells - width(text))


def wrap(text: str, cells: int) -> list[str]:
    """Break text into lines of at most `cells`, between words where possible."""
    lines: list[str] = []
    for paragraph in text.split("\n"):
        lines += _wrap_line(paragraph, max(1, cells))
    return lines


def _wrap_line(line: str, cells: int) -> list[str]:
    lines: list[str] = []
    rest = line
    while width(rest) > cells:
        head = _fitting(rest, cells) or rest[0]
        blank = head.rfind(" ")
        if blank > 0 and len(head) < len(rest) and rest[len(head)] != " ":
            head = head[:blank]
        lines.append(head.rstrip())
        rest = rest[len(head) :].lstrip(" ")
    return [*lines, rest]


def _fitting(text: str, cells: int) -> str:
    end = 0
    for character in iter_graphemes(text):
        cells -= width(character)
        if cells < 0:
            break
        end += len(character)
    return text[:end]
