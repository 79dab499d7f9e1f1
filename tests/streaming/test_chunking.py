"""Splitting text into messages."""

import re
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from wcwidth import iter_graphemes

from fakes.markdown_text import long_markdown
from fakes.surface import visible_length
from hermes.domain.entry_points import entry_points
from hermes.domain.platforms import LengthUnit
from hermes.streaming.chat.chunking import Chunker
from hermes.streaming.markup import GROUP, load_dialect
from hermes.streaming.units import clean, fit, length

limits = st.integers(60, 400)


def utf16(text: str) -> int:
    return length(text, LengthUnit.UTF16)


def split(text: str, limit: int, weigh: Callable[[str], int]) -> list[str]:
    chunker = Chunker(limit, weigh)
    chunker.add(text)
    return chunker.pieces


def letters(text: str) -> str:
    """What must not get lost: everything but white space, seen or not, and fences."""
    return re.sub(r"[\s\u200b`~]", "", text)


@pytest.mark.parametrize("name", sorted(entry_points(GROUP)))
@given(text=long_markdown, limit=limits)
@settings(max_examples=60, deadline=None)
def test_every_piece_fits_after_rendering(name: str, text: str, limit: int) -> None:
    dialect = load_dialect(name)
    for unit in (LengthUnit.UTF16, LengthUnit.CODEPOINTS):
        for piece in split(clean(text), limit, partial(dialect.weight, unit=unit)):
            assert visible_length(dialect, dialect.render(piece), unit) <= limit
            assert visible_length(dialect, dialect.plain(piece), unit) <= limit


@given(text=long_markdown, limit=limits)
@settings(max_examples=100, deadline=None)
def test_pieces_fit_in_bytes_too(text: str, limit: int) -> None:
    pieces = split(clean(text), limit, lambda part: length(part, LengthUnit.BYTES))
    assert all(len(piece.encode()) <= limit for piece in pieces)


@given(text=long_markdown.filter(lambda text: "|" not in text and "```" not in text), limit=limits)
@settings(max_examples=200, deadline=None)
def test_nothing_is_lost_but_white_space(text: str, limit: int) -> None:
    text = clean(text)
    assert letters("".join(split(text, limit, utf16))) == letters(text)


@given(
    lines=st.lists(st.from_regex(r"[a-z]{1,30}", fullmatch=True), min_size=1, max_size=80),
    limit=limits,
)
@settings(deadline=None)
def test_code_that_is_cut_stays_code_in_every_piece(lines: list[str], limit: int) -> None:
    text = "Intro.\n\n```python\n" + "\n".join(lines) + "\n```\nOutro."
    pieces = split(text, limit, utf16)
    code: list[str] = []
    for piece in pieces:
        assert piece.count("```") % 2 == 0
        for found in re.finditer(r"```python\n(.*?)\n?```", piece, re.DOTALL):
            code += found[1].split("\n")
    assert code == lines


@given(text=long_markdown, limit=limits, cuts=st.lists(st.integers(0, 3000), max_size=12))
@example(text="[" + "x" * 300, limit=100, cuts=[50])
@settings(max_examples=200, deadline=None)
def test_finished_pieces_never_change_while_text_arrives(
    text: str, limit: int, cuts: list[int]
) -> None:
    text = clean(text)
    borders = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    chunker, seen = Chunker(limit, utf16), list[str]()
    for start, end in pairwise(borders):
        chunker.add(text[start:end])
        assert chunker.finished[: len(seen)] == seen
        seen = list(chunker.finished)
    assert chunker.pieces == split(text, limit, utf16)


@given(
    words=st.lists(st.from_regex(r"[a-z]{1,9}[.,]?", fullmatch=True), max_size=40),
    link=st.sampled_from(
        [
            "[the link](https://example.org/path)",
            "`some code here`",
            "**bold words here**",
            "https://example.org/a/b",
        ]
    ),
    more=st.lists(st.from_regex(r"[a-z]{1,9}", fullmatch=True), max_size=40),
    limit=st.integers(100, 300),
)
@settings(max_examples=200, deadline=None)
def test_links_code_and_styles_stay_whole(
    words: list[str], link: str, more: list[str], limit: int
) -> None:
    pieces = split(" ".join([*words, link, *more]), limit, utf16)
    assert sum(link in piece for piece in pieces) == 1


@given(
    clusters=st.lists(
        st.sampled_from(["👩‍👩‍👧‍👦", "🇩🇪", "🇺🇸", "e\u0301", "👍🏽", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "❤️", "한", "x", "नि"]),
        max_size=120,
    ),
    limit=st.integers(40, 120),
)
@settings(max_examples=200, deadline=None)
def test_no_character_is_torn_apart(clusters: list[str], limit: int) -> None:
    pieces = split("".join(clusters), limit, utf16)
    assert "".join(pieces) == "".join(clusters)
    borders, at = {0}, 0
    for cluster in clusters:
        at += len(cluster)
        borders.add(at)
    at = 0
    for piece in pieces:
        at += len(piece)
        assert at in borders


@given(st.text(st.sampled_from("ab\u0301🇩🇪👍🏽\u200d👩❤️\ufe0f한ᄒ\u1161\r\n"), max_size=12))
def test_clusters_agree_with_the_reference(text: str) -> None:
    borders, at = {0, len(text)}, 0
    for cluster in iter_graphemes(text):
        at += len(cluster)
        borders.add(at)
    for at in range(1, len(text) + 1):
        assert fit(text, at) == max([border for border in borders if 0 < border <= at], default=at)


def test_paragraphs_are_preferred_to_lines_and_lines_to_sentences() -> None:
    text = "one " * 12 + "\n\n" + "two " * 12 + "\nthree. " + "four " * 20
    first, second, *_ = split(text, 120, utf16)
    assert first.split() == ["one"] * 12 + ["two"] * 12 or first.split() == ["one"] * 12
    assert not second.startswith("\n")
    assert split("A sentence. " * 9 + "word " * 9, 100, utf16)[0].endswith("sentence.")


def test_a_table_that_is_cut_has_its_header_in_each_piece() -> None:
    table = "| name | size |\n|---|---|\n" + "".join(f"| row{i} | {i} |\n" for i in range(40))
    pieces = split(table, 200, utf16)
    assert len(pieces) > 3
    assert all(piece.startswith("| name | size |\n|---|---|\n| row") for piece in pieces)
    assert re.findall(r"row\d+", "".join(pieces)) == [f"row{i}" for i in range(40)]


def test_a_closing_fence_right_behind_a_cut_leaves_no_empty_block() -> None:
    for size in range(60, 100):
        text = (
            "```\n" + "x" * size + "\n```\nAfter the code comes a rather long sentence, as usual."
        )
        for piece in split(text, 90, utf16):
            assert not re.search(r"```\n+```", piece)


def test_ten_megabytes_are_split_in_linear_time() -> None:
    assert (
        sum(len(piece) for piece in split("lorem ipsum dolor " * 58_000, 4096, utf16)) > 1_000_000
    )
