"""A turn in a pipe: the answer on stdout and nothing else."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from hermes.domain.events import (
    MessageCompleted,
    Notice,
    TextDelta,
    TextReset,
    ToolFinished,
    ToolStarted,
    TurnEvent,
    TurnFinished,
    TurnStream,
)
from hermes.domain.messages import AssistantMessage, FinishReason, ToolCall, ToolOutcome
from hermes.domain.turn import TurnState
from hermes.domain.usage import Usage
from hermes.domain.wording import harmless
from hermes.streaming.stdout import PlainOutput, write_plain

END = TurnFinished(outcome=TurnState.DONE, text="", usage=Usage(), cost_usd=None, model_calls=1)


class Page:
    def __init__(self) -> None:
        self.text = ""
        self.writes: list[str] = []

    def write(self, text: str) -> int:
        self.text += text
        self.writes.append(text)
        return len(text)

    def flush(self) -> None:
        pass


def remark(text: str) -> MessageCompleted:
    call = ToolCall(id="c", name="look", arguments="{}")
    return MessageCompleted(message_id=1, message=AssistantMessage(text=text, tool_calls=(call,)))


def answer(text: str) -> MessageCompleted:
    return MessageCompleted(message_id=2, message=AssistantMessage(text=text))


async def shown(
    events: Iterable[TurnEvent], *, hold: float = 0.0, step: float = 0.0
) -> tuple[Page, list[str]]:
    page, now = Page(), 0.0
    notes: list[str] = []

    def monotonic() -> float:
        nonlocal now
        now += step
        return now

    stream = TurnStream("t", "s")
    for event in [*events, END]:
        stream.emit(event)
    output = PlainOutput(out=page, note=notes.append, monotonic=monotonic, hold=hold)
    await write_plain(stream, output)
    return page, notes


async def test_text_is_written_as_it_comes() -> None:
    page, _ = await shown([TextDelta("Hel"), TextDelta("lo"), answer("Hello")])
    assert page.writes == ["Hel", "lo", "\n"]


async def test_an_answer_that_goes_on_after_its_length_limit_has_no_break() -> None:
    cut = AssistantMessage(text="A sen", finish=FinishReason.LENGTH)
    half = MessageCompleted(message_id=1, message=cut)
    page, _ = await shown([TextDelta("A sen"), half, TextDelta("tence."), answer("tence.")])
    assert page.text == "A sentence.\n"


async def test_a_terminal_gets_no_commands_in_the_answer() -> None:
    page = Page()
    stream = TurnStream("t", "s")
    events: list[TurnEvent] = [TextDelta("a\x1b"), TextDelta("[2Jb"), answer("a\x1b[2Jb"), END]
    for event in events:
        stream.emit(event)
    output = PlainOutput(out=page, note=lambda _: None, monotonic=float, shown=harmless)
    await write_plain(stream, output)
    assert page.text == "a[2Jb\n"


async def test_a_remark_before_a_tool_call_is_a_notice_in_a_pipe() -> None:
    page, notes = await shown(
        [TextDelta("Let me look."), remark("Let me look."), TextDelta("A cat."), answer("A cat.")],
        hold=0.3,
    )
    assert page.text == "A cat.\n"
    assert notes == ["· Let me look."]


async def test_a_long_answer_streams_once_the_hold_has_passed() -> None:
    pieces = [TextDelta("x") for _ in range(10)]
    page, _ = await shown([*pieces, answer("x" * 10)], hold=0.3, step=0.1)
    assert len(page.writes) > 5
    assert page.text == "x" * 10 + "\n"


async def test_tools_and_notices_are_told_apart_from_the_answer() -> None:
    started = ToolStarted(call_id="c", name="read_file", arguments={}, emoji="📖", label="a.txt")
    done = ToolFinished(
        call_id="c", name="read_file", outcome=ToolOutcome.ERROR, seconds=0.25, preview=""
    )
    page, notes = await shown([started, done, Notice(code="retry", text="again"), answer("")])
    assert page.text == ""
    assert notes == ["┊ 📖 read_file a.txt 0.2s [error]", "· again"]


async def test_a_call_that_starts_over_with_the_same_text_is_not_doubled() -> None:
    page, _ = await shown(
        [TextDelta("one two"), TextReset(), TextDelta("one "), TextDelta("two three"), answer("")]
    )
    assert page.text == "one two three\n"


async def test_a_call_that_starts_over_differently_goes_to_a_new_line() -> None:
    page, _ = await shown([TextDelta("one"), TextReset(), TextDelta("uno"), answer("uno")])
    assert page.text == "one\nuno\n"


@given(pieces=st.lists(st.text(min_size=1, max_size=5), max_size=10), hold=st.sampled_from([0, 9]))
async def test_whatever_the_pieces_the_answer_is_complete(pieces: list[str], hold: float) -> None:
    whole = "".join(pieces)
    page, _ = await shown([*(TextDelta(p) for p in pieces), answer(whole)], hold=hold, step=1)
    assert page.text.removesuffix("\n") == whole.removesuffix("\n")
