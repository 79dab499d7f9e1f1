"""Decodes the escapes of `$'…'`, `echo -e` and `printf`."""

import re

__all__ = ["decode_ansi_c", "decode_escapes", "render_printf"]

_ANSI_C = re.compile(
    r"\\(?:x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|([0-7]{1,3})|c(.)|(.))",
    re.DOTALL,
)
_ECHO = re.compile(
    r"\\(?:x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|0?([0-7]{1,3})|c(.)|(.))",
    re.DOTALL,
)
_SIMPLE = {
    "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t",
    "v": "\v", "\\": "\\", "'": "'", '"': '"', "?": "?",
}  # fmt: skip
_FORMAT = re.compile(r"%(?:%|[-+ #0]*\d*(?:\.\d+)?([bcdqsux]))")


def _replace(match: re.Match[str]) -> str:
    hexadecimal, short, long, octal, control, simple = match.groups()
    if simple is not None:
        return _SIMPLE.get(simple, "\\" + simple)
    if control is not None:
        return chr(ord(control) & 0x1F)
    if octal is not None:
        return chr(int(octal, 8) & 0xFF)
    code = int(hexadecimal or short or long, 16)
    return chr(code) if code <= 0x10FFFF else "?"


def decode_ansi_c(text: str) -> str:
    """Return what `$'text'` stands for."""
    return _ANSI_C.sub(_replace, text) if "\\" in text else text


def decode_escapes(text: str) -> str:
    """Return what `echo -e` prints for `text`."""
    return _ECHO.sub(_replace, text) if "\\" in text else text


def render_printf(template: str, values: list[str]) -> str:
    """Return what `printf template values…` prints, for the formats that matter here."""
    pending = list(values)
    template = decode_escapes(template)
    out: list[str] = []

    def one(match: re.Match[str]) -> str:
        if match.group(1) is None:
            return "%"
        value = pending.pop(0) if pending else ""
        return decode_escapes(value) if match.group(1) == "b" else value

    while True:
        before = len(pending)
        out.append(_FORMAT.sub(one, template))
        if not pending or len(pending) == before or len(out) > 64:
            return "".join(out)
