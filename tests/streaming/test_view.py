"""TurnEvents become pieces: said once, in order, nothing taken back."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.chat_events import CALL, finished, message, started
from hermes.domain.events import (
    MessageCompleted,
    Notice,
    ReasoningDelta,
    TextDelta,
    TextReset,
    ToolFinished,
    ToolStarted,
    TurnEvent,
)
from hermes.domain.messages import AssistantMessage, ToolCall, ToolOutcome
from hermes.domain.turn import TurnState
from hermes.streaming.view import Completed, Piece, Said, Thought, ToolDone, TurnView


def pieces(*events: TurnEvent) -> list[Piece]:
    view = TurnView()
    return [piece for event in events for piece in view.feed(event)]


def said(shown: list[Piece]) -> str:
    return "".join(piece.text for piece in shown if isinstance(piece, Said))


@given(st.text(max_size=40), st.integers(0, 40), st.lists(st.integers(0, 40), max_size=4))
def test_text_that_comes_again_is_said_once(text: str, until: int, cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    again = [TextDelta(text[a:b]) for a, b in itertools.pairwise(edges)]

    shown = pieces(TextDelta(text[:until]), TextReset(), *again, message(text))

    assert said(shown) == text
    assert not [piece for piece in shown if isinstance(piece, Said) and piece.again]


def test_a_call_that_starts_over_twice_is_still_said_once() -> None:
    shown = pieces(
        TextDelta("one two"), TextReset(), TextDelta("one"), TextReset(), TextDelta("one two three")
    )

    assert shown == [Said("one two"), Said(" three")]


def test_a_text_that_takes_another_way_is_said_from_its_start() -> None:
    shown = pieces(
        TextDelta("First try"),
        TextReset(),
        TextDelta("Fir"),
        TextDelta("m ground"),
        message("Firm ground"),
    )

    assert shown == [
        Said("First try"),
        Said("Firm ground", again=True),
        Completed(message("Firm ground").message),
    ]


def test_a_repeated_call_that_says_less_adds_nothing() -> None:
    shown = pieces(TextDelta("one two"), TextReset(), TextDelta("one"), message("one"))

    assert shown == [Said("one two"), Completed(message("one").message, differs=True)]


def test_thoughts_are_settled_like_text() -> None:
    shown = pieces(
        ReasoningDelta("hm"),
        TextReset(),
        ReasoningDelta("hm, so"),
        TextReset(),
        ReasoningDelta("x"),
    )

    assert shown == [Thought("hm"), Thought(", so"), Thought("x", again=True)]


def test_text_without_deltas_is_said_when_the_message_is_complete() -> None:
    whole = message("whole")

    assert pieces(TextDelta("wh"), whole) == [Said("wh"), Said("ole"), Completed(whole.message)]
    assert pieces(whole, finished("whole"))[:2] == [Said("whole"), Completed(whole.message)]


def test_an_answer_without_a_message_is_said_before_the_end() -> None:
    end = finished("Hi")

    assert pieces(message("Looking.", CALL), end)[-2:] == [Said("Hi"), end]
    assert pieces(message("Hi"), end)[-2:] == [Completed(message("Hi").message), end]


@pytest.mark.parametrize("handed", [(), (CALL,)])
def test_nothing_is_added_to_a_turn_that_broke_off_or_waits_for_its_client(
    handed: tuple[ToolCall, ...],
) -> None:
    outcome = TurnState.DONE if handed else TurnState.INTERRUPTED
    end = finished("text", outcome=outcome, handed=handed)

    assert pieces(end) == [end]


def test_a_resumed_turn_says_what_the_reader_has_not_heard() -> None:
    first = AssistantMessage(text="Looking.", tool_calls=(CALL,))
    second = AssistantMessage(text="Still looking.", tool_calls=(CALL,))
    resumed = started(first, second)

    assert pieces(resumed) == [
        resumed,
        Said("Looking."),
        Completed(first),
        Said("Still looking."),
        Completed(second),
    ]
    assert pieces(
        TextDelta("Look"),
        MessageCompleted(message_id=1, message=first),
        TextDelta("Still"),
        resumed,
        TextDelta("Fo"),
        resumed,
        TextDelta("Found"),
    ) == [
        Said("Look"),
        Said("ing."),
        Completed(first),
        Said("Still"),
        resumed,
        Said(" looking."),
        Completed(second),
        Said("Fo"),
        resumed,
        Said("und"),
    ]


def test_a_tool_call_ends_with_how_it_began() -> None:
    begun = ToolStarted(call_id="c", name="terminal", arguments={}, emoji="💻", label="make")
    ended = ToolFinished(
        call_id="c", name="terminal", outcome=ToolOutcome.OK, seconds=1.5, preview="ok"
    )
    view = TurnView()

    assert list(view.feed(begun)) == [begun]
    assert list(view.running) == ["c"]
    assert list(view.feed(ended)) == [ToolDone(started=begun, finished=ended)]
    assert view.running == {}
    assert list(view.feed(ended)) == [ToolDone(started=None, finished=ended)]


def test_what_needs_no_settling_is_its_own_piece() -> None:
    notice = Notice(code="retry", text="trying again")

    assert pieces(notice) == [notice]
