"""Markdown that arrives in pieces, cut into blocks that will not change any more.

In CommonMark only the last open block can still be altered by what follows. So
after each line end the pending text is parsed, everything before its last
block is final and handed out, and only the rest is kept. Items of a top-level
list are handed out one by one, with the number they have in the whole list.

Link definitions and HTML are shown as they were written: a definition at the
end could otherwise change what has been printed long before.
"""

from functools import cache

from markdown_it import MarkdownIt
from markdown_it.token import Token
from msgspec import Struct

__all__ = ["Block", "MarkdownStream", "parse_markdown"]

LISTS = ("bullet_list_open", "ordered_list_open")


class Block(Struct, frozen=True, kw_only=True):
    """A piece of Markdown that can be rendered on its own."""

    source: str
    number: int | None = None
    """The number of its first item, if it continues an ordered list."""
    follows_item: bool = False
    """It continues a list: no blank line before it."""


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False})
    return parser.enable("strikethrough").enable("table").disable("reference")


def parse_markdown(block: Block) -> list[Token]:
    """Parse a block the way it stands in the whole text."""
    tokens = _parser().parse(block.source)
    if block.number is not None and tokens and tokens[0].type == "ordered_list_open":
        tokens[0].attrs["start"] = block.number
    return tokens


class MarkdownStream:
    """Takes text, gives blocks; `open` is the text of the block that still grows."""

    def __init__(self) -> None:
        self._pending = ""
        self._number: int | None = None
        self._in_list = False
        self._marker = ""

    @property
    def open(self) -> Block | None:
        """The block that is not finished yet, for a preview."""
        if not self._pending.strip():
            return None
        return self._block(self._pending)

    def add(self, text: str) -> list[Block]:
        """Take more text and return the blocks that are final now."""
        self._pending += text
        if "\n" not in text:
            return []
        return self._cut()

    def end(self) -> list[Block]:
        """Return what is left: nothing follows."""
        blocks = self._cut()
        if self._pending.strip():
            blocks.append(self._block(self._pending))
        self._pending, self._number, self._in_list, self._marker = "", None, False, ""
        return blocks

    def _cut(self) -> list[Block]:
        blocks: list[Block] = []
        while True:
            cut = self._next_cut()
            if cut is None:
                return blocks
            lines, number, in_list, marker = cut
            kept = self._pending.split("\n")
            source = "\n".join(kept[:lines])
            if source.strip():
                blocks.append(self._block(source))
            self._pending = "\n".join(kept[lines:])
            self._number, self._in_list, self._marker = number, in_list, marker

    def _block(self, source: str) -> Block:
        return Block(source=source, number=self._number, follows_item=self._in_list)

    def _next_cut(self) -> tuple[int, int | None, bool, str] | None:
        """Return how many lines are final, and how the list goes on after them."""
        # The last line may still grow into something else, so it decides nothing.
        body = self._pending.rpartition("\n")[0]
        tokens = _parser().parse(body)
        tops = [token for token in tokens if token.level == 0 and token.map]
        if not tops:
            return None
        first = tops[0]
        assert first.map is not None
        self._leave_list(first)
        if first.type in LISTS:
            items = [token for token in tokens[: _closing(tokens)] if _is_item(token)]
            if len(items) > 1 and items[1].map is not None:
                start = self._number
                if first.type == "ordered_list_open" and start is None:
                    start = int(first.attrs.get("start", 1))
                number = None if start is None else start + 1
                return items[1].map[0], number, True, first.markup
        if len(tops) > 1 and tops[1].map is not None:
            return tops[1].map[0], None, False, ""
        return None

    def _leave_list(self, first: Token) -> None:
        """Forget the list if the pending text does not go on with it."""
        if self._in_list and (first.type not in LISTS or first.markup != self._marker):
            self._number, self._in_list, self._marker = None, False, ""


def _is_item(token: Token) -> bool:
    return token.type == "list_item_open" and token.level == 1


def _closing(tokens: list[Token]) -> int:
    """Return the position just after the first top-level element."""
    depth = 0
    for position, token in enumerate(tokens):
        depth += token.nesting
        if depth == 0:
            return position + 1
    return len(tokens)
