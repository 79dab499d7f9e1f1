"""Runs and session chats as server-sent events: nothing missing, nothing twice."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hermes.domain.approvals import ApprovalKind, ApprovalRequest, ApprovalState, Choice, Decision
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
    UsageReported,
)
from hermes.domain.messages import AssistantMessage, Reasoning, ToolCall, ToolOutcome
from hermes.domain.runs import LoggedEvent
from hermes.domain.turn import TurnError, TurnState
from hermes.domain.usage import Usage
from hermes.streaming.wire.runs import SessionStream, run_frame

USAGE = Usage(input_tokens=7, output_tokens=3)
ASKED = ApprovalRequest(
    id="appr_1",
    kind=ApprovalKind.APPROVAL,
    agent_id="main",
    session_id="s1",
    turn_id="t1",
    call_id="c1",
    tool="terminal",
    arguments_hash="h",
    subject="curl -H 'token: hunter2'",
    reason="talks to the network",
    pattern="curl *",
    choices=("once", "deny"),
    created_at=3.0,
    expires_at=9.0,
)
NAMES = frozenset(
    [
        "run.started",
        "run.completed",
        "run.failed",
        "run.cancelled",
        "message.delta",
        "message.reset",
        "message.completed",
        "reasoning.delta",
        "tool.started",
        "tool.progress",
        "tool.completed",
        "approval.request",
        "approval.responded",
        "steer.taken",
        "notice",
        "usage",
    ]
)
STARTED = TurnStarted(turn_id="t1", session_id="s1", agent_id="main", model="m")


def finished(outcome: TurnState = TurnState.DONE, text: str = "", **more: Any) -> TurnFinished:
    return TurnFinished(
        outcome=outcome, text=text, usage=USAGE, cost_usd=0.5, model_calls=1, **more
    )


def completed(text: str, *calls: str) -> MessageCompleted:
    made = tuple(ToolCall(id=call, name="read_file", arguments="{}") for call in calls)
    return MessageCompleted(message_id=4, message=AssistantMessage(text=text, tool_calls=made))


def parsed(stream: bytes) -> list[dict[str, Any]]:
    """Read frames as the standard says; `name` and `id` come from the fields around the data."""
    found = []
    for block in stream.decode().split("\n\n")[:-1]:
        fields = [line.partition(": ") for line in block.split("\n")]
        names = [name for name, _, _ in fields]
        assert len(set(names)) == len(names), "one line of each field"
        event = {name: value for name, _, value in fields}
        found.append(
            json.loads(event["data"]) | {"_id": event.get("id"), "_name": event.get("event")}
        )
    return found


def logged(events: list[TurnEvent]) -> list[LoggedEvent]:
    return [LoggedEvent(seq=n, at=n / 2, event=event) for n, event in enumerate(events, 1)]


def told(event: TurnEvent) -> dict[str, Any]:
    (only,) = parsed(run_frame("run_1", LoggedEvent(seq=3, at=1.5, event=event), str))
    return only


AWKWARD = 'ab :\n\r\t\0"\\é😀\u2028\u0085'
"""What could break a frame apart, and a little else: cheap to draw on a busy machine."""
texts = st.text(AWKWARD, max_size=8)
asides = st.one_of(
    st.builds(ReasoningDelta, texts),
    st.builds(
        ToolStarted, call_id=texts, name=texts, arguments=st.just({}), emoji=texts, label=texts
    ),
    st.builds(ToolProgress, call_id=texts, text=texts),
    st.builds(
        ToolFinished,
        call_id=texts,
        name=texts,
        outcome=st.sampled_from(ToolOutcome),
        seconds=st.floats(0, 9),
        preview=texts,
    ),
    st.just(ApprovalAsked(request=ASKED)),
    st.builds(SteerTaken, text=texts),
    st.builds(Notice, code=texts, text=texts),
    st.builds(
        UsageReported,
        usage=st.just(USAGE),
        cost_usd=st.none(),
        context_tokens=st.just(1),
        context_window=st.none(),
    ),
)


@st.composite
def messages(draw: st.DrawFn) -> tuple[list[TurnEvent], str]:
    """One message as a turn streams it: maybe started over, maybe cut short at the end."""
    events: list[TurnEvent] = []
    for _ in range(draw(st.integers(0, 2))):
        void = [TextDelta(text) for text in draw(st.lists(texts, min_size=1, max_size=3))]
        events += [*void, TextReset()]
    pieces = draw(st.lists(texts, max_size=4))
    shown = draw(st.integers(0, len(pieces)))
    events += [TextDelta(piece) for piece in pieces[:shown]]
    events.insert(draw(st.integers(0, len(events))), draw(asides))
    text = "".join(pieces)
    return [*events, completed(text)], text


@st.composite
def turns(draw: st.DrawFn) -> tuple[list[TurnEvent], list[str]]:
    spoken = draw(st.lists(messages(), max_size=4))
    events: list[TurnEvent] = [STARTED]
    for part, _ in spoken:
        events += part
    said = [text for _, text in spoken]
    return [*events, finished(text=said[-1] if said else "")], said


class Reader:
    """A client of the run's events that keeps what it saw over reconnects."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.said: list[str] = []
        self.output: str | None = None

    def read(self, stream: bytes) -> None:
        for event in parsed(stream):
            self.ids.append(int(event["_id"]))
            match event["event"]:
                case "message.completed":
                    self.said.append(event["text"])
                case "run.completed":
                    self.output = event["output"]


