from hypothesis import given
from hypothesis import strategies as st

from hermes.execution.host.output import HeadTail, OutputFilter, Rolling

ESCAPES = [
    "\x1b[31m",
    "\x1b[0m",
    "\x1b]0;title\x07",
    "\x1b]8;;http://x\x1b\\",
    "\x1b(B",
    "\x1bM",
    "\x9b2K",
]
PIECES = st.lists(st.sampled_from(["plain", "ünïcödé", "日本", "\n", *ESCAPES]), max_size=30)


@given(PIECES, st.lists(st.integers(1, 7), min_size=1, max_size=20))
def test_text_is_the_same_however_the_reads_are_cut(pieces: list[str], sizes: list[int]) -> None:
    data = "".join(pieces).encode()
    text = OutputFilter()
    result, position, turn = "", 0, 0
    while position < len(data):
        size = sizes[turn % len(sizes)]
        result += text.feed(data[position : position + size])
        position, turn = position + size, turn + 1
    result += text.finish()
    assert result == "".join(piece for piece in pieces if piece not in ESCAPES)


@given(st.binary(max_size=200))
def test_any_bytes_become_text(data: bytes) -> None:
    text = OutputFilter()
    assert isinstance(text.feed(data) + text.finish(), str)


def test_an_unfinished_escape_is_let_through_when_it_is_too_long() -> None:
    text = OutputFilter()
    held = text.feed(b"\x1b]" + b"x" * 10_000)
    assert len(held + text.feed(b"more") + text.finish()) > 10_000


@given(st.lists(st.text(max_size=40), max_size=40), st.integers(10, 200))
def test_head_and_tail_are_bounded_and_whole_when_short(pieces: list[str], limit: int) -> None:
    store = HeadTail(limit)
    for piece in pieces:
        store.add(piece)
    text, missing = store.result()
    whole = "".join(pieces)
    size = len(whole.encode("utf-8", "replace"))
    assert missing == max(0, size - limit)
    if missing:
        head, mark, tail = text.partition(f"\n[... {missing} bytes cut out ...]\n")
        assert mark
        assert whole.startswith(head)
        assert whole.endswith(tail)
        assert len(head.encode()) <= limit * 0.4
        assert len(tail.encode()) <= limit * 0.6 + 1
    else:
        assert text == whole


@given(st.lists(st.text(max_size=30), max_size=40), st.integers(1, 100), st.integers(0, 500))
def test_rolling_offsets_count_from_the_start(pieces: list[str], limit: int, offset: int) -> None:
    store = Rolling(limit)
    for piece in pieces:
        store.add(piece)
    whole = "".join(pieces)
    text, end = store.since(offset)
    assert end == store.end == len(whole)
    assert text == whole[max(offset, len(whole) - limit) :]
