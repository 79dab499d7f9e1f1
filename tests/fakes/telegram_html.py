"""Telegram's HTML, read as strictly as the Bot API reads it."""

import html
import re

__all__ = ["MarkupError", "plain_text", "utf16_length"]

_ALLOWED = {
    "b": (), "strong": (), "i": (), "em": (), "u": (), "ins": (), "s": (), "strike": (),
    "del": (), "tg-spoiler": (), "span": ("class",), "a": ("href",), "code": ("class",),
    "pre": (), "blockquote": ("expandable",), "tg-emoji": ("emoji-id",),
}  # fmt: skip
_TAG = re.compile(
    r"<(/?)([a-zA-Z0-9-]*)((?:\s+[a-zA-Z-]+(?:\s*=\s*(?:\"[^\"]*\"|'[^']*'|[^\s\"'>]+))?)*)\s*>"
)
_ATTRIBUTE = re.compile(r"([a-zA-Z-]+)(?:\s*=\s*(\"[^\"]*\"|'[^']*'|[^\s\"'>]+))?")
_ENTITY = re.compile(r"&(?:(lt|gt|amp|quot)|#(\d{1,7})|#x([0-9a-fA-F]{1,6}));?")


class MarkupError(Exception):
    """What the Bot API says about markup it cannot read."""

    def __init__(self, text: str) -> None:
        super().__init__(f"Bad Request: can't parse entities: {text}")


def utf16_length(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def plain_text(text: str) -> str:
    """Return what a person reads; `MarkupError` if the tags are wrong."""
    out: list[str] = []
    stack: list[str] = []
    at = 0
    while at < len(text):
        if text[at] != "<":
            end = text.find("<", at)
            end = len(text) if end < 0 else end
            out.append(_ENTITY.sub(_character, text[at:end]))
            at = end
            continue
        match = _TAG.match(text, at)
        offset = len(text[:at].encode())
        if match is None:
            raise MarkupError(f'Unsupported start tag "" at byte offset {offset}')
        _take_tag(match, stack, offset)
        at = match.end()
    if stack:
        raise MarkupError(f'Can\'t find end tag corresponding to start tag "{stack[-1]}"')
    return "".join(out)


def _take_tag(match: re.Match[str], stack: list[str], offset: int) -> None:
    closing, name, attributes = match.group(1), match.group(2).lower(), match.group(3)
    if closing:
        if not stack:
            raise MarkupError(f"Unexpected end tag at byte offset {offset}")
        if stack[-1] != name:
            raise MarkupError(
                f"Unmatched end tag at byte offset {offset}, "
                f'expected "</{stack[-1]}>", found "</{name}>"'
            )
        stack.pop()
        return
    if name not in _ALLOWED:
        raise MarkupError(f'Unsupported start tag "{name}" at byte offset {offset}')
    for attribute, value in _ATTRIBUTE.findall(attributes):
        if attribute.lower() not in _ALLOWED[name]:
            raise MarkupError(f'Attribute "{attribute}" not allowed in "{name}"')
        if name == "span" and value.strip("\"'") != "tg-spoiler":
            raise MarkupError('Tag "span" must have class "tg-spoiler"')
    if name in {"b", "i", "code", "pre", "blockquote", "a"} and name in stack:
        raise MarkupError(f'Nested tag "{name}" at byte offset {offset}')
    stack.append(name)


def _character(match: re.Match[str]) -> str:
    return html.unescape(match.group(0))
