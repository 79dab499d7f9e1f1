"""Catching up from a history after an absence."""

from collections.abc import Sequence

from msgspec import Struct

from hermes.domain.inbound import Chat, ChatKind, InboundMessage, Sender
from hermes.domain.ports.platform import ButtonPress
from hermes.entry.chat.kit.history import CatchUp, Marks
from hermes.entry.chat.kit.intake import Heard
from hermes.entry.chat.kit.settings import ChatSettings


class Line(Struct, frozen=True):
    id: str
    sent_at: float
    channel_id: str = "a"


LINES = [Line(str(number), float(number)) for number in range(1, 21)]


async def page(_place: str, after: str | None) -> list[Line]:
    """Five at once, the newest first."""
    found = [each for each in LINES if int(each.id) > int(after or 0)]
    return (found[:5] if after else found[-5:])[::-1]


async def meaning(_place: str, lines: Sequence[Line]) -> list[tuple[Line, Heard | None]]:
    """Every line is for us; those with an odd number in a thread."""
    return [(line, Heard(message=heard(line), mentioned=True)) for line in lines]


def heard(line: Line) -> InboundMessage:
    return InboundMessage(
        platform="x",
        account="bot",
        native_id=line.id,
        chat=Chat(kind=ChatKind.GROUP, id="a"),
        sender=Sender(id="ann"),
        text=line.id,
        sent_at=line.sent_at,
        thread_id="t" if line.id == "19" else None,
    )


async def caught_up(marks: Marks, most: int = 1000) -> list[int]:
    found: list[int] = []

    async def hand_over(items: Sequence[Heard | ButtonPress]) -> bool:
        found.extend(int(each.message.text) for each in items if isinstance(each, Heard))
        return True

    history = CatchUp(marks, page, meaning, ChatSettings, size=5, most=most)
    await history.read(["a"], hand_over)
    await history.read(["a"], hand_over)
    return found


async def test_what_was_missed_comes_oldest_first_across_pages_and_once() -> None:
    marks = Marks(since=0.0, last={"a": "12"})
    assert await caught_up(marks) == list(range(13, 21))
    assert marks == Marks(since=20.0, last={"a": "20", "t": "19"})
    assert await caught_up(marks) == []


async def test_where_nobody_spoke_to_us_only_the_newest_count_and_all_is_bounded() -> None:
    assert await caught_up(Marks(since=28.0)) == [18, 19, 20]
    assert await caught_up(Marks(since=0.0, last={"a": "1"}), most=3) == [2, 3, 4, 5, 6]


def test_marks_never_go_back_and_are_kept_where_somebody_spoke_to_us() -> None:
    marks = Marks(since=5.0)
    marks.heard(LINES[8], addressed=False)
    assert (marks.since, marks.last) == (9.0, {})
    marks.heard(LINES[9], addressed=True)
    marks.heard(LINES[8], addressed=False)
    assert (marks.since, marks.last) == (10.0, {"a": "10"})
