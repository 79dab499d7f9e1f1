"""A turn in a chat: growing messages, one final text, nothing twice."""

import asyncio
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from fakes.hand_clock import settle
from fakes.markdown_text import long_markdown
from fakes.surface import CHAT, FakeSurface, visible_length
from hermes.domain.approvals import ApprovalKind, ApprovalRequest
from hermes.domain.events import (
    ApprovalAsked,
    MessageCompleted,
    ReasoningDelta,
    TextDelta,
    TextReset,
    ToolFinished,
    ToolStarted,
    TurnEvent,
    TurnFinished,
    TurnStarted,
    TurnStream,
)
from hermes.domain.messages import (
    AssistantMessage,
    FinishReason,
    Reasoning,
    ToolCall,
    ToolOutcome,
)
from hermes.domain.platforms import Capabilities
from hermes.domain.ports.surface import Shown
from hermes.domain.settings import Settings
from hermes.domain.turn import TurnError, TurnState
from hermes.domain.usage import Usage
from hermes.streaming.chat.layout import ChatLayout
from hermes.streaming.chat.media import MediaRef
from hermes.streaming.chat.presenter import present, present_again
from hermes.streaming.chat.reply import Ending, final_segments
from hermes.streaming.chat.settings import PresentationSettings, presentation
from hermes.testing import FakeClock


def shown_as(**changed: Any) -> PresentationSettings:
    """Return how turns are shown by default, changed a little."""
    return msgspec.structs.replace(presentation(Settings(), "test"), **changed)


QUICK = shown_as(edit_interval=0.0)
NO_EDITS = replace(CHAT, edits=False, deletes=False)
FAILURE = TurnError(code="model", message="The model is gone.", hint="Choose another one.")
STOPPING = TurnError(code="shutdown", message="Hermes is stopping.")
CALL = ToolCall(id="c", name="look", arguments="{}")


def end(
    outcome: TurnState = TurnState.DONE, text: str = "", error: TurnError | None = None
) -> TurnFinished:
    return TurnFinished(
        outcome=outcome, text=text, usage=Usage(), cost_usd=None, model_calls=1, error=error
    )


def remark(text: str) -> MessageCompleted:
    return MessageCompleted(message_id=1, message=AssistantMessage(text=text, tool_calls=(CALL,)))


def answer(text: str, reasoning: str = "") -> MessageCompleted:
    thought = Reasoning(text=reasoning) if reasoning else None
    return MessageCompleted(message_id=2, message=AssistantMessage(text=text, reasoning=thought))


def started(name: str = "read_file", label: str = "a.txt", call: str = "c") -> ToolStarted:
    return ToolStarted(call_id=call, name=name, arguments={}, emoji="📖", verb="read", label=label)


def done(outcome: ToolOutcome = ToolOutcome.OK, call: str = "c") -> ToolFinished:
    return ToolFinished(
        call_id=call, name="read_file", outcome=outcome, seconds=0.5, preview="12 lines"
    )


async def from_ok(path: str) -> str | None:
    return path if "/ok" in path else None


async def from_anywhere(path: str) -> str | None:
    return path


async def shown(
    events: Iterable[TurnEvent],
    how: PresentationSettings = QUICK,
    capabilities: Capabilities = CHAT,
    pace: Iterable[bool] = (),
    surface: FakeSurface | None = None,
) -> tuple[FakeSurface, bool]:
    """Play events; `pace` says after which of them the presenter gets to run."""
    stream, surface = TurnStream("t", "s"), surface or FakeSurface(capabilities)
    rests = iter(pace)
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        task = group.create_task(present(stream, surface, how, FakeClock(), from_ok))
        for event in events:
            if next(rests, False):
                for _ in range(12):
                    await asyncio.sleep(0)
            stream.emit(event)
    return surface, task.result()


def resuming(*earlier: AssistantMessage) -> TurnStarted:
    return TurnStarted(
        turn_id="t", session_id="s", agent_id="a", model="m", resumes=1, earlier=earlier
    )


def final_slots(
    messages: list[AssistantMessage],
    can: Capabilities,
    how: PresentationSettings,
    ending: Ending,
) -> list[tuple[str, Shown]]:
    """The final look of every text slot of a turn that said `messages`."""
    return [
        (segment.slot(piece), look)
        for segment in final_segments(messages, how, ending)
        for piece, look in enumerate(ChatLayout(can, how).final(segment.content(how).text))
    ]


