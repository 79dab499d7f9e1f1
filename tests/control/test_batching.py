"""Messages that belong together are answered together, and only those."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hermes.control.lanes.batches import NO_BATCHING, BatchWindow, first_batch
from hermes.domain.inbound import Chat, ChatKind, InboundMessage, InboxEntry, Sender

WINDOW = BatchWindow(seconds=0.3, long_seconds=1.0, long_length=10, album_seconds=0.8)


def entry(
    number: int,
    at: float,
    text: str = "hi",
    *,
    sender: str = "ann",
    group: str | None = None,
    missed: bool = False,
) -> InboxEntry:
    message = InboundMessage(
        platform="telegram",
        account="bot",
        native_id=str(number),
        chat=Chat(kind=ChatKind.GROUP, id="1"),
        sender=Sender(id=sender),
        text=text,
        sent_at=at,
        group_id=group,
        missed=missed,
    )
    return InboxEntry(
        id=number, agent_id="main", session_key="k", session_id="s", message=message, admitted_at=at
    )


def ids(entries: list[InboxEntry]) -> list[int]:
    return [each.id for each in entries]


def test_what_follows_quickly_is_one_message() -> None:
    batch, wait = first_batch([entry(1, 0.0), entry(2, 0.2)], WINDOW, now=0.25)
    assert ids(batch) == [1, 2]
    assert 0 < wait <= 0.3


def test_what_is_said_to_another_bot_is_answered_by_that_bot() -> None:
    one, other = entry(1, 0.0), entry(2, 0.1)
    other = replace(other, message=replace(other.message, account="another"))
    assert ids(first_batch([one, other], WINDOW, now=0.2)[0]) == [1]


def test_a_pause_ends_a_message() -> None:
    batch, wait = first_batch([entry(1, 0.0), entry(2, 5.0)], WINDOW, now=5.0)
    assert (ids(batch), wait) == ([1], 0.0)


def test_a_long_text_is_given_more_time() -> None:
    batch, wait = first_batch([entry(1, 0.0, "x" * 10), entry(2, 0.9)], WINDOW, now=9.0)
    assert (ids(batch), wait) == ([1, 2], 0.0)


def test_an_album_stays_together() -> None:
    album = [entry(n, n * 0.7, "", group="a") for n in range(3)]
    assert ids(first_batch(album, WINDOW, now=9.0)[0]) == [0, 1, 2]


def test_what_was_missed_stands_alone_but_for_albums_and_split_texts() -> None:
    def together(*texts: str, group: str | None = None) -> list[int]:
        found = [entry(n, 0.0, text, group=group, missed=True) for n, text in enumerate(texts)]
        return ids(first_batch(found, WINDOW, now=9.0)[0])

    assert together("one", "two") == [0]
    assert together("", "", group="a") == [0, 1]
    assert together("x" * 10, "the rest") == [0, 1]
    live = [entry(1, 0.0, missed=True), entry(2, 0.1)]
    assert ids(first_batch(live, WINDOW, now=9.0)[0]) == [1]
    assert first_batch([entry(1, 0.0, missed=True)], WINDOW, now=0.0)[1] == 0.0


def test_commands_and_other_speakers_stand_alone() -> None:
    assert ids(first_batch([entry(1, 0.0, "/new"), entry(2, 0.1)], WINDOW, 9.0)[0]) == [1]
    assert ids(first_batch([entry(1, 0.0), entry(2, 0.1, "/new")], WINDOW, 9.0)[0]) == [1]
    assert ids(first_batch([entry(1, 0.0), entry(2, 0.1, sender="bob")], WINDOW, 9.0)[0]) == [1]


def test_without_a_window_nothing_is_joined() -> None:
    batch, wait = first_batch([entry(1, 1.0), entry(2, 1.0)], NO_BATCHING, now=1.0)
    assert (ids(batch), wait) == ([1], 0.0)


@given(st.lists(st.floats(0, 2), min_size=1, max_size=8), st.floats(0, 100))
def test_the_same_entries_always_make_the_same_batches(gaps: list[float], later: float) -> None:
    """Grouping depends on what the ledger knows, not on when it is asked."""
    entries, at = [], 0.0
    for number, gap in enumerate(gaps):
        at += gap
        entries.append(entry(number, at))
    done = at + 10
    first, _ = first_batch(entries, WINDOW, now=done)
    again, wait = first_batch(entries, WINDOW, now=done + later)
    assert ids(first) == ids(again)
    assert wait == 0.0
    assert ids(first) == list(range(len(first)))
