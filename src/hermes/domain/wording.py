"""Wording that every door shares: whole characters, one line, short numbers, how long ago."""

import re
from typing import Any

_DEEPEST = 300
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ufeff\uffa0]"
    "|[\ud800-\udfff\ufff9-\ufffb\U000e0000-\U000e0fff]"
)


def clean_text(text: str) -> str:
    """Replace half characters (lone surrogates): nothing can store or send them."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return re.sub("[\ud800-\udfff]", "\N{REPLACEMENT CHARACTER}", text)
    return text


def clean_value(value: Any, depth: int = 0) -> Any:
    """Replace half characters in what JSON can hold; what is nested too deep is left out."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict | list | tuple) and depth > _DEEPEST:
        return None
    if isinstance(value, dict):
        return {clean_text(key): clean_value(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean_value(item, depth + 1) for item in value]
    return value


def harmless(text: str) -> str:
    """Remove what a terminal would obey: control characters and text-direction tricks."""
    return text if text.isprintable() and text.isascii() else _CONTROL.sub("", text)


def visible(text: str) -> str:
    """Show what a screen would obey or swallow as escapes; line ends stay."""
    return _INVISIBLE.sub(lambda found: ascii(found[0])[1:-1], text).expandtabs(4)


def visible_line(text: str) -> str:
    return " ".join(visible(text).split())


def one_line(text: str, limit: int) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: max(limit - 1, 1)].rstrip() + "…"


def short_number(number: int) -> str:
    """Return `950`, `12.3k`, `1.2M`."""
    if number < 1000:
        return str(number)
    millions = number >= 999_500
    return f"{number / (1_000_000 if millions else 1000):.3g}{'M' if millions else 'k'}"


def long_time(seconds: float) -> str:
    if seconds >= 5400:
        return f"{seconds / 3600:.1f} hours".replace(".0 ", " ")
    if seconds >= 90:
        return f"{round(seconds / 60)} minutes"
    whole = round(seconds)
    return f"{whole} second" if whole == 1 else f"{whole} seconds"


def elapsed_words(seconds: float) -> str:
    """Return `4s`, `2m 05s`, `1h 02m`."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02}s"
    return f"{whole // 3600}h {whole % 3600 // 60:02}m"


def ago(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{max(0, seconds):.0f} s ago"