def final_media(
    messages: list[AssistantMessage], how: PresentationSettings, ending: Ending
) -> list[tuple[str, MediaRef]]:
    """The slot of every file that a turn that said `messages` sends."""
    return [
        (segment.media_slot(number), media)
        for segment in final_segments(messages, how, ending)
        for number, media in enumerate(segment.content(how).media)
    ]


def texts(surface: FakeSurface) -> dict[str, str]:
    return {slot: look.text for slot, look in surface.looks.items()}


# ---- what a person sees ----


async def test_a_reply_is_sent_once_and_edited_to_its_end() -> None:
    surface, complete = await shown(
        [TextDelta("Hello "), TextDelta("**you**"), answer("Hello **you**"), end()],
        pace=[True] * 9,
    )
    assert [look.text for _, look in surface.shows] == [
        "Hello ▉",
        "Hello <b>you</b> ▉",
        "Hello <b>you</b>",
    ]
    assert [look.final for _, look in surface.shows] == [False, False, True]
    assert (complete, list(surface.looks)) == (True, ["reply:0.0"])


async def test_a_platform_without_edits_gets_one_message() -> None:
    surface, _ = await shown(
        [TextDelta("Hel"), TextDelta("lo"), answer("Hello"), end()],
        capabilities=NO_EDITS,
        pace=[True] * 9,
    )
    assert [look.text for _, look in surface.shows] == ["Hello"]
    assert surface.typed >= 1


async def test_transport_off_shows_the_reply_only_when_it_is_complete() -> None:
    surface, _ = await shown(
        [TextDelta("Hel"), TextDelta("lo"), answer("Hello"), end()],
        replace(QUICK, transport="off"),
        pace=[True] * 9,
    )
    assert [look.text for _, look in surface.shows] == ["Hello"]


async def test_long_answers_go_on_in_further_messages() -> None:
    text = "\n\n".join(f"Paragraph {i} says a thing or two about it." for i in range(12))
    surface, _ = await shown([answer(text), end()])
    assert list(surface.looks) == [f"reply:0.{i}" for i in range(len(surface.looks))]
    assert len(surface.looks) > 2
    assert "\n\n".join(texts(surface).values()) == text


@pytest.mark.parametrize("can", [CHAT, NO_EDITS])
async def test_an_answer_continued_after_its_length_limit_is_one_text(can: Capabilities) -> None:
    cut = AssistantMessage(text="```\nfor x in ran", finish=FinishReason.LENGTH)
    events: list[TurnEvent] = [TextDelta(cut.text), MessageCompleted(message_id=1, message=cut)]
    events += [TextDelta("ge(3)\n```"), answer("ge(3)\n```"), end()]
    surface, _ = await shown(events, capabilities=can, pace=[True] * 9)
    assert "for x in range(3)" in texts(surface)["reply:0.0"]
    assert list(surface.looks) == ["reply:0.0"]


async def test_remarks_before_tools_have_their_own_messages() -> None:
    surface, _ = await shown(
        [TextDelta("Let me look."), remark("Let me look."), answer("A cat."), end()]
    )
    assert texts(surface) == {"reply:0.0": "Let me look.", "reply:1.0": "A cat."}


async def test_remarks_disappear_if_they_are_not_wanted() -> None:
    surface, _ = await shown(
        [TextDelta("Let me look."), remark("Let me look."), answer("A cat."), end()],
        replace(QUICK, interim_assistant_messages=False),
        pace=[False, True, True, True],
    )
    assert texts(surface) == {"reply:1.0": "A cat."}
    assert surface.removed == ["reply:0.0"]


async def test_remarks_that_could_not_be_taken_back_are_not_shown_at_all() -> None:
    surface, _ = await shown(
        [TextDelta("Let me look."), remark("Let me look."), answer("A cat."), end()],
        replace(QUICK, interim_assistant_messages=False),
        replace(CHAT, deletes=False),
        pace=[True] * 9,
    )
    assert [look.text for _, look in surface.shows] == ["A cat."]


async def test_a_reply_that_starts_over_is_edited_in_its_place() -> None:
    surface, _ = await shown(
        [TextDelta("word " * 90), TextReset(), TextDelta("Short."), answer("Short."), end()],
        pace=[False, True, True, True, True],
    )
    assert texts(surface) == {"reply:0.0": "Short."}
    assert surface.removed


