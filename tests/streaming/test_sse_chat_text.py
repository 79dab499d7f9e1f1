"""The text of a streamed answer: complete, in order, and nothing twice."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from fakes.chat_events import (
    CALL,
    USAGE,
    chunks,
    content,
    finished,
    message,
    parsed,
    started,
    stream,
)
from hermes.domain.events import (
    Notice,
    ReasoningDelta,
    SteerTaken,
    TextDelta,
    TextReset,
    ToolStarted,
    TurnEvent,
    TurnFinished,
    UsageReported,
)
from hermes.domain.messages import AssistantMessage, FinishReason
from hermes.domain.turn import TurnError, TurnState
from hermes.streaming.wire.chat import ChatResult, chat_result


def test_text_that_comes_again_after_a_reset_is_not_repeated() -> None:
    wire = stream(
        started(),
        TextDelta("Hello, "),
        TextDelta("wor"),
        TextReset(),
        TextDelta("He"),
        TextDelta("llo, world"),
        TextDelta("!"),
        message("Hello, world!"),
        finished("Hello, world!"),
    )
    assert content(wire) == "Hello, world!"


def test_text_that_takes_another_way_after_a_reset_follows_after_an_empty_line() -> None:
    wire = stream(
        started(),
        TextDelta("Hello, world"),
        TextReset(),
        TextDelta("Hello, "),
        TextDelta("you"),
        TextDelta("."),
        message("Hello, you."),
        finished("Hello, you."),
    )
    assert content(wire) == "Hello, world\n\nHello, you."


def test_a_second_reset_before_the_text_has_caught_up_loses_nothing() -> None:
    wire = stream(
        started(),
        TextDelta("abcdef"),
        TextReset(),
        TextDelta("abc"),
        TextReset(),
        TextDelta("abcdefgh"),
        message("abcdefgh"),
        finished("abcdefgh"),
    )
    assert content(wire) == "abcdefgh"


def test_an_answer_in_several_pieces_by_length_is_joined_without_a_gap() -> None:
    wire = stream(
        started(),
        TextDelta("The que"),
        message("The que", finish=FinishReason.LENGTH),
        TextDelta("en."),
        message("en."),
        finished("The queen."),
    )
    assert content(wire) == "The queen."
    assert chunks(wire)[-1]["choices"][0]["finish_reason"] == "stop"


def test_a_resumed_turn_first_says_what_it_had_said() -> None:
    earlier = AssistantMessage(text="Looking.", tool_calls=(CALL,))
    wire = stream(started(earlier), TextDelta("Found."), message("Found."), finished("Found."))
    assert content(wire) == "Looking.\n\nFound."


def test_a_turn_that_goes_on_in_the_same_stream_repeats_nothing() -> None:
    earlier = AssistantMessage(text="Looking.", tool_calls=(CALL,))
    wire = stream(
        started(),
        TextDelta("Looking."),
        message("Looking.", CALL),
        TextDelta("Fou"),
        started(earlier),
        TextDelta("Found."),
        message("Found."),
        finished("Found."),
    )
    assert content(wire) == "Looking.\n\nFound."


def test_an_answer_without_deltas_is_sent_whole_and_once() -> None:
    assert content(stream(started(), message("Hi"), finished("Hi"))) == "Hi"
    assert content(stream(started(), finished("Hi"))) == "Hi"


def collect(*events: TurnEvent) -> ChatResult:
    return chat_result(events)


def test_one_answer_is_the_final_text_without_the_remarks_before_tools() -> None:
    result = collect(
        started(),
        message("Looking.", CALL),
        message("Found."),
        finished("Found."),
    )
    assert result.text == "Found."
    assert result.finish_reason == "stop"
    assert result.incomplete is None


def test_one_answer_of_a_turn_that_broke_off_is_what_had_been_said() -> None:
    result = collect(
        started(),
        message("Looking.", CALL),
        TextDelta("Fou"),
        finished(outcome=TurnState.INTERRUPTED),
    )
    assert result.text == "Looking.\n\nFou"
    assert result.incomplete is not None
    assert result.incomplete.partial


texts = st.text(max_size=20)
events = st.lists(
    st.one_of(
        st.builds(TextDelta, texts),
        st.builds(ReasoningDelta, texts),
        st.just(TextReset()),
        st.builds(message, texts, finish=st.sampled_from(FinishReason)),
        st.builds(lambda text: message(text, CALL), texts),
        st.builds(lambda text: started(AssistantMessage(text=text)), texts),
        st.builds(
            lambda text: ToolStarted(call_id=text, name=text, arguments={}, emoji=text, label=text),
            texts,
        ),
        st.builds(lambda text: Notice(code="x", text=text), texts),
        st.builds(lambda text: SteerTaken(text=text), texts),
        st.just(UsageReported(usage=USAGE, cost_usd=None, context_tokens=1, context_window=None)),
    ),
    max_size=30,
)
ends = st.builds(
    finished,
    texts,
    st.sampled_from([TurnState.DONE, TurnState.FAILED, TurnState.INTERRUPTED]),
    st.none() | st.builds(TurnError, code=texts, message=texts, hint=texts),
    st.sampled_from([(), (CALL,)]),
)


@given(events, ends, st.booleans())
def test_any_sequence_of_events_gives_a_valid_stream(
    sequence: list[TurnEvent], end: TurnFinished, include_usage: bool
) -> None:
    wire = stream(started(), *sequence, end, include_usage=include_usage)
    read = parsed(wire)
    assert all(data["object"] == "chat.completion.chunk" for _, data in read)
    reasons = [
        choice["finish_reason"]
        for _, data in read
        for choice in data.get("choices", ())
        if choice["finish_reason"] is not None
    ]
    assert len(reasons) == 1
    assert ["choices" not in data for _, data in read].count(True) == (reasons == ["error"])
    assert sum("usage" in data for _, data in read) == 1


@st.composite
def retold(draw: st.DrawFn) -> tuple[str, list[TurnEvent]]:
    """One message that is begun any number of times and said in any pieces."""
    text = draw(st.text(min_size=1, max_size=60))
    said: list[TurnEvent] = []
    for length in [*draw(st.lists(st.integers(0, len(text)), max_size=4)), len(text)]:
        cuts = sorted(draw(st.lists(st.integers(0, length), max_size=6)))
        edges = [0, *cuts, length]
        said += [TextDelta(text[a:b]) for a, b in pairwise(edges)]
        said.append(TextReset())
    return text, said[:-1]


@given(st.lists(retold(), min_size=1, max_size=4))
def test_however_often_a_message_starts_over_its_text_is_sent_once(
    messages: list[tuple[str, list[TurnEvent]]],
) -> None:
    sequence: list[TurnEvent] = []
    for number, (text, said) in enumerate(messages, 1):
        calls = () if number == len(messages) else (CALL,)
        sequence += [*said, message(text, *calls)]
    wire = stream(started(), *sequence, finished(messages[-1][0]))
    expected = ""
    for text, _ in messages:
        gap = "" if not expected or expected.endswith("\n\n") else "\n\n"
        if gap and expected.endswith("\n"):
            gap = "\n"
        expected += gap + text
    assert content(wire) == expected