@given(turns(), st.lists(st.integers(0, 40), max_size=4))
def test_a_reader_that_comes_back_after_any_event_gets_exactly_the_rest(
    turn: tuple[list[TurnEvent], list[str]], reads: list[int]
) -> None:
    events, said = turn
    log = logged(events)
    reader = Reader()
    for count in [*reads, len(log)]:
        after = reader.ids[-1] if reader.ids else 0
        rest = [each for each in log if each.seq > after][:count]
        reader.read(b"".join(run_frame("run_1", each, str) for each in rest))
    assert reader.ids == list(range(1, len(log) + 1))
    assert reader.said == said
    assert reader.output == (said[-1] if said else "")


@given(turns())
def test_deltas_that_no_reset_voids_begin_the_message_that_is_completed(
    turn: tuple[list[TurnEvent], list[str]],
) -> None:
    stream = b"".join(run_frame("run_1", each, str) for each in logged(turn[0]))
    shown = ""
    for event in parsed(stream):
        match event["event"]:
            case "message.delta":
                shown += event["delta"]
            case "message.reset":
                shown = ""
            case "message.completed":
                assert event["text"].startswith(shown)
                shown = ""


@given(turns())
def test_every_frame_says_in_its_data_what_it_is_and_has_no_name_of_its_own(
    turn: tuple[list[TurnEvent], list[str]],
) -> None:
    for each in logged(turn[0]):
        (event,) = parsed(run_frame("run_1", each, str))
        assert event["_name"] is None
        assert event["event"] in NAMES
        assert event["run_id"] == "run_1"
        assert event["timestamp"] == each.at


def test_a_run_that_goes_on_after_a_restart_voids_the_deltas_and_tells_what_was_said() -> None:
    earlier = (AssistantMessage(text="Let me look."),)
    resumed = TurnStarted(
        turn_id="t1", session_id="s1", agent_id="main", model="m", resumes=1, earlier=earlier
    )
    event = told(resumed)
    assert (event["event"], event["reason"]) == ("message.reset", "resume")
    assert [message["text"] for message in event["messages"]] == ["Let me look."]
    assert told(STARTED)["event"] == "run.started"


def test_what_an_approval_is_about_is_redacted_and_shows_its_choices() -> None:
    at = LoggedEvent(seq=1, at=1.0, event=ApprovalAsked(request=ASKED))
    (event,) = parsed(run_frame("run_1", at, lambda text: text.replace("hunter2", "***")))
    assert event["event"] == "approval.request"
    assert event["command"] == "curl -H 'token: ***'"
    assert (event["id"], event["pattern_key"]) == ("appr_1", "curl *")
    assert event["choices"] == ["once", "deny"]
    decision = Decision(state=ApprovalState.APPROVED, choice=Choice.ONCE, by="ada")
    answered = told(ApprovalAnswered(approval_id="appr_1", decision=decision))
    assert (answered["event"], answered["choice"]) == ("approval.responded", "once")


def test_tools_are_told_with_their_call_and_whether_they_failed() -> None:
    failed = ToolFinished(
        call_id="c1", name="terminal", outcome=ToolOutcome.ERROR, seconds=1.23456, preview="exit 1"
    )
    event = told(failed)
    assert event["event"] == "tool.completed"
    assert (event["call_id"], event["tool"], event["error"]) == ("c1", "terminal", True)
    assert event["duration"] == 1.235


def test_the_three_ends_of_a_run_have_their_names() -> None:
    assert told(finished(text="42"))["output"] == "42"
    assert told(finished(text="42"))["usage"]["total_tokens"] == 10
    error = TurnError(code="provider", message="The model is away.", hint="Try again.")
    failed = told(finished(TurnState.FAILED, error=error))
    assert failed["event"] == "run.failed"
    assert failed["error"] == {"code": "provider", "message": "The model is away. Try again."}
    assert told(finished(TurnState.INTERRUPTED))["event"] == "run.cancelled"