async def test_previews_follow_a_reply_that_starts_over() -> None:
    surface, _ = await shown(
        [TextDelta("Uno dos"), TextReset(), TextDelta("One"), TextDelta(" two"), end()],
        pace=[True] * 6,
    )
    looks = [look.text for _, look in surface.shows]
    assert looks == ["Uno dos ▉", "One ▉", "One two ▉", "One two"]


async def test_a_failure_is_told_where_the_answer_would_be() -> None:
    surface, _ = await shown([TextDelta("```\nhalf"), end(TurnState.FAILED, error=FAILURE)])
    assert texts(surface) == {
        "reply:0.0": "<pre>half</pre>\n\n⚠️ The model is gone.\nChoose another one."
    }
    surface, _ = await shown([end(TurnState.FAILED, error=FAILURE)])
    assert texts(surface) == {"reply:0.0": "⚠️ The model is gone.\nChoose another one."}


async def test_what_was_interrupted_is_marked_and_nothing_is_said_about_nothing() -> None:
    surface, _ = await shown([TextDelta("So fa"), end(TurnState.INTERRUPTED)])
    assert texts(surface) == {"reply:0.0": "So fa\n\n⏹ Stopped here."}
    surface, complete = await shown([end(TurnState.INTERRUPTED)])
    assert (surface.shows, complete) == ([], True)


async def test_at_shutdown_everything_stays_as_it_is() -> None:
    surface, complete = await shown(
        [TextDelta("So fa"), end(TurnState.INTERRUPTED, error=STOPPING)], pace=[True, True]
    )
    assert texts(surface) == {"reply:0.0": "So fa ▉"}
    assert not surface.looks["reply:0.0"].final
    assert not complete


async def test_after_a_restart_the_turn_goes_on_in_the_same_messages() -> None:
    before = AssistantMessage(text="Let me look.", tool_calls=(CALL,))
    surface, _ = await shown([resuming(before), answer("A cat."), end()])
    assert texts(surface) == {"reply:0.0": "Let me look.", "reply:1.0": "A cat."}


async def test_what_the_earlier_process_has_shown_is_edited_or_taken_away_but_not_repeated() -> (
    None
):
    before = AssistantMessage(text="Look:\nMEDIA:/ok/a.png", tool_calls=(CALL,))
    surface = FakeSurface()
    await surface.show("reply:0.0", Shown(text="Look:", plain="Look:", final=True))
    await surface.attach("media:0.0", "/ok/a.png", "image")
    for slot in ("progress:1.0", "reply:1.0", "reply:1.1", "approval:a"):
        await surface.show(slot, Shown(text="x ▉", plain="x ▉"))
    surface.restart()
    await shown([resuming(before), answer("A cat."), end()], surface=surface)
    assert texts(surface) == {"reply:0.0": "Look:", "reply:1.0": "A cat.", "approval:a": "x ▉"}
    assert len(surface.files) == 1
    assert [look.text for _, look in surface.shows[5:]] == ["A cat."]
    assert sorted(surface.removed) == ["progress:1.0", "reply:1.1"]


async def test_an_answer_known_only_from_the_end_of_the_turn_is_shown() -> None:
    surface, _ = await shown([end(text="It was there already.")])
    assert texts(surface) == {"reply:0.0": "It was there already."}


@pytest.mark.parametrize("marker", ["NO_REPLY", "[SILENT]", " SILENT\n", "NO REPLY"])
async def test_silence_sends_nothing_not_even_for_a_moment(marker: str) -> None:
    pieces = [TextDelta(character) for character in marker]
    surface, _ = await shown([*pieces, answer(marker), end()], pace=[True] * 20)
    assert surface.shows == []


async def test_what_only_begins_like_silence_is_shown() -> None:
    surface, _ = await shown([TextDelta("NO"), TextDelta("thing"), answer("NOthing"), end()])
    assert texts(surface) == {"reply:0.0": "NOthing"}


async def test_files_come_after_the_text_and_only_from_allowed_places() -> None:
    text = "Here:\nMEDIA:/ok/a.png\nMEDIA:/etc/passwd.txt\n![b](/ok/b.jpg)\nDone."
    pieces = [TextDelta(character) for character in text]
    surface, _ = await shown([*pieces, answer(text), end()], pace=[True] * len(text))
    assert surface.files == [
        ("media:0.0", "/ok/a.png", "image"),
        ("media:0.2", "/ok/b.jpg", "image"),
    ]
    assert all("MEDIA" not in look.text and "ok/" not in look.text for _, look in surface.shows)
    assert surface.looks["reply:0.0"].text == "Here:\nDone."
    assert "passwd.txt" in surface.looks["media:0.1"].text


