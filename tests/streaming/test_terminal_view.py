"""TurnEvents become pieces to show."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from hermes.domain.events import (
    MessageCompleted,
    Notice,
    ReasoningDelta,
    SteerTaken,
    TextDelta,
    TextReset,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnEvent,
    TurnFinished,
    TurnStarted,
)
from hermes.domain.messages import AssistantMessage, ToolOutcome
from hermes.domain.turn import TurnState
from hermes.domain.usage import Usage
from hermes.streaming.terminal import (
    Ended,
    Piece,
    Remark,
    Said,
    SaidEnd,
    Thought,
    ThoughtEnd,
    ToolDone,
    TurnView,
    harmless,
)

FINISHED = TurnFinished(
    outcome=TurnState.DONE, text="", usage=Usage(), cost_usd=None, model_calls=1
)


def pieces(*events: TurnEvent) -> list[Piece]:
    view = TurnView()
    return [piece for event in events for piece in view.event(event)]


def said(shown: list[Piece]) -> str:
    return "".join(piece.text for piece in shown if isinstance(piece, Said))


def completed(text: str) -> MessageCompleted:
    return MessageCompleted(message_id=1, message=AssistantMessage(text=text))


@given(st.text(max_size=40), st.integers(0, 40), st.lists(st.integers(0, 40), max_size=4))
def test_text_that_comes_again_is_shown_once(text: str, until: int, cuts: list[int]) -> None:
    text = harmless(text)
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    again = [TextDelta(text[a:b]) for a, b in itertools.pairwise(edges)]

    shown = pieces(TextDelta(text[:until]), TextReset(), *again, completed(text))

    assert said(shown) == text
    assert not [piece for piece in shown if isinstance(piece, Remark)]


def test_a_call_that_starts_over_twice_is_still_shown_once() -> None:
    shown = pieces(
        TextDelta("one two"), TextReset(), TextDelta("one"), TextReset(), TextDelta("one two three")
    )

    assert said(shown) == "one two three"


def test_a_different_answer_after_a_restart_is_announced() -> None:
    shown = pieces(TextDelta("First try"), TextReset(), TextDelta("Second"), completed("Second"))

    assert shown == [
        Said("First try"),
        SaidEnd(),
        Remark(text="the answer starts over", warning=True),
        Said("Second"),
        SaidEnd(),
    ]


def test_text_without_deltas_is_shown_when_the_message_is_complete() -> None:
    assert pieces(completed("whole")) == [Said("whole"), SaidEnd()]


def test_a_thought_ends_when_the_answer_or_a_tool_begins() -> None:
    started = ToolStarted(call_id="c", name="read", arguments={}, emoji="📖", label="a")

    assert pieces(ReasoningDelta("hm"), TextDelta("so"))[:3] == [
        Thought("hm"),
        ThoughtEnd(),
        Said("so"),
    ]
    assert pieces(ReasoningDelta("hm"), started) == [Thought("hm"), ThoughtEnd()]


def test_a_tool_gets_its_line_when_it_ends_and_shows_progress_meanwhile() -> None:
    view = TurnView()
    view.event(
        ToolStarted(
            call_id="c", name="terminal", verb="run", arguments={}, emoji="💻", label="make\n  all"
        )
    )
    view.event(ToolProgress(call_id="c", text="compiling\nlinking\n\n"))

    assert view.running["c"].progress == "linking"
    done = view.event(
        ToolFinished(
            call_id="c", name="terminal", outcome=ToolOutcome.OK, seconds=1.5, preview="ok"
        )
    )

    assert done == [
        ToolDone(
            name="terminal",
            verb="run",
            emoji="💻",
            detail="make all",
            seconds=1.5,
            outcome=ToolOutcome.OK,
            preview="ok",
        )
    ]
    assert view.running == {}


def test_the_end_closes_what_is_open() -> None:
    assert pieces(TextDelta("half"), FINISHED) == [Said("half"), SaidEnd(), Ended(FINISHED)]


def test_remarks_tell_what_happens() -> None:
    resumed = TurnStarted(turn_id="t", session_id="s", agent_id="main", model="m", resumes=1)
    shown = pieces(resumed, Notice(code="retry", text="trying again"), SteerTaken(text="left"))

    assert [piece.text for piece in shown if isinstance(piece, Remark)] == [
        "going on where the last process stopped",
        "trying again",
        "taken into the running turn: left",
    ]


def test_escape_sequences_from_the_model_reach_no_terminal() -> None:
    attack = "\x1b]52;c;ZXZpbA==\x07\x1b[2J\x9b31m\u202egood\r\n\tend"

    assert said(pieces(TextDelta(attack))) == "]52;c;ZXZpbA==[2J31mgood\n\tend"
