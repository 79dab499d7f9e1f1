"""`<think>` blocks are split off, wherever the fragments break."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.models.think_tags import ThinkSplitter


def split(*pieces: str) -> tuple[str, str]:
    text: list[str] = []
    thought: list[str] = []
    splitter = ThinkSplitter(text.append, thought.append)
    for piece in pieces:
        splitter.feed(piece)
    splitter.close()
    assert "".join(splitter.text) == "".join(text)
    return "".join(text), "".join(thought)


@pytest.mark.parametrize(
    ("stream", "text", "thought"),
    [
        ("plain", "plain", ""),
        ("<think>a</think>b", "b", "a"),
        ("<think>\na\n</think>\n\nb", "b", "a\n"),
        ("<thinking>a</thinking>b", "b", "a"),
        ("  <think>a</think> b", "  b", "a"),
        ("one\n<think>a</think>\ntwo", "one\ntwo", "a"),
        ("use `<think>` tags", "use `<think>` tags", ""),
        ("if a < b and b <= c", "if a < b and b <= c", ""),
        ("<th", "<th", ""),
        ("<think>never closed", "", "never closed"),
        ("<think>a < b</think>c", "c", "a < b"),
    ],
)
def test_thoughts_and_text_are_told_apart(stream: str, text: str, thought: str) -> None:
    assert split(stream) == (text, thought)
    assert split(*stream) == (text, thought)


@given(
    st.lists(
        st.sampled_from(["<think>", "</think>", "<", "th", "ink>", "a", "\n", " ", "</", "x<y"]),
        max_size=20,
    ),
    st.data(),
)
def test_any_split_gives_the_same(parts: list[str], data: st.DataObject) -> None:
    stream = "".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    edges = [0, *cuts, len(stream)]
    pieces = [stream[a:b] for a, b in pairwise(edges)]
    assert split(*pieces) == split(stream)


def test_a_block_that_the_template_opened_is_split_at_its_end() -> None:
    splitter = ThinkSplitter(lambda text: None, lambda text: None)
    splitter.feed("let me see\n</think>\n\nIt is 4.")
    assert splitter.unopened() == ("let me see", "It is 4.")


def test_talking_about_the_tag_is_not_thinking() -> None:
    splitter = ThinkSplitter(lambda text: None, lambda text: None)
    splitter.feed("close it with </think> at the end")
    assert splitter.unopened() is None
