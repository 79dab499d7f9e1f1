"""Markdown that arrives in pieces looks like Markdown that was there at once."""

import itertools
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.syntax import Syntax
from rich.text import Text

from hermes.domain.events import TextDelta
from hermes.entry.terminal.markdown import Block, MarkdownRenderer, MarkdownStream
from hermes.entry.terminal.paint import Colours, TerminalKind
from hermes.entry.terminal.render import RenderSettings, TurnRenderer
from hermes.entry.terminal.skins import load_skin

PLAIN = TerminalKind(colours=Colours.NONE, unicode=True, cursor=True)
RENDERER = MarkdownRenderer(load_skin("default"), PLAIN)

LINES = st.sampled_from(
    [
        "",
        "plain words",
        "more **bold** and `code`",
        "# heading",
        "## second",
        "---",
        "===",
        "- item",
        "- other item",
        "* star item",
        "  - nested",
        "  continued",
        "1. first",
        "2. second",
        "1. lazy number",
        "7) seventh",
        "   deeper words",
        "    indented code",
        "```python",
        "```",
        "~~~",
        "x = 1",
        "> quoted",
        "| a | b |",
        "|---|---|",
        "| 1 | 2 |",
        "<b>html</b>",
        "<div>",
        "[x]: http://127.0.0.1/",
        "see [x] and [y](http://127.0.0.1/y)",
        "漢字 🙂",
    ]
)


def streamed(pieces: list[str]) -> list[Block]:
    stream = MarkdownStream()
    blocks = [block for piece in pieces for block in stream.add(piece)]
    return [*blocks, *stream.end()]


def text_of(blocks: list[Block]) -> str:
    """Return the text, without the blanks and lines that depend on the layout."""
    lines = [line for block in blocks for line in RENDERER.render(block, 60)]
    return re.sub(r"[\s─━]+", "", "".join(lines))


def cuts(text: str, positions: list[int]) -> list[str]:
    edges = [0, *sorted(position % (len(text) + 1) for position in positions), len(text)]
    return [text[start:end] for start, end in itertools.pairwise(edges)]


@settings(max_examples=300, deadline=None)
@given(st.lists(LINES, max_size=14), st.lists(st.integers(0, 500), max_size=12))
def test_streamed_text_is_the_text_of_the_whole(lines: list[str], positions: list[int]) -> None:
    text = "\n".join(lines)

    assert text_of(streamed(cuts(text, positions))) == text_of([Block(source=text)])


@given(st.lists(LINES, max_size=14))
def test_where_the_text_is_cut_makes_no_difference(lines: list[str]) -> None:
    text = "\n".join(lines)

    def sources(pieces: list[str]) -> str:
        return re.sub(r"\s", "", "".join(block.source for block in streamed(pieces)))

    assert sources([text]) == sources(list(text))


def test_a_paragraph_is_final_when_the_next_block_begins() -> None:
    stream = MarkdownStream()

    assert stream.add("first\n\n") == []
    assert [block.source.strip() for block in stream.add("second\n")] == ["first"]
    assert stream.open is not None
    assert stream.open.source.strip() == "second"


def test_items_of_a_list_come_one_by_one_with_their_numbers() -> None:
    blocks = streamed(["1. one\n", "1. two\n", "1. three\n"])

    rendered = ["".join(RENDERER.render(block, 40)).strip() for block in blocks]

    assert [" ".join(line.split()) for line in rendered] == ["1 one", "2 two", "3 three"]
    assert [block.follows for block in blocks] == [False, True, True]


def test_code_comes_line_by_line_blank_lines_with_what_follows_them() -> None:
    stream = MarkdownStream()

    before = stream.add("```python\nx = 1\n\n\ny = 2\n\n")
    live = stream.add("z =") or stream.open
    after = stream.add(" 3\n```\nafter\n")

    assert [block.code for block in before] == [("x = 1", "", "", "y = 2")]
    assert isinstance(live, Block)
    assert live.code == ("z =",)
    assert [block.code for block in after] == [("", "z = 3")]
    assert [block.follows for block in (*before, *after)] == [False, True]
    assert stream.open == Block(source="after\n")


