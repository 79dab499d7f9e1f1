"""Markdown that arrives in pieces looks like Markdown that was there at once."""

import itertools
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes.entry.terminal.markdown import Block, MarkdownRenderer, MarkdownStream
from hermes.entry.terminal.paint import Colours, TerminalKind
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

    whole = "".join(block.source for block in streamed([text]))
    characters = "".join(block.source for block in streamed(list(text)))

    assert re.sub(r"\s", "", whole) == re.sub(r"\s", "", characters) == re.sub(r"\s", "", text)


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
    assert [block.follows_item for block in blocks] == [False, True, True]


def test_an_open_fence_is_kept_together_until_it_closes() -> None:
    stream = MarkdownStream()

    before = stream.add("```python\nx = 1\n\n\ny = 2\n")
    after = stream.add("```\nafter\n")

    assert before == []
    assert [block.source for block in after] == ["```python\nx = 1\n\n\ny = 2\n```"]


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
    tails = []
    for number in range(20_000):
        assert stream.add(f"x = {number}\n") == []
        tail = stream.tail(5)
        assert tail is not None
        tails.append(tail.source)

    assert max(tail.count("\n") for tail in tails) <= 7
    assert tails[-1].startswith("```python\n")
    assert tails[-1].endswith("x = 19999\n")
    [code] = stream.add("```\nafter\n")
    assert code.source.count("\n") == 20_001
    assert stream.tail(5) == stream.open
