"""Server-sent events come out the same however the bytes arrive."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.models.bounds import AnswerTooLarge, Bound
from hermes.models.sse import SseParser


def parse(*chunks: bytes) -> list[bytes]:
    parser = SseParser()
    events = [event for chunk in chunks for event in parser.feed(chunk)]
    return events + parser.close()


def test_the_usual_stream_gives_one_event_a_block() -> None:
    events = parse(b'data: {"a":1}\n\ndata: [DONE]\n\n')
    assert events == [b'{"a":1}', b"[DONE]"]


def test_event_names_are_passed_over() -> None:
    assert parse(b"event: ping\ndata: 1\n\ndata: 2\n\n") == [b"1", b"2"]


def test_comments_and_unknown_fields_are_ignored() -> None:
    assert parse(b": keep-alive\n\nid: 7\nretry: 10\ndata: x\n\n: bye\n\n") == [b"x"]


def test_several_data_lines_are_joined_by_a_line_feed() -> None:
    assert parse(b"data: a\ndata:b\ndata:  c\n\n") == [b"a\nb\n c"]


@pytest.mark.parametrize("eol", [b"\n", b"\r\n", b"\r"])
def test_every_kind_of_line_end_works(eol: bytes) -> None:
    lines = [b"event: e", b"data: 1", b"", b"data: 2", b"", b""]
    assert parse(eol.join(lines)) == [b"1", b"2"]


def test_a_byte_order_mark_is_skipped_even_in_pieces() -> None:
    assert parse(b"\xef", b"\xbb", b"\xbfdata: x\n\n") == [b"x"]


def test_an_event_is_dispatched_at_a_carriage_return_without_waiting_for_more() -> None:
    assert SseParser().feed(b"data: x\r\n\r") == [b"x"]


def test_a_last_event_without_its_blank_line_is_not_lost() -> None:
    assert parse(b"data: x\n\ndata: y\n") == [b"x", b"y"]


def test_an_endless_event_is_refused() -> None:
    parser = SseParser(Bound(100, "100 bytes"))
    with pytest.raises(AnswerTooLarge):
        parser.feed(b"data: " + b"x" * 200)


LINES = st.lists(
    st.sampled_from(
        [
            b"data: {}",
            b"data:x",
            b"data",
            b"event: e",
            b": c",
            b"",
            b"",
            b"data: \xc3\xa9",
            b"id: 1",
        ]
    ),
    max_size=25,
)
EOLS = st.sampled_from([b"\n", b"\r\n", b"\r"])


@given(
    lines=LINES, eols=st.lists(EOLS, min_size=25, max_size=25), bom=st.booleans(), data=st.data()
)
def test_any_split_yields_the_same_events(
    lines: list[bytes], eols: list[bytes], bom: bool, data: st.DataObject
) -> None:
    body = b"\xef\xbb\xbf" if bom else b""
    body += b"".join(line + eol for line, eol in zip(lines, eols, strict=False))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=12)))
    edges = [0, *cuts, len(body)]
    pieces = [body[a:b] for a, b in pairwise(edges)]
    assert parse(*pieces) == parse(body)
