"""Text that is made to be slow: what showing it costs grows with its length only."""

from collections.abc import Callable
from functools import partial

import pytest

from fakes.cpu import least_cpu
from hermes.config.secrets import RedactedStream, Redactor, Secrets
from hermes.domain.entry_points import entry_points
from hermes.models.think_tags import ThinkSplitter
from hermes.streaming.chat.media import MediaStream, extract
from hermes.streaming.markup import GROUP, load_dialect

SHAPES: dict[str, Callable[[int], str]] = {
    "heading and blanks": lambda n: "# a" + " " * n + "x",
    "heading and marks": lambda n: "# " + " #" * (n // 2) + "x",
    "brackets": lambda n: "[" * n,
    "double brackets": lambda n: "[[" * (n // 2),
    "stars": lambda n: "*" * n,
    "open styles": lambda n: "**a " * (n // 4),
    "ticks": lambda n: "".join("`" * (i % 50 + 1) + " " for i in range(n // 26)),
    "open links": lambda n: "[a](" * (n // 4),
    "quotes": lambda n: ">" * n,
    "wide table": lambda n: "|a" * (n // 8) + "|\n" + "|-" * (n // 8) + "|\n" + "|b" * (n // 8),
    "dashes": lambda n: "- " * (n // 2) + "x",
}


@pytest.mark.parametrize("dialect", sorted(entry_points(GROUP)))
@pytest.mark.parametrize("shape", SHAPES)
def test_four_times_the_text_costs_about_four_times_as_much(dialect: str, shape: str) -> None:
    render, make = load_dialect(dialect).render, SHAPES[shape]
    short, long = make(2_000), make(8_000)
    assert least_cpu(lambda: render(long)) < 10 * least_cpu(lambda: render(short))


@pytest.mark.parametrize("dialect", sorted(entry_points(GROUP)))
def test_links_in_links_are_shown_however_deep_they_are(dialect: str) -> None:
    deep = "[" * 800 + "the text" + "](https://a.example)" * 800
    assert "the text" in load_dialect(dialect).render(deep)


@pytest.mark.parametrize("complete", [True, False])
@pytest.mark.parametrize("piece", ["![", "![x](/", "MEDIA:/a", 'MEDIA:"/', "[[", "![x](<file:///"])
def test_files_are_found_in_text_full_of_beginnings_of_tags(piece: str, complete: bool) -> None:
    def find(text: str) -> object:
        return extract(text, complete=complete)

    short, long = piece * 2_000, piece * 8_000
    assert least_cpu(lambda: find(long)) < 10 * least_cpu(lambda: find(short))


REDACTOR = Redactor(Secrets({"KEY": "correct-horse-battery"}))
PIECES = ["[", "M", " ", "`", "<", "![", "![x](/", "[[as_document]]", "MEDIA:/a", "sk-", "eyJ"]
PIECES += ["<think>", "</", "\n<", "\n"]


def in_pieces(feed: Callable[[str], object], text: str) -> None:
    for at in range(0, len(text), 4):
        feed(text[at : at + 4])


@pytest.mark.parametrize("piece", PIECES)
def test_what_comes_in_pieces_is_looked_at_once(piece: str) -> None:
    def show(text: str) -> None:
        in_pieces(MediaStream().feed, text)

    def split(text: str) -> None:
        in_pieces(ThinkSplitter(lambda _: None, lambda _: None).feed, text)

    def redact(text: str) -> None:
        in_pieces(RedactedStream(REDACTOR).feed, text)

    for take in (show, split, redact):
        short = least_cpu(partial(take, piece * 10_000))
        assert least_cpu(partial(take, piece * 40_000)) < 10 * short


def test_signs_that_are_no_tags_come_as_they_came() -> None:
    told: list[str] = []
    splitter = ThinkSplitter(told.append, told.append)
    splitter.feed("a " + "<" * 5000)
    splitter.feed("<think>" * 500)
    splitter.close()
    assert len(told) == 2
