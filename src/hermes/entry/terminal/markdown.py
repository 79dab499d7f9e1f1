"""Blocks of Markdown as terminal text, rendered with rich.

The one module that imports rich; it is loaded when the first answer arrives or
in a quiet moment before. Links show their address, because not every terminal
can follow a hidden one.
"""

import re
from functools import cache
from io import StringIO
from typing import ClassVar

from markdown_it import MarkdownIt
from markdown_it.token import Token
from msgspec import Struct
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement
from rich.padding import Padding
from rich.syntax import Syntax
from rich.text import Text
from rich.theme import Theme

from hermes.entry.terminal.paint import TerminalKind, ascii_text
from hermes.entry.terminal.skins import Skin

LISTS = ("bullet_list_open", "ordered_list_open")
_OPENING = re.compile(r"(?:[ \t]*\n)* {0,3}(`{3,}(?=[^`\n]*\n)|~{3,})[^\n]*(?=\n)")


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
    tokens = _parser().parse(block.source)
    if block.number is not None and tokens and tokens[0].type == "ordered_list_open":
        tokens[0].attrs["start"] = block.number
    return tokens


class MarkdownStream:
    """Takes text, gives blocks; `open` is the text of the block that still grows.

    A code block may be long. Once the pending text is known to be one, only new
    lines are looked at, for the one that closes it.
    """

    def __init__(self) -> None:
        self._pending = ""
        self._closing: re.Pattern[str] | None = None
        """The line that closes the code block which is open."""
        self._looked = 0
        """Where the search for it goes on."""
        self._number: int | None = None
        self._in_list = False
        self._marker = ""

    @property
    def open(self) -> Block | None:
        if not self._pending.strip():
            return None
        return self._block(self._pending)

    def add(self, text: str) -> list[Block]:
        """Take more text and return the blocks that are final now."""
        self._pending += text
        if "\n" not in text or self._inside_code():
            return []
        blocks = self._cut()
        if opening := _OPENING.match(self._pending):
            mark = opening[1]
            self._closing = re.compile(rf"\n {{0,3}}{mark[0]}{{{len(mark)},}}[ \t]*\n")
            self._looked = opening.end()
        return blocks

    def tail(self, lines: int) -> Block | None:
        """Return `open` for a preview of so many lines: of code, only the last of them."""
        if self._closing is None or self._pending.count("\n") <= lines + 1:
            return self.open
        opening = _OPENING.match(self._pending)
        assert opening is not None
        last = self._pending.rsplit("\n", lines + 1)[1:]
        return self._block("\n".join([opening[0], *last]))

    def _inside_code(self) -> bool:
        if self._closing is None:
            return False
        closed = self._closing.search(self._pending, self._looked)
        self._looked = self._pending.rfind("\n")
        if closed is not None:
            self._closing = None
        return closed is None

    def end(self) -> list[Block]:
        blocks = self._cut()
        if self._pending.strip():
            blocks.append(self._block(self._pending))
        self._pending, self._number, self._in_list, self._marker = "", None, False, ""
        self._closing = None
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


TAB = 4


class _Heading(Heading):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        text = self.text
        text.justify = "left"
        yield text


class _CodeBlock(CodeBlock):
    """Code without a background, so that copying it copies nothing else."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).rstrip("\n").expandtabs(TAB)
        syntax = Syntax(
            code,
            self.lexer_name,
            theme=self.theme,
            word_wrap=True,
            background_color="default",
            padding=0,
        )
        yield Padding(syntax, (0, 0, 0, 2))


class _Blocks(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _Heading,
        "fence": _CodeBlock,
        "code_block": _CodeBlock,
    }


class MarkdownRenderer:
    def __init__(self, skin: Skin, kind: TerminalKind) -> None:
        self._skin = skin
        self._kind = kind
        accent = skin.colors.ui_accent or "none"
        self._theme = Theme(
            {
                "markdown.code": f"bold {accent}" if accent != "none" else "bold",
                "markdown.code_block": "none",
                "markdown.h1": f"bold {skin.colors.banner_title or ''}".strip(),
                "markdown.h2": f"bold {skin.colors.banner_title or ''}".strip(),
                "markdown.h3": "bold",
                "markdown.link": accent,
                "markdown.link_url": "dim",
                "markdown.item.bullet": accent,
                "markdown.item.number": accent,
                "markdown.block_quote": "italic",
            }
        )

    def render(self, block: Block, cells: int) -> list[str]:
        """Return the lines of a block, trailing blanks removed."""
        document = _Blocks("", code_theme=self._skin.code_theme, hyperlinks=False)
        document.parsed = _plain_links(parse_markdown(block))
        lines = [line.rstrip() for line in self._print(document, cells).split("\n")]
        while lines and not lines[-1]:
            lines.pop()
        while lines and not lines[0]:
            lines.pop(0)
        return lines

    def _print(self, document: Markdown | Text, cells: int) -> str:
        out = StringIO()
        console = Console(
            file=out,
            width=max(20, cells),
            force_terminal=True,
            color_system=self._kind.colours.value,
            legacy_windows=False,
            highlight=False,
            emoji=False,
            theme=self._theme,
            _environ={},
        )
        console.print(document, end="")
        text = out.getvalue()
        return text if self._kind.unicode else ascii_text(text)


def _plain_links(tokens: list[Token]) -> list[Token]:
    """Unwrap links whose text is their address: it need not be shown twice."""
    for token in tokens:
        if token.children:
            token.children = _unwrapped(token.children)
    return tokens


def _unwrapped(children: list[Token]) -> list[Token]:
    kept: list[Token] = []
    position = 0
    while position < len(children):
        token = children[position]
        inner = children[position + 1 : position + 3]
        bare = (
            token.type == "link_open"
            and len(inner) == 2
            and inner[1].type == "link_close"
            and inner[0].content == str(token.attrs.get("href", "")).removeprefix("mailto:")
        )
        kept += [inner[0]] if bare else [token]
        position += 3 if bare else 1
    return kept
