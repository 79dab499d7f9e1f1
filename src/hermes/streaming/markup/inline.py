"""Emphasis, code, links and images inside running text.

One pass over the tokens with a stack of open delimiters, so that the time is
nearly linear whatever the text. Nodes know where they lie in the source, and
`open_at` says where something begins that has not ended yet: splitting and
streaming need both.
"""

import re
from bisect import bisect_left
from itertools import groupby

from msgspec import Struct

_TOKEN = re.compile(
    r"""\\(?P<escape>[!-/:-@\[-`{-~])
    |(?P<ticks>`+)
    |<(?P<auto>(?:https?://|mailto:|tg://|tel:)[^\s<>]+)>
    |(?P<url>https?://[^\s<>\[\]`|]+)
    |(?P<bracket>!?\[)
    |(?P<mark>\*{1,3}|_{1,3}|~~|\|\|)""",
    re.VERBOSE,
)
_DESTINATION = re.compile(
    r"""\([ \t]*<?(?P<url>[^\s<>()]*(?:\([^\s<>()]*\)[^\s<>()]*)*)>?"""
    r"""(?:[ \t]+(?:"[^"\n]*"|'[^'\n]*'))?[ \t]*\)"""
)
_MAX_DEPTH = 12
_STYLES = {"*": "em", "_": "em", "**": "strong", "__": "strong", "~~": "strike", "||": "spoiler"}


class Node(Struct, frozen=True, kw_only=True):
    kind: str
    """text, code, link, image, em, strong, strike or spoiler."""
    text: str = ""
    url: str = ""
    children: "tuple[Node, ...]" = ()


class MarkupSpan(Struct, frozen=True, kw_only=True):
    """Where something that should stay together lies in the source."""

    start: int
    end: int
    firm: bool
    """Code, links and addresses; styles may be cut if there is no other way."""


class Parsed(Struct, frozen=True, kw_only=True):
    nodes: tuple[Node, ...]
    spans: tuple[MarkupSpan, ...] = ()
    open_at: int | None = None
    """Where the first thing begins that is not closed by the end of the text."""


class _Open(Struct):
    """A delimiter that may open a style."""

    mark: str
    start: int
    nodes: list[Node]


def parse(text: str, *, links: bool = True) -> Parsed:
    return _Reader(text, links=links).read()


def text_of(nodes: tuple[Node, ...]) -> str:
    return "".join(node.text or text_of(node.children) or node.url for node in nodes)


