"""The shapes a secret takes on its way out, and one pattern for all of them."""

import base64
import json
import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus

__all__ = ["forms_of", "pattern_of"]


def forms_of(value: str, min_length: int) -> Iterator[str]:
    """Yield `value` and every encoding of it that is worth looking for."""
    seen: set[str] = set()
    for form in _forms(value):
        if len(form) >= min_length and form not in seen:
            seen.add(form)
            yield form


def pattern_of(forms: Iterable[str]) -> str:
    """Return a pattern that matches the longest of `forms` at any position.

    Common prefixes are factored out (a trie), so the time does not grow with
    the number of forms that begin alike or differently.
    """
    trie = _Node()
    for form in forms:
        node = trie
        for character in form:
            node = node.setdefault(character, _Node())
        node[""] = _Node()
    return _render(trie)


class _Node(dict[str, "_Node"]):
    """What may follow; the empty string marks the end of a form."""


def _forms(value: str) -> Iterator[str]:
    yield value
    yield quote(value, safe="")
    yield quote(value)
    yield quote_plus(value)
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    yield repr(value)[1:-1]
    stripped = value.strip()
    yield stripped
    if "\n" in stripped:
        yield from (line.strip() for line in stripped.splitlines() if len(line.strip()) >= 16)
    if "," in stripped:
        # Several tokens in one variable: each is a secret of its own.
        yield from (part.strip() for part in stripped.split(",") if len(part.strip()) >= 12)
    yield from _base64_forms(value.encode("utf-8", "surrogatepass"))


def _base64_forms(data: bytes) -> Iterator[str]:
    """Yield the part of the base64 text that does not depend on the neighbours."""
    for offset in range(3):
        padded = b"\0" * offset + data
        start = (0, 2, 3)[offset]
        end = len(padded) * 8 // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield encode(padded).decode()[start:end]


def _render(node: _Node) -> str:
    literal = ""
    while len(node) == 1 and "" not in node:
        ((character, node),) = node.items()
        literal += character
    head = re.escape(literal)
    branches = [re.escape(c) + _render(child) for c, child in node.items() if c]
    if not branches:
        return head
    body = f"(?:{'|'.join(branches)})"
    return head + body + ("?" if "" in node else "")
