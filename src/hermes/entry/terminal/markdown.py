"""Blocks of Markdown as terminal text, rendered with rich.

The one module that imports rich; it is loaded when the first answer arrives or
in a quiet moment before. Links show their address, because not every terminal
can follow a hidden one.
"""

import re
from collections.abc import Sequence
from functools import cache
from io import StringIO
from typing import ClassVar

from markdown_it import MarkdownIt
from markdown_it.token import Token
from msgspec import Struct
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement, TableElement
from rich.padding import Padding
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Span, Text
from rich.theme import Theme

from hermes.entry.terminal.paint import TerminalKind, ascii_text
from hermes.entry.terminal.skins import Skin

LISTS = ("bullet_list_open", "ordered_list_open")
_OPENING = re.compile(r"(?:[ \t]*\n)*( {0,3})(`{3,}(?=[^`\n]*\n)|~{3,})([^\n]*)\n")
PARSED_WHOLE = 4_000
"""A block that is longer and still open is looked at again when it has grown by a tenth."""
LONGEST_BLOCK = 16_000
"""A block that is longer is shown in parts: what one takes to show grows with its length."""


class Block(Struct, frozen=True, kw_only=True):
    """A piece of Markdown that can be rendered on its own."""

    source: str
    number: int | None = None
    """The number of its first item, if it continues an ordered list."""
    follows: bool = False
    """It continues a list or a code block: no blank line before it."""
    code: tuple[str, ...] | None = None
    """The lines, if it is a piece of a code block."""
    language: str = ""


class _Fence(Struct, frozen=True):
    """The code block that is open."""

    indent: int
    closing: re.Pattern[str]
    language: str


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
    """Takes text, gives blocks; `open` is the block that still grows.

    A code block may be long: its lines are given one by one as they come, so that only
    the last of them is open.
    """

    def __init__(self) -> None:
        self._pending = ""
        self._fence: _Fence | None = None
        self._begun = False
        """Something of the code block that is open has been given."""
        self._parsed = 0
        """How long the pending text was when it was looked at last."""
        self._number: int | None = None
        self._in_list = False
        self._marker = ""

    @property
    def open(self) -> Block | None:
        if self._fence is not None:
            line = self._pending.rpartition("\n")[2]
            closes = line.strip() and not line.strip("`~ ")
            return None if closes or not line else self._code([line], self._fence)
        if not self._pending.strip():
            return None
        return self._block(self._pending)

    def add(self, text: str) -> list[Block]:
        """Take more text and return the blocks that are final now."""
        blocks: list[Block] = []
        for at in range(0, len(text), PARSED_WHOLE):
            piece = text[at : at + PARSED_WHOLE]
            self._pending += piece
            blocks += self._final() if "\n" in piece else []
            if self._fence is None and len(self._pending) > LONGEST_BLOCK:
                blocks.append(self._part())
        return blocks

    def _part(self) -> Block:
        """Take as many lines off a block that is too long as are complete, or all of it."""
        lines, _, rest = self._pending.rpartition("\n")
        block = self._block(lines or rest)
        self._pending = rest if lines else ""
        self._parsed = 0
        return block

    def _final(self) -> list[Block]:
        blocks: list[Block] = []
        while True:
            if self._fence is not None:
                blocks += self._code_lines(self._fence)
                if self._fence is not None:
                    return blocks
            opening = _OPENING.match(self._pending)
            if opening is None:
                block = self._cut()
                if block is None:
                    return blocks
                blocks += [block] if block.source.strip() else []
                continue
            indent, mark, info = opening.groups()
            closing = re.compile(rf" {{0,3}}{mark[0]}{{{len(mark)},}}[ \t]*")
            language = info.strip().partition(" ")[0]
            self._fence = _Fence(len(indent), closing, language)
            self._pending = self._pending[opening.end() :]
            self._begun = self._in_list = False
            self._number, self._marker = None, ""

    def _code_lines(self, fence: _Fence) -> list[Block]:
        """Return the lines of code that are complete; blank ones wait for what follows."""
        *lines, rest = self._pending.split("\n")
        end = next((at for at, line in enumerate(lines) if fence.closing.fullmatch(line)), None)
        if end is not None:
            self._fence, rest = None, "\n".join([*lines[end + 1 :], rest])
            taken = lines[:end]
        else:
            last = max((at for at, line in enumerate(lines, 1) if line.strip()), default=0)
            rest = "\n" * (len(lines) - last) + rest
            taken = lines[:last]
        self._pending = rest
        blocks = [self._code(taken, fence)] if taken else []
        self._begun = self._begun or bool(taken)
        return blocks

    def _code(self, lines: list[str], fence: _Fence) -> Block:
        kept = [line[min(fence.indent, len(line) - len(line.lstrip(" "))) :] for line in lines]
        source, language = "\n".join(lines), fence.language
        return Block(source=source, code=tuple(kept), language=language, follows=self._begun)

    def end(self) -> list[Block]:
        self._pending += "\n"
        self._parsed = 0
        blocks = self._final()
        if self._fence is None and self._pending.strip():
            blocks.append(self._block(self._pending))
        self._pending, self._number, self._in_list, self._marker = "", None, False, ""
        self._fence = None
        return blocks

    def _cut(self) -> Block | None:
        """Take the first block off the pending text, if that is final."""
        if self._parsed >= PARSED_WHOLE and len(self._pending) < self._parsed * 1.1:
            return None
        cut = self._next_cut()
        self._parsed = len(self._pending) if cut is None else 0
        if cut is None:
            return None
        lines, number, in_list, marker = cut
        kept = self._pending.split("\n")
        block = self._block("\n".join(kept[:lines]))
        self._pending = "\n".join(kept[lines:])
        self._number, self._in_list, self._marker = number, in_list, marker
        return block

    def _block(self, source: str) -> Block:
        return Block(source=source, number=self._number, follows=self._in_list)

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
            if len(items) > 1 and items[-1].map is not None:
                start = self._number
                if first.type == "ordered_list_open" and start is None:
                    start = int(first.attrs.get("start", 1))
                number = None if start is None else start + len(items) - 1
                return items[-1].map[0], number, True, first.markup
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
NARROWEST = 6
"""Cells that a column of a table needs, its border included."""


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