async def test_pictures_that_follow_each_other_go_out_together() -> None:
    names = ["a.png", "b.jpg", "c.png", "d.pdf", "e.png", "f.png", "g.png"]
    text = "\n".join(f"MEDIA:/ok/{name}" for name in names)
    surface, _ = await shown([answer(text), end()], capabilities=replace(CHAT, album_size=2))
    assert surface.albums == [["/ok/a.png", "/ok/b.jpg"], ["/ok/e.png", "/ok/f.png"]]
    assert [path for _, path, _ in surface.files] == ["/ok/c.png", "/ok/d.pdf", "/ok/g.png"]
    assert [slot for slot, _, _ in surface.files] == ["media:0.2", "media:0.3", "media:0.6"]


async def test_a_picture_that_may_not_go_out_is_left_out_of_the_album() -> None:
    text = "MEDIA:/ok/a.png\nMEDIA:/etc/secret.png\nMEDIA:/ok/b.png\nMEDIA:/ok/c.png"
    surface, _ = await shown([answer(text), end()], capabilities=replace(CHAT, album_size=10))
    assert surface.albums == [["/ok/b.png", "/ok/c.png"]]
    assert "secret.png" in surface.looks["media:0.1"].text


async def test_a_kind_of_file_that_the_platform_does_not_know_is_a_document() -> None:
    surface, _ = await shown([answer("MEDIA:/ok/a.mp4"), end()])
    assert surface.files == [("media:0.0", "/ok/a.mp4", "document")]
    surface, _ = await shown(
        [answer("MEDIA:/ok/a.mp4"), end()], capabilities=replace(CHAT, media=frozenset())
    )
    assert "a.mp4" in texts(surface)["media:0.0"]


async def test_reasoning_is_shown_only_if_asked_for() -> None:
    events: list[TurnEvent] = [
        ReasoningDelta("Hm.\nCats."),
        TextDelta("A cat."),
        answer("A cat.", "Hm.\nCats."),
        end(),
    ]
    surface, _ = await shown(events, pace=[True] * 5)
    assert not any("Hm" in look.text for _, look in surface.shows)
    surface, _ = await shown(events, replace(QUICK, show_reasoning=True), pace=[True] * 5)
    assert texts(surface) == {
        "reply:0.0": "<blockquote>💭 Hm.\nCats.</blockquote>\n\nA cat.",
    }


# ---- tool progress ----


async def test_tool_calls_are_listed_in_one_bubble_between_the_texts() -> None:
    events: list[TurnEvent] = [
        remark("Looking."),
        started(),
        done(),
        started(label="b.txt", call="d"),
        done(ToolOutcome.ERROR, call="d"),
        answer("A cat."),
        end(),
    ]
    surface, _ = await shown(events, replace(QUICK, tool_progress="all"), pace=[True] * 9)
    assert list(surface.looks) == ["reply:0.0", "progress:1.0", "reply:1.0"]
    assert texts(surface)["progress:1.0"] == (
        "📖 read <code>a.txt</code>\n📖 read <code>b.txt</code> ✗"
    )
    assert all(look.final for look in surface.looks.values())


async def test_rounds_of_tools_without_a_word_share_a_bubble() -> None:
    silent = MessageCompleted(
        message_id=1,
        message=AssistantMessage(tool_calls=(CALL,), reasoning=Reasoning(text="Hm.")),
    )
    events: list[TurnEvent] = [
        silent,
        started(),
        done(),
        silent,
        started("grep"),
        done(),
        answer("A cat."),
        end(),
    ]
    surface, _ = await shown(events, replace(QUICK, tool_progress="all"), pace=[True] * 9)
    assert list(surface.looks) == ["progress:1.0", "reply:2.0"]


async def test_what_it_thought_before_using_tools_is_shown_if_asked_for() -> None:
    thinking = MessageCompleted(
        message_id=1,
        message=AssistantMessage(tool_calls=(CALL,), reasoning=Reasoning(text="Hm.")),
    )
    surface, _ = await shown(
        [thinking, answer("A cat."), end()], replace(QUICK, show_reasoning=True)
    )
    assert texts(surface)["reply:0.0"] == "<blockquote>💭 Hm.</blockquote>"


