"""A turn as it is printed."""

import re

import pytest
from msgspec.structs import replace

from fakes.cpu import least_cpu
from hermes.control.commands.context import ToolDetail
from hermes.domain.approvals import (
    ApprovalKind,
    ApprovalRequest,
    ApprovalState,
    Choice,
    Decision,
)
from hermes.domain.events import (
    ApprovalAnswered,
    ApprovalAsked,
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
from hermes.domain.messages import AssistantMessage, FinishReason, ToolOutcome
from hermes.domain.turn import TurnError, TurnState
from hermes.domain.usage import Usage
from hermes.domain.wording import harmless
from hermes.entry.terminal.paint import Colours, Painter, TerminalKind
from hermes.entry.terminal.render import RenderSettings, TurnRenderer, diff_lines
from hermes.entry.terminal.skins import load_skin
from hermes.streaming.units import width

SKIN = load_skin("default")
PLAIN = TerminalKind(colours=Colours.NONE, unicode=True, cursor=True)
ASCII = TerminalKind(colours=Colours.NONE, unicode=False, cursor=True)
TRUE = TerminalKind(colours=Colours.TRUECOLOR, unicode=True, cursor=True)


def tool(
    name: str = "read_file",
    label: str = "a.txt",
    *,
    outcome: ToolOutcome = ToolOutcome.OK,
    preview: str = "",
    diff: str | None = None,
) -> list[TurnEvent]:
    return [
        ToolStarted(call_id="c", name=name, arguments={}, emoji="📖", label=label),
        ToolFinished(
            call_id="c", name=name, outcome=outcome, seconds=1.25, preview=preview, diff=diff
        ),
    ]


def text(answer: str) -> list[TurnEvent]:
    message = MessageCompleted(message_id=1, message=AssistantMessage(text=answer))
    return [TextDelta(answer), message]


def finished(state: TurnState, error: TurnError | None = None) -> TurnFinished:
    return TurnFinished(
        outcome=state, text="", usage=Usage(), cost_usd=None, model_calls=1, error=error
    )


def printed(
    events: list[TurnEvent],
    *,
    cells: int = 60,
    kind: TerminalKind = PLAIN,
    settings: RenderSettings | None = None,
) -> list[str]:
    renderer = TurnRenderer(SKIN, kind, settings or RenderSettings())
    return [line for event in events for line in renderer.event(event, cells)]


def test_a_tool_line_has_emoji_verb_detail_and_duration() -> None:
    assert printed(tool()) == ["┊ 📖 read_file a.txt 1.2s"]


@pytest.mark.parametrize("cells", [20, 40, 80])
def test_a_tool_line_fits_whatever_its_detail(cells: int) -> None:
    lines = printed(tool(label="漢字" * 60), cells=cells)

    assert [line for line in lines if width(line) > cells] == []
    assert lines[0].endswith("1.2s")


def test_a_failed_tool_shows_why() -> None:
    lines = printed(tool(outcome=ToolOutcome.ERROR, preview="no such file\nmore\neven more"))

    assert lines == [
        "┊ 📖 read_file a.txt 1.2s [error]",
        "┊    no such file",
        "┊    more",
        "┊    even more",
    ]


def test_a_failing_command_looks_failed_and_shows_how_it_ended() -> None:
    started, done = tool("terminal", "make")
    assert isinstance(done, ToolFinished)
    output = "\n".join(f"line {n}" for n in range(20))
    failing = replace(done, failure="exit 2", output=output, preview=output[:10])

    lines = printed([started, failing])

    assert lines[:2] == ["┊ 📖 terminal make 1.2s [exit 2]", "┊    … 14 more lines: /output"]
    assert lines[-1] == "┊    line 19"
    assert printed([started, failing], kind=TRUE)[0].startswith(
        Painter(SKIN, TRUE)("x", "ui_error").partition("x")[0]
    )


def test_an_answer_that_goes_on_after_its_length_limit_has_no_break() -> None:
    cut = AssistantMessage(text="The beginning of a sen", finish=FinishReason.LENGTH)
    events: list[TurnEvent] = [TextDelta(cut.text), MessageCompleted(message_id=1, message=cut)]

    assert printed([*events, *text("tence.")]) == ["The beginning of a sentence."]
    assert printed([*events, finished(TurnState.DONE)]) == [cut.text]


def asked() -> ApprovalAsked:
    request = ApprovalRequest(
        id="a", kind=ApprovalKind.APPROVAL, agent_id="main", session_id="s", turn_id="t",
        call_id="c", tool="terminal", arguments_hash="", subject="rm -r x", reason="", pattern="",
        choices=tuple(Choice), created_at=0.0,
    )  # fmt: skip
    return ApprovalAsked(request=request)


def test_a_question_that_nobody_answers_is_told() -> None:
    late = Decision(state=ApprovalState.EXPIRED, text="nobody answered in time")
    expired = ApprovalAnswered(approval_id="a", decision=late)

    assert printed([asked(), expired]) == ["· expired: nobody answered in time"]
    assert printed([asked(), finished(TurnState.INTERRUPTED)]) == [
        "· denied: the turn was stopped",
        "· interrupted",
    ]


def test_failures_and_titles_reach_no_terminal_as_commands() -> None:
    error = TurnError(code="x", message="\x1b]0;bad\x07said", hint="\x9b2J")

    assert "\x1b" not in "".join(printed([finished(TurnState.FAILED, error)]))
    assert Painter(SKIN, PLAIN)("\x1b[2Jtitle") == "[2Jtitle"


@pytest.mark.parametrize(
    ("detail", "count"),
    [(ToolDetail.OFF, 0), (ToolDetail.NEW, 2), (ToolDetail.ALL, 3), (ToolDetail.VERBOSE, 6)],
)
def test_how_much_is_shown_of_tools(detail: ToolDetail, count: int) -> None:
    events = [
        *tool("read_file", preview="x"),
        *tool("read_file", preview="x"),
        *tool("patch", preview="x"),
    ]

    assert len(printed(events, settings=RenderSettings(detail=detail))) == count


def test_text_tools_and_text_are_kept_apart() -> None:
    lines = printed([*text("Looking."), *tool(), *tool(), *text("First.\n\nSecond.")])

    assert lines == [
        "Looking.",
        "",
        "┊ 📖 read_file a.txt 1.2s",
        "┊ 📖 read_file a.txt 1.2s",
        "",
        "First.",
        "",
        "Second.",
    ]


def test_a_different_answer_after_a_restart_is_announced() -> None:
    events = [TextDelta("First try"), TextReset(), *text("Second")]

    assert printed(events) == ["First try", "· the answer starts over", "", "Second"]


def test_a_thought_ends_when_the_answer_or_a_tool_begins() -> None:
    assert printed([ReasoningDelta("hm"), *tool()]) == ["▏ hm", "", "┊ 📖 read_file a.txt 1.2s"]
    assert printed([ReasoningDelta("hm"), *text("so")]) == ["▏ hm", "", "so"]


def test_a_running_tool_shows_its_last_line_until_it_ends() -> None:
    renderer = TurnRenderer(SKIN, PLAIN, RenderSettings())
    begun, ended = tool(label="make\n  all")
    renderer.event(begun, 60)
    renderer.event(ToolProgress(call_id="c", text="compiling\nlinking\n\n"), 60)

    assert renderer.live(60, 5) == ["┊ 📖 read_file make all · linking"]
    assert renderer.event(ended, 60) == ["┊ 📖 read_file make all 1.2s"]
    assert renderer.live(60, 5) == []


def test_the_end_closes_what_is_open() -> None:
    assert printed([TextDelta("half"), finished(TurnState.DONE)]) == ["half"]


def test_remarks_tell_what_happens() -> None:
    resumed = TurnStarted(turn_id="t", session_id="s", agent_id="main", model="m", resumes=1)
    events: list[TurnEvent] = [
        resumed,
        Notice(code="retry", text="trying again"),
        SteerTaken(text="left"),
    ]

    assert printed(events) == [
        "· resuming where the last process stopped",
        "· trying again",
        "· added to the running turn: left",
    ]


def test_a_resumed_turn_shows_what_had_been_said_before() -> None:
    earlier = (AssistantMessage(text="Looking around."),)
    resumed = TurnStarted(
        turn_id="t", session_id="s", agent_id="main", model="m", resumes=1, earlier=earlier
    )

    assert printed([resumed, *text("Found it.")]) == [
        "· resuming where the last process stopped",
        "",
        "Looking around.",
        "",
        "Found it.",
    ]


def test_escape_sequences_from_the_model_reach_no_terminal() -> None:
    attack = "\x1b]52;c;ZXZpbA==\x07\x1b[2J\x9b31m\u202egood\r\n\tend"

    assert harmless(attack) == "]52;c;ZXZpbA==[2J31mgood\n\tend"
    assert "\x1b" not in "".join(printed([TextDelta(attack), finished(TurnState.DONE)]))


def test_an_unfinished_block_is_live_and_printed_once() -> None:
    renderer = TurnRenderer(SKIN, PLAIN, RenderSettings())

    first = renderer.event(TextDelta("Some **bo"), 60)
    live = renderer.live(60, 5)
    renderer.event(TextDelta("ld** words"), 60)
    done = renderer.event(text("Some **bold** words")[1], 60)

    assert first == []
    assert live == ["Some **bo"]
    assert done == ["Some bold words"]
    assert renderer.live(60, 5) == []


def test_raw_text_is_left_as_written() -> None:
    lines = printed(text("# not a heading\n**x**"), settings=RenderSettings(markdown=False))

    assert lines == ["# not a heading", "**x**"]


@pytest.mark.parametrize(("shown", "lines"), [(True, ["▏ Hm, let me see."]), (False, [])])
def test_thoughts_are_shown_if_wanted(shown: bool, lines: list[str]) -> None:
    events = [ReasoningDelta("Hm, let me see."), *tool()]

    before_tool = [
        line
        for line in printed(list(events), settings=RenderSettings(reasoning=shown))
        if line.startswith("▏")
    ]

    assert before_tool == lines


def test_a_diff_is_bounded_and_coloured() -> None:
    diff = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n" + "".join(f"+line {n}\n" for n in range(100))

    lines = diff_lines(diff, Painter(SKIN, TRUE), 60)

    assert len(lines) == 41
    assert "line 0" in lines[2]
    assert lines[2].startswith("\x1b[38;2;135;175;95m")
    assert "62 more lines" in lines[-1]


def test_a_diff_names_every_file_also_one_that_is_gone() -> None:
    diff = (
        "--- a/old.sql\n+++ /dev/null\n@@ -1 +0,0 @@\n--- a comment\n--- a/x\n+++ b/x\n@@ -1 +1 @@"
    )

    lines = [
        re.sub(r"\x1b\[[\d;]*m", "", line).strip()
        for line in diff_lines(diff, Painter(SKIN, TRUE), 60)
    ]

    assert lines == ["old.sql (deleted)", "@@ -1 +0,0 @@", "--- a comment", "x", "@@ -1 +1 @@"]


def test_a_failure_is_shown_with_its_hint() -> None:
    error = TurnError(code="model", message="No answer.", hint="Check the key.")

    assert printed([finished(TurnState.FAILED, error)]) == ["✗ No answer.", "  → Check the key."]
    assert printed([finished(TurnState.INTERRUPTED)]) == ["· interrupted"]


def test_code_is_highlighted_and_copies_clean() -> None:
    lines = printed(text("```python\nx = 1\n```"), kind=TRUE)

    assert "\x1b[" in lines[0]
    assert printed(text("```python\nx = 1\n```")) == ["  x = 1"]


def test_without_unicode_everything_is_ascii() -> None:
    lines = printed([*tool(), *text("- item\n\n> “quoted”")], kind=ASCII)

    assert all(line.isascii() for line in lines)
    assert any("* item" in line for line in lines)


@pytest.mark.parametrize("piece", ["[", "|a|b|\n|-|-|\n", "*a ", "![", "- a\n"])
def test_text_without_end_is_shown_in_parts_at_the_price_of_its_length(piece: str) -> None:
    def show(length: int) -> None:
        renderer = TurnRenderer(SKIN, PLAIN, RenderSettings())
        text = piece * (length // len(piece))
        for at in range(0, len(text), 400):
            renderer.event(TextDelta(text[at : at + 400]), 80)
            renderer.live(80, 20)

    # Four times the text: up to 7.5 times the time, as the beginning is cheap.
    assert least_cpu(lambda: show(32_000)) < 11 * least_cpu(lambda: show(8_000))
