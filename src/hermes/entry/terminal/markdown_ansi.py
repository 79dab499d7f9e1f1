"""Blocks of Markdown as terminal text, rendered with rich.

The one module that imports rich; it is loaded when the first answer arrives or
in a quiet moment before. Links show their address, because not every terminal
can follow a hidden one.
"""

from io import StringIO
from typing import ClassVar, Literal

from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement
from rich.padding import Padding
from rich.syntax import Syntax
from rich.text import Text
from rich.theme import Theme

from hermes.entry.terminal.look import Colours, TerminalKind, ascii_text
from hermes.entry.terminal.markdown_stream import Block, parse_markdown
from hermes.entry.terminal.skins import Skin

__all__ = ["MarkdownRenderer"]

ColourSystem = Literal["standard", "256", "truecolor"]
_SYSTEMS: dict[Colours, ColourSystem | None] = {
    Colours.NONE: None,
    Colours.SIXTEEN: "standard",
    Colours.MANY: "256",
    Colours.TRUE: "truecolor",
}
TAB = 4


class _Heading(Heading):
    """A heading on the left, with its hashes gone."""

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
    """Renders blocks for one skin and one kind of terminal."""

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
            color_system=_SYSTEMS[self._kind.colours],
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