@pytest.mark.parametrize(
    ("mode", "lines"), [("off", 0), ("log", 0), ("new", 1), ("all", 3), ("verbose", 3)]
)
async def test_progress_modes(mode: str, lines: int) -> None:
    how = shown_as(edit_interval=0.0, tool_progress=mode)
    calls = [each for i in range(3) for each in (started(call=f"c{i}"), done(call=f"c{i}"))]
    surface, _ = await shown([remark(""), *calls, answer("x"), end()], how)
    bubble = texts(surface).get("progress:1.0", "")
    assert bubble.count("read") == lines
    assert ("12 lines" in bubble) == (mode == "verbose")


async def test_tool_calls_can_have_a_message_each() -> None:
    how = replace(QUICK, tool_progress="all", tool_progress_grouping="separate")
    calls = [each for i in range(3) for each in (started(call=f"c{i}"), done(call=f"c{i}"))]
    surface, _ = await shown([remark(""), *calls, answer("x"), end()], how, NO_EDITS)
    assert list(surface.looks) == ["progress:1.0", "progress:1.1", "progress:1.2", "reply:1.0"]


async def test_the_bubble_never_outgrows_its_message() -> None:
    calls = [started(label=f"file{i}|x.txt", call=f"c{i}") for i in range(300)]
    surface, _ = await shown([*calls, answer("x"), end()], replace(QUICK, tool_progress="all"))
    bubble = texts(surface)["progress:0.0"]
    assert bubble.startswith("…\n")
    assert "file299" in bubble


# ---- pace ----


async def test_a_slow_platform_sees_only_the_latest_text() -> None:
    stream, surface, clock = TurnStream("t", "s"), FakeSurface(), FakeClock()
    surface.gate = asyncio.Event()
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        group.create_task(present(stream, surface, QUICK, clock, from_anywhere))
        for _ in range(1000):
            stream.emit(TextDelta("x"))
            await asyncio.sleep(0)
        assert surface.shows == []
        stream.emit(answer("x" * 100))
        stream.emit(end())
        surface.gate.set()
    assert [look.text for _, look in surface.shows][1:] == ["x" * 100]


async def test_edits_wait_for_the_interval_unless_there_is_much_to_show() -> None:
    stream, surface, clock = TurnStream("t", "s"), FakeSurface(), FakeClock()
    how = shown_as(edit_interval=0.8, buffer_threshold=24)
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        group.create_task(present(stream, surface, how, clock, from_anywhere))
        stream.emit(TextDelta("one"))
        await clock.until_sleeping()
        clock.advance(0.8)
        await surface.until("reply:0.0", "one ▉")
        stream.emit(TextDelta(" two"))
        await clock.until_sleeping()
        assert surface.looks["reply:0.0"].text == "one ▉"
        clock.advance(0.8)
        await surface.until("reply:0.0", "one two ▉")
        stream.emit(TextDelta(" " + "x" * 30))
        await surface.until("reply:0.0", f"one two {'x' * 30} ▉")
        stream.emit(answer("Done."))
        stream.emit(end(text="Done."))
    assert texts(surface) == {"reply:0.0": "Done."}


async def test_an_answer_that_is_ready_at_once_is_one_message_and_no_edit() -> None:
    stream, surface, clock = TurnStream("t", "s"), FakeSurface(), FakeClock()
    how = shown_as(edit_interval=0.8, buffer_threshold=2)
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        group.create_task(present(stream, surface, how, clock, from_anywhere))
        for piece in ("Here ", "you ", "are."):
            stream.emit(TextDelta(piece))
            await settle()
        stream.emit(answer("Here you are."))
        stream.emit(end(text="Here you are."))
    assert [(slot, shown.text) for slot, shown in surface.shows] == [("reply:0.0", "Here you are.")]