class _Table(TableElement):
    """A table whose cells wrap; where its columns get too narrow, one line for each cell."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rows = self.body.rows if self.body is not None else []
        head = self.header.row.cells if self.header and self.header.row else []
        if len(head) * NARROWEST > options.max_width:
            for number, row in enumerate(rows):
                yield from [Text("")] if number else []
                for name, cell in zip(head, row.cells, strict=False):
                    yield Text.assemble(name.content, ": ", cell.content)
            return
        for table in super().__rich_console__(console, options):
            assert isinstance(table, Table)
            for column in table.columns:
                column.overflow = "fold"
            yield table


class _Blocks(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _Heading,
        "fence": _CodeBlock,
        "code_block": _CodeBlock,
        "table_open": _Table,
    }


class _Highlighter:
    """Colours code that comes piece by piece; what stands before a piece counts.

    A probe behind the piece shows in which state the lexer is left. If that is how it
    begins, nothing that came before matters any more; inside of a string or comment of
    several lines the line with which this began is kept.
    """

    PROBE = "probe = 1"
    KEPT_LINES = 200

    def __init__(self, language: str, theme: str) -> None:
        self.language = language
        # Named lexers are looked up again for every piece.
        lexer = Syntax("", language or "text").lexer or "text"
        self._syntax = Syntax("", lexer, theme=theme, word_wrap=True, background_color="default")
        self._before: list[str] = []
        self._idle = self._highlight([])[-1].spans

    def lines(self, code: Sequence[str], *, final: bool) -> list[Text]:
        lines = [line.expandtabs(TAB) for line in code]
        found = self._highlight([*self._before, *lines])
        if final:
            self._keep([*self._before, *lines], found[-1].spans)
        return found[-1 - len(lines) : -1]

    def _keep(self, lines: list[str], state: list[Span]) -> None:
        if state == self._idle or len(lines) > self.KEPT_LINES:
            lines = []
        elif len(lines) > 1 and self._highlight(lines[:1])[-1].spans == state:
            lines = lines[:1]
        self._before = lines

    def _highlight(self, lines: Sequence[str]) -> list[Text]:
        whole = self._syntax.highlight("\n".join([*lines, self.PROBE]))
        return list(whole.split("\n"))


class MarkdownRenderer:
    def __init__(self, skin: Skin, kind: TerminalKind) -> None:
        self._skin = skin
        self._kind = kind
        self._highlighter = _Highlighter("", skin.code_theme)
        self._console: Console | None = None
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

    def render(self, block: Block, cells: int, *, final: bool = True) -> list[str]:
        """Return the lines of a block, trailing blanks removed; one that is not final comes again.

        Pieces of a code block have to come in their order.
        """
        if block.code is not None:
            document: RenderableType = self._code(block, block.code, final=final)
        else:
            document = _Blocks("", code_theme=self._skin.code_theme, hyperlinks=False)
            document.parsed = _plain_links(parse_markdown(block))
        lines = [line.rstrip() for line in self._print(document, cells).split("\n")]
        while lines and not lines[-1]:
            lines.pop()
        while lines and not lines[0] and not (block.code and block.follows):
            lines.pop(0)
        return lines

    def _code(self, block: Block, code: Sequence[str], *, final: bool) -> RenderableType:
        if self._highlighter.language != block.language or (final and not block.follows):
            self._highlighter = _Highlighter(block.language, self._skin.code_theme)
        lines = self._highlighter.lines(code, final=final)
        return Padding(Group(*lines), (0, 0, 0, 2))

    def _print(self, document: RenderableType, cells: int) -> str:
        console = self._console
        if console is None or console.width != max(20, cells):
            console = self._console = self._made(max(20, cells))
        with console.capture() as printed:
            console.print(document, end="")
        text = printed.get()
        return text if self._kind.unicode else ascii_text(text)

    def _made(self, cells: int) -> Console:
        return Console(
            file=StringIO(),
            width=cells,
            height=cells,  # of no use here, but not to be asked for each time
            force_terminal=True,
            color_system=self._kind.colours.value,
            legacy_windows=False,
            highlight=False,
            emoji=False,
            theme=self._theme,
            _environ={},
        )


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