def test_code_that_comes_line_by_line_has_the_colours_of_the_whole() -> None:
    kind = TerminalKind(colours=Colours.TRUECOLOR, unicode=True, cursor=True)
    doc = '"""Words\nx = 1\n' + "if while\n" * 300 + 'end."""\n'
    text = f"```python\ndef f():\n    {doc}    return 'a' + 1\n\n# last\nclass A: pass\n```\n"

    def coloured(pieces: list[str]) -> list[tuple[str, str]]:
        renderer = MarkdownRenderer(load_skin("default"), kind)
        lines = [line for block in streamed(pieces) for line in renderer.render(block, 60)]
        parts = re.findall(r"\x1b\[([0-9;]*)m|([^\x1b])", "\n".join(lines))
        shown, colour = [], ""
        for code, sign in parts:
            colour = code or colour
            shown += [(colour, sign)] if sign.strip() else []
        return shown

    assert coloured(text.splitlines(keepends=True)) == coloured([text])


def test_html_and_link_definitions_are_shown_as_written() -> None:
    shown = text_of(streamed(["<b>hi</b>\n\n[x]: http://127.0.0.1/\n"]))

    assert shown == "<b>hi</b>[x]:http://127.0.0.1/"


@pytest.mark.parametrize(
    "address", ["<http://127.0.0.1/a>", "[http://127.0.0.1/a](http://127.0.0.1/a)"]
)
def test_a_link_named_by_its_address_shows_it_once(address: str) -> None:
    assert text_of(streamed([address])) == "http://127.0.0.1/a"


def test_a_long_answer_is_streamed_in_linear_time() -> None:
    stream = MarkdownStream()
    paragraph = "Some words of a paragraph that goes on.\n\n"

    blocks = [block for _ in range(2000) for block in stream.add(paragraph)]

    assert len(blocks) == 1999
    assert len(stream.open.source if stream.open else "") < 100


def test_a_long_code_block_is_streamed_in_linear_time() -> None:
    stream = MarkdownStream()
    stream.add("```python\n")
    for number in range(20_000):
        [block] = stream.add(f"x = {number}\n")
        assert block.code == (f"x = {number}",)
        assert stream.open is None
    assert stream.add("```\nafter\n") == []


def test_only_the_last_line_of_a_long_code_block_is_laid_out_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lexed: list[int] = []
    highlight = Syntax.highlight

    def counted(syntax: Syntax, code: str, *rest: object) -> Text:
        lexed.append(code.count("\n"))
        return highlight(syntax, code)

    monkeypatch.setattr(Syntax, "highlight", counted)
    turn = TurnRenderer(load_skin("default"), PLAIN, RenderSettings())
    turn.event(TextDelta("```python\n"), 80)
    printed: list[str] = []
    for number in range(1_900):
        printed += turn.event(TextDelta(f"x = {number}"), 80)
        assert "".join(turn.live(80, 13)).strip() == f"x = {number}"
        printed += turn.event(TextDelta("\n"), 80)

    assert len(printed) == 1_900
    assert sum(lexed) < 4 * 1_900


def test_a_long_item_that_stays_open_is_parsed_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parsed: list[int] = []
    parse = MarkdownIt.parse

    def counted(parser: MarkdownIt, text: str, *rest: object) -> list[Token]:
        parsed.append(len(text))
        return parse(parser, text)

    monkeypatch.setattr(MarkdownIt, "parse", counted)
    stream = MarkdownStream()
    stream.add("1. Do this:\n\n   ```\n")
    for number in range(3_000):
        stream.add(f"   line number {number} of code\n")

    assert sum(parsed) < 30 * 3_000 * len("   line number 1000 of code")


@pytest.mark.parametrize("cells", [24, 40, 80])
@pytest.mark.parametrize("columns", [2, 4, 9])
def test_cells_of_a_table_wrap_and_lose_nothing(cells: int, columns: int) -> None:
    words = [f"averyveryverylongword{n}-without-a-break-in-it" for n in range(columns)]
    row = "|" + "|".join(words) + "|"
    source = f"{row.replace('avery', 'HEAD')}\n|{'---|' * columns}\n{row}\n"

    lines = RENDERER.render(Block(source=source), cells)
    letters = re.sub(r"[^\w]", "", "".join(lines))

    assert max(len(line) for line in lines) <= cells
    assert "…" not in "".join(lines)
    assert sorted(letters) == sorted(re.sub(r"[^\w]", "", row + row.replace("avery", "HEAD")))