async def test_typing_is_refreshed_until_something_is_visible_and_not_while_asking() -> None:
    stream, surface, clock = TurnStream("t", "s"), FakeSurface(), FakeClock()
    request = ApprovalRequest(
        id="a", kind=ApprovalKind.APPROVAL, agent_id="main", session_id="s", turn_id="t",
        call_id="c", tool="terminal", arguments_hash="", subject="rm", reason="", pattern="",
        choices=(), created_at=0, expires_at=300,
    )  # fmt: skip
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        group.create_task(present(stream, surface, QUICK, clock, from_anywhere))
        for count in (1, 2, 3):
            await clock.until_sleeping()
            assert surface.typed == count
            clock.advance(4.0)
            await asyncio.sleep(0)
        await clock.until_sleeping()
        typed = surface.typed
        stream.emit(ApprovalAsked(request=request))
        for _ in range(12):
            await asyncio.sleep(0)
        assert clock.sleeping == 0
        clock.advance(60.0)
        stream.emit(TextDelta("x"))
        await surface.until("reply:0.0", "x ▉")
        assert surface.typed == typed
        stream.emit(end(text="x"))


async def test_typing_without_room_is_tried_again_soon() -> None:
    stream, surface, clock = TurnStream("t", "s"), FakeSurface(), FakeClock()
    surface.no_room = 2
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        group.create_task(present(stream, surface, QUICK, clock, from_anywhere))
        for count, pause in ((1, 1.0), (2, 1.0), (3, 1.0), (3, 3.0), (4, 4.0)):
            await clock.until_sleeping()
            assert surface.typed == count
            clock.advance(pause)
            await asyncio.sleep(0)
        stream.emit(end(text="x"))


async def test_a_platform_sets_the_least_time_between_two_edits() -> None:
    surface = FakeSurface(replace(CHAT, edit_seconds=1.2))
    stream, clock, times = TurnStream("t", "s"), FakeClock(), list[float]()
    hasty = shown_as(edit_interval=0.1, buffer_threshold=3)
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        group.create_task(present(stream, surface, hasty, clock, from_anywhere))
        for _ in range(60):
            stream.emit(TextDelta("quick words "))
            await settle()
            times += [clock.monotonic()] * (len(surface.shows) - len(times))
            clock.advance(0.1)
            await settle()
        stream.emit(end(text="quick words " * 60))
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert len(pauses) >= 4
    assert min(pauses) > 1.15


# ---- properties ----

words = st.sampled_from(["Hello ", "wor", "ld. ", "**b", "**", "```py\n", "x=1\n", "```\n", "\n\n"])
message = st.one_of(
    st.lists(words, max_size=30).map("".join),
    long_markdown,
    st.sampled_from(["NO_REPLY", "", "MEDIA:/ok/a.png", "x" * 600]),
)


@st.composite
def turns(draw: st.DrawFn) -> list[TurnEvent]:
    """Any turn: messages in deltas, calls that start over, tools, and some end."""
    events: list[TurnEvent] = []
    for _ in range(draw(st.integers(0, 3))):
        text = draw(message)
        if draw(st.booleans()):
            events += [TextDelta(draw(message)), TextReset()]
        step = draw(st.integers(1, 90))
        events += [TextDelta(text[at : at + step]) for at in range(0, len(text), step)]
        if draw(st.booleans()):
            events += [remark(text), started(), done()]
        else:
            events.append(answer(text))
    outcome = draw(st.sampled_from([TurnState.DONE, TurnState.FAILED, TurnState.INTERRUPTED]))
    if outcome is not TurnState.DONE and draw(st.booleans()):
        events.append(TextDelta(draw(message)))
    events.append(end(outcome, error=FAILURE if outcome is TurnState.FAILED else None))
    return events


def in_ledger(events: list[TurnEvent]) -> tuple[list[AssistantMessage], Ending]:
    """What the ledger holds of a turn when it has ended."""
    messages: list[AssistantMessage] = []
    draft = ""
    for event in events:
        match event:
            case TextDelta(text=text):
                draft += text
            case TextReset():
                draft = ""
            case MessageCompleted(message=message):
                messages.append(message)
                draft = ""
            case _:
                pass
    finished = events[-1]
    assert isinstance(finished, TurnFinished)
    if draft:
        messages.append(AssistantMessage(text=draft))
    return messages, Ending(outcome=finished.outcome, error=finished.error)


hows = st.builds(
    shown_as,
    edit_interval=st.just(0.0),
    buffer_threshold=st.sampled_from([0, 1, 24]),
    transport=st.sampled_from(["auto", "off"]),
    tool_progress=st.sampled_from(["off", "all"]),
    interim_assistant_messages=st.booleans(),
)
NO_DELETES = replace(CHAT, deletes=False)
capabilities = st.sampled_from([CHAT, NO_EDITS, NO_DELETES, replace(CHAT, idempotent_sends=True)])