def test_calls_of_client_tools_come_with_the_end_of_the_run() -> None:
    call = ToolCall(id="c9", name="get_weather", arguments='{"city":"Bonn"}')
    event = told(finished(handed=(call,)))
    assert event["event"] == "run.completed"
    function = {"name": "get_weather", "arguments": '{"city":"Bonn"}'}
    assert event["tool_calls"] == [{"id": "c9", "type": "function", "function": function}]


def test_reasoning_is_in_its_own_events_and_with_the_complete_message() -> None:
    assert told(ReasoningDelta("hm"))["event"] == "reasoning.delta"
    message = AssistantMessage(text="yes", reasoning=Reasoning(text="hm"))
    event = told(MessageCompleted(message_id=1, message=message))
    assert (event["text"], event["reasoning"]) == ("yes", "hm")


# -- session chats ---------------------------------------------------------------


def folded(events: list[TurnEvent]) -> list[dict[str, Any]]:
    stream = SessionStream("s1", "run_1", now=lambda: 5.0, redact=str)
    return parsed(b"".join(stream.feed(event) for event in events))


@given(turns())
def test_a_session_chat_builds_every_message_from_its_deltas(
    turn: tuple[list[TurnEvent], list[str]],
) -> None:
    events, said = turn
    built: dict[str, str] = {}
    for event in folded(events):
        match event["_name"]:
            case "message.started":
                assert event["message"]["id"] not in built
                built[event["message"]["id"]] = ""
            case "assistant.delta":
                built[event["message_id"]] += event["delta"]
            case "assistant.reset":
                built[event["message_id"]] = ""
            case "message.completed":
                assert built[event["message_id"]] == event["content"]
    assert [text for text in built.values() if text] == [text for text in said if text]


@given(turns())
def test_events_of_a_session_chat_are_numbered_and_end_once(
    turn: tuple[list[TurnEvent], list[str]],
) -> None:
    events, said = turn
    shown = folded(events)
    assert [event["seq"] for event in shown] == list(range(1, len(shown) + 1))
    assert all(event["session_id"] == "s1" and event["run_id"] == "run_1" for event in shown)
    names = [event["_name"] for event in shown]
    assert names[0] == "run.started"
    assert names[-3:] == ["assistant.completed", "run.completed", "done"]
    assert names.count("assistant.completed") == names.count("done") == 1
    assert shown[-3]["content"] == (said[-1] if said else "")


def test_a_message_that_is_told_after_the_fact_shows_the_same_text() -> None:
    live: list[TurnEvent] = [
        STARTED,
        TextDelta("Hel"),
        TextDelta("lo"),
        completed("Hello"),
        finished(text="Hello"),
    ]
    later: list[TurnEvent] = [STARTED, completed("Hello"), finished(text="Hello")]
    texts = [
        "".join(event.get("delta", "") for event in folded(events)) for events in (live, later)
    ]
    assert texts == ["Hello", "Hello"]


def test_what_an_earlier_attempt_said_is_told_first() -> None:
    resumed = TurnStarted(
        turn_id="t1",
        session_id="s1",
        agent_id="main",
        model="m",
        resumes=1,
        earlier=(AssistantMessage(text="First."),),
    )
    shown = folded([resumed, TextDelta("Then."), completed("Then."), finished(text="Then.")])
    contents = [event["content"] for event in shown if event["_name"] == "message.completed"]
    assert contents == ["First.", "Then."]


def test_a_failed_session_chat_says_why_and_is_done() -> None:
    error = TurnError(code="provider", message="The model is away.")
    shown = folded([STARTED, finished(TurnState.FAILED, error=error)])
    assert [event["_name"] for event in shown] == ["run.started", "error", "done"]
    assert shown[1]["message"] == "The model is away."


def test_an_interrupted_session_chat_keeps_what_was_said() -> None:
    shown = folded([STARTED, TextDelta("Hal"), completed("Hal"), finished(TurnState.INTERRUPTED)])
    last = next(event for event in shown if event["_name"] == "assistant.completed")
    assert (last["content"], last["interrupted"]) == ("Hal", True)


def test_a_tool_that_failed_is_told_under_another_name() -> None:
    good, bad = (
        ToolFinished(call_id="c1", name="terminal", outcome=outcome, seconds=1, preview="")
        for outcome in (ToolOutcome.OK, ToolOutcome.REFUSED)
    )
    names = [event["_name"] for event in folded([STARTED, good, bad])]
    assert names == ["run.started", "tool.completed", "tool.failed"]


def test_a_session_chat_that_a_stop_cuts_off_ends_with_an_error() -> None:
    stopping = TurnError(code="shutdown", message="This turn is kept and continues later.")
    end = finished(TurnState.INTERRUPTED, error=stopping)
    names = [event["_name"] for event in folded([STARTED, TextDelta("Hel"), end])]
    assert names[-2:] == ["error", "done"]
    assert "run.completed" not in names
