"""What the terminal at hand can show, decided once from the environment."""

import re
from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def harmless(text: str) -> str:
    """Remove control characters other than line ends and tabs, and text-direction tricks."""
    return text if text.isprintable() and text.isascii() else _CONTROL.sub("", text)


class Colours(StrEnum):
    """How many colours there are."""

    NONE = "none"
    SIXTEEN = "16"
    MANY = "256"
    TRUE = "true"


class TerminalKind(Struct, frozen=True, kw_only=True):
    """What the terminal can show."""

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


_ASCII = str.maketrans(
    {
        "❯": ">",
        "⚕": "*",
        "┊": "|",
        "•": "*",
        "·": "-",
        "…": "...",
        "─": "-",
        "━": "-",
        "│": "|",
        "▌": "|",
        "▏": "|",
        "→": "->",
        "↑": "^",
        "↓": "v",
        "✓": "ok",
        "✗": "x",
        "❔": "?",
        "“": '"',
        "”": '"',
        "‘": "'",
        "’": "'",
        "–": "-",
        "—": "-",
    }
)


def ascii_text(text: str) -> str:
    """Replace what a terminal without Unicode cannot show."""
    translated = text.translate(_ASCII)
    return translated.encode("ascii", "replace").decode("ascii")