def replies(surface: FakeSurface) -> list[tuple[str, Shown]]:
    """All that can be read; a message that could not be deleted says `…`."""
    return [
        (slot, look)
        for slot, look in surface.looks.items()
        if slot.startswith("reply:") and (surface.capabilities.deletes or look.text != "…")
    ]


@given(events=turns(), how=hows, can=capabilities, pace=st.lists(st.booleans(), max_size=60))
@settings(max_examples=250, deadline=None)
async def test_whatever_happens_the_end_is_the_answer_exactly_once(
    events: list[TurnEvent], how: PresentationSettings, can: Capabilities, pace: list[bool]
) -> None:
    surface, complete = await shown(events, how, can, pace=pace)
    messages, ending = in_ledger(events)
    assert replies(surface) == final_slots(messages, can, how, ending)
    assert [(s, p) for s, p, _ in surface.files] == [
        (slot, media.path) for slot, media in final_media(messages, how, ending)
    ]
    assert all(look.final for look in surface.looks.values())
    assert complete
    assert len(surface.shows) <= 2 * len(events) + 4 * len(surface.looks) + len(surface.removed) * 2


@given(
    events=turns(),
    how=hows,
    can=capabilities,
    cut=st.integers(0, 200),
    pace=st.lists(st.booleans()),
)
@settings(max_examples=250, deadline=None)
async def test_a_turn_that_two_processes_show_ends_the_same_way(
    events: list[TurnEvent],
    how: PresentationSettings,
    can: Capabilities,
    cut: int,
    pace: list[bool],
) -> None:
    cut = min(cut, len(events) - 1)
    stopping = end(TurnState.INTERRUPTED, error=STOPPING)
    surface, _ = await shown([*events[:cut], stopping], how, can, pace=pace)
    said = tuple(e.message for e in events[:cut] if isinstance(e, MessageCompleted))
    voided = [i for i, e in enumerate(events[:cut]) if isinstance(e, MessageCompleted)]
    again = events[(voided[-1] + 1 if voided else 0) :]
    surface.restart()
    surface, _ = await shown([resuming(*said), *again], how, can, surface=surface)
    messages, ending = in_ledger(events)
    assert dict(replies(surface)) == dict(final_slots(messages, can, how, ending))
    assert all(look.final for look in surface.looks.values())
    sent = [(slot, path) for slot, path, _ in surface.files]
    assert sent == [(slot, m.path) for slot, m in final_media(messages, how, ending)]


@given(events=turns(), how=hows, can=capabilities)
@settings(max_examples=60, deadline=None)
async def test_showing_it_again_from_the_ledger_gives_the_same(
    events: list[TurnEvent], how: PresentationSettings, can: Capabilities
) -> None:
    messages, ending = in_ledger(events)
    surface = FakeSurface(can)
    await present_again(messages, surface, how, ending, from_anywhere)
    assert list(surface.looks.items()) == final_slots(messages, can, how, ending)


@given(text=long_markdown, cut=st.integers(0, 2000))
@settings(max_examples=100, deadline=None)
def test_a_preview_fits_with_its_cursor(text: str, cut: int) -> None:
    layout, surface = ChatLayout(CHAT, QUICK), FakeSurface()
    growing = layout.chunker()
    growing.add(text[:cut])
    for look in layout.preview(growing):
        assert isinstance(look, Shown)
        assert visible_length(surface._dialect, look.text, CHAT.unit) <= CHAT.max_length


def test_the_shape_depends_on_settings_and_on_what_the_platform_can_do() -> None:
    assert shown_as().grows(CHAT)
    assert shown_as(transport="draft").grows(CHAT)
    assert not shown_as(transport="off").grows(CHAT)
    assert not shown_as(enabled=False).grows(CHAT)
    assert not shown_as().grows(NO_EDITS)


async def test_pieces_of_text_that_have_come_at_once_can_be_followed_as_one() -> None:
    stream = TurnStream("t", "s")
    for event in (TextDelta("a"), TextDelta("b"), remark("ab"), TextDelta("c"), end()):
        stream.emit(event)
    found = [event async for event in stream.follow_joined()]
    assert found == [TextDelta("ab"), remark("ab"), TextDelta("c"), end()]