class _Reader:
    def __init__(self, text: str, *, links: bool) -> None:
        self._text = text
        self._links = links
        self._nodes: list[Node] = []
        self._stack: list[_Open] = []
        self._spans: list[MarkupSpan] = []
        self._open: int | None = None
        self._ticks: dict[int, list[int]] | None = None
        self._brackets: dict[int, int] | None = None

    def read(self) -> Parsed:
        at, text = 0, self._text
        while (found := _TOKEN.search(text, at)) is not None:
            if found.start() > at:
                self._add_text(text[at : found.start()])
            at = self._token(found)
        if at < len(text):
            self._add_text(text[at:])
        while self._stack:
            self._give_up(self._stack.pop())
        nodes = tuple(_merged(self._nodes))
        return Parsed(nodes=nodes, spans=tuple(self._spans), open_at=self._open)

    def _token(self, found: re.Match[str]) -> int:
        start, end = found.span()
        match found.lastgroup:
            case "escape":
                self._add_text(found["escape"])
            case "ticks":
                return self._code(start, end)
            case "auto":
                self._add_link(found["auto"], start, end)
            case "url":
                end = start + len(found["url"].rstrip("*_~.,;:!?)'\""))
                end = max(end, start + len("http://"))
                self._add_text(self._text[start:end])
                self._spans.append(MarkupSpan(start=start, end=end, firm=True))
            case "bracket":
                return self._bracket(start, end)
            case _:
                self._mark(found["mark"], start, end)
        return end

    def _add_text(self, text: str) -> None:
        self._here().append(Node(kind="text", text=text))

    def _here(self) -> list[Node]:
        return self._stack[-1].nodes if self._stack else self._nodes

    def _add_link(self, url: str, start: int, end: int) -> None:
        if self._links:
            self._here().append(Node(kind="link", url=url, children=(Node(kind="text", text=url),)))
        else:
            self._add_text(url)
        self._spans.append(MarkupSpan(start=start, end=end, firm=True))

    def _unclosed(self, at: int) -> None:
        self._open = at if self._open is None else min(self._open, at)

    def _code(self, start: int, end: int) -> int:
        if self._ticks is None:
            self._ticks = {}
            for run in re.finditer("`+", self._text):
                self._ticks.setdefault(len(run[0]), []).append(run.start())
        size = end - start
        runs = self._ticks.get(size, [])
        after = bisect_left(runs, end)
        if after == len(runs):
            self._unclosed(start)
            self._add_text(self._text[start:end])
            return end
        close = runs[after]
        body = self._text[end:close].replace("\n", " ")
        if len(body) > 2 and body[0] == body[-1] == " " and body.strip():
            body = body[1:-1]
        self._here().append(Node(kind="code", text=body))
        self._spans.append(MarkupSpan(start=start, end=close + size, firm=True))
        return close + size

    def _bracket(self, start: int, end: int) -> int:
        closing = self._matches().get(end - 1)
        if closing is None or closing + 1 >= len(self._text):
            self._unclosed(start)
        elif self._text[closing + 1] == "(":
            found = _DESTINATION.match(self._text, closing + 1)
            if found is not None:
                self._link(start, end, closing, found)
                return found.end()
            if ")" not in self._text[closing + 1 :]:
                self._unclosed(start)
        self._add_text(self._text[start:end])
        return end

    def _link(self, start: int, end: int, closing: int, found: re.Match[str]) -> None:
        label, url = self._text[end:closing], found["url"]
        self._spans.append(MarkupSpan(start=start, end=found.end(), firm=True))
        if self._text[start] == "!":
            self._here().append(Node(kind="image", text=label, url=url))
            return
        if self._links:
            inside = parse(label, links=False).nodes
            self._here().append(Node(kind="link", url=url, children=inside))
        else:  # a link in a link is none, and its text is not read again
            self._add_text(label)

    def _matches(self) -> dict[int, int]:
        """Return which `]` closes which `[`, computed once."""
        if self._brackets is None:
            self._brackets, waiting = {}, []
            for found in re.finditer(r"\\.|[\[\]]", self._text, re.DOTALL):
                if found[0] == "[":
                    waiting.append(found.start())
                elif found[0] == "]" and waiting:
                    self._brackets[waiting.pop()] = found.start()
        return self._brackets

    def _mark(self, mark: str, start: int, end: int) -> None:
        before = self._text[start - 1 : start]
        after = self._text[end : end + 1]
        closes = bool(before) and not before.isspace()
        opens = bool(after) and not after.isspace()
        if mark[0] == "_":
            closes = closes and not after.isalnum()
            opens = opens and not before.isalnum()
        if closes and self._close(mark, end):
            return
        if not after:
            self._unclosed(start)
        if opens and len(self._stack) < _MAX_DEPTH:
            self._stack.append(_Open(mark, start, []))
        else:
            self._add_text(mark)

    def _close(self, mark: str, end: int) -> bool:
        depth = next((i for i in range(len(self._stack)) if self._stack[~i].mark == mark), None)
        if depth is None:
            return False
        for _ in range(depth):
            self._give_up(self._stack.pop())
        opened = self._stack.pop()
        if not opened.nodes:
            self._add_text(mark * 2)
            return True
        self._here().append(_styled(mark, tuple(_merged(opened.nodes))))
        self._spans.append(MarkupSpan(start=opened.start, end=end, firm=False))
        return True

    def _give_up(self, opened: _Open) -> None:
        """Turn an opener without a closer back into text."""
        self._unclosed(opened.start)
        self._add_text(opened.mark)
        self._here().extend(opened.nodes)


def _styled(mark: str, children: tuple[Node, ...]) -> Node:
    if len(mark) == 3:
        return Node(kind="strong", children=(Node(kind="em", children=children),))
    return Node(kind=_STYLES[mark], children=children)


def _merged(nodes: list[Node]) -> list[Node]:
    merged: list[Node] = []
    for is_text, run in groupby(nodes, key=lambda node: node.kind == "text"):
        found = list(run)
        merged += [Node(kind="text", text="".join(n.text for n in found))] if is_text else found
    return merged
