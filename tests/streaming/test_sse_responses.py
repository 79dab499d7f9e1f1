"""The fold of turn events into the events and the object of the Responses API."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.responses_schema import event_errors, resource_errors
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
    TextDelta,
    TextReset,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnEvent,
    TurnFinished,
    TurnStarted,
)
from hermes.domain.messages import (
    AssistantMessage,
    FinishReason,
    Reasoning,
    ToolCall,
    ToolOutcome,
)
from hermes.domain.runs import Run, RunKind, RunOutcome, RunState
from hermes.domain.turn import TurnError, TurnState
from hermes.domain.usage import Usage
from hermes.streaming.wire.response_resource import FunctionTool, ResponseResource
from hermes.streaming.wire.responses import ResponseEvent, ResponseStream

BASE = ResponseResource(id="resp_1", created_at=1000, status="in_progress", model="hermes")
QUEUED = msgspec.structs.replace(BASE, status="queued", background=True)
STARTED = TurnStarted(turn_id="t", session_id="s", agent_id="main", model="m")


def call(number: int, name: str = "read_file") -> ToolCall:
    return ToolCall(id=f"call_{number}", name=name, arguments=f'{{"n":{number}}}')


def completed(text: str = "", *calls: ToolCall, **more: Any) -> MessageCompleted:
    return MessageCompleted(
        message_id=1, message=AssistantMessage(text=text, tool_calls=calls, **more)
    )


def tool_started(number: int) -> ToolStarted:
    return ToolStarted(
        call_id=f"call_{number}", name="read_file", arguments={"n": number}, emoji="", label=""
    )


def tool_finished(number: int, outcome: ToolOutcome = ToolOutcome.OK) -> ToolFinished:
    return ToolFinished(
        call_id=f"call_{number}",
        name="read_file",
        outcome=outcome,
        seconds=0.1,
        preview="short",
        output=f"output {number}",
    )


def finished(outcome: TurnState = TurnState.DONE, text: str = "", **more: Any) -> TurnFinished:
    usage = Usage(input_tokens=10, output_tokens=5, cache_read_tokens=4, reasoning_tokens=2)
    return TurnFinished(
        outcome=outcome, text=text, usage=usage, cost_usd=0.0, model_calls=1, **more
    )


def plain(resource: ResponseResource) -> Any:
    return msgspec.json.decode(msgspec.json.encode(resource))


def run(events: list[TurnEvent], base: ResponseResource = BASE) -> tuple[list[Any], Any]:
    """Fold events; return the events sent and the final object, as clients read them."""
    fold = ResponseStream(base)
    sent = fold.begin()
    for event in events:
        sent += fold.feed(event)
    bodies = [body(event) for event in sent]
    return bodies, plain(fold.resource)


def body(event: ResponseEvent) -> Any:
    return msgspec.json.decode(event.frame().split(b"data: ")[1])


def names(bodies: list[Any]) -> list[str]:
    return [body["type"].removeprefix("response.") for body in bodies]


def texts(resource: Any) -> list[str]:
    return [
        part["text"]
        for item in resource["output"]
        if item["type"] == "message"
        for part in item["content"]
    ]


def test_a_plain_answer_is_one_message_item_with_one_part() -> None:
    bodies, resource = run(
        [STARTED, TextDelta("Hel"), TextDelta("lo"), completed("Hello"), finished(text="Hello")]
    )
    assert names(bodies) == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert texts(resource) == ["Hello"]
    assert resource["status"] == "completed"
    assert resource["usage"] == {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 15,
    }


def test_a_frame_names_its_event_and_carries_the_same_type() -> None:
    created = ResponseStream(BASE).begin()[0].frame()
    assert created.startswith(b"event: response.created\ndata: {")
    assert created.endswith(b"}\n\n")


def test_tools_of_the_agent_are_calls_of_a_server_in_the_order_of_the_calls() -> None:
    events: list[TurnEvent] = [
        STARTED,
        TextDelta("Let me see."),
        completed("Let me see.", call(1), call(2), finish=FinishReason.TOOL_CALLS),
        tool_started(1),
        tool_started(2),
        ToolProgress(call_id="call_1", text="..."),
        tool_finished(2),
        tool_finished(1),
        TextDelta("Done."),
        completed("Done."),
        finished(text="Done."),
    ]
    bodies, resource = run(events)
    kinds = [(item["type"], item.get("output")) for item in resource["output"]]
    assert kinds == [
        ("message", None),
        ("mcp_call", "output 1"),
        ("mcp_call", "output 2"),
        ("message", None),
    ]
    assert resource["output"][1]["arguments"] == '{"n":1}'
    assert {item["server_label"] for item in resource["output"][1:3]} == {"hermes"}
    assert [name for name in names(bodies) if "call" in name] == [
        *["mcp_call_arguments.delta", "mcp_call_arguments.done", "mcp_call.in_progress"] * 2,
        *["mcp_call.completed"] * 2,
    ]
    assert texts(resource) == ["Let me see.", "Done."]


@pytest.mark.parametrize(
    ("outcome", "status", "event"),
    [
        (ToolOutcome.ERROR, "failed", "mcp_call.failed"),
        (ToolOutcome.REFUSED, "failed", "mcp_call.failed"),
        (ToolOutcome.UNKNOWN, "incomplete", "mcp_call.failed"),
    ],
)
def test_a_call_that_fails_says_so(outcome: ToolOutcome, status: str, event: str) -> None:
    bodies, resource = run(
        [STARTED, completed("", call(1)), tool_finished(1, outcome), completed("No."), finished()]
    )
    made = resource["output"][0]
    assert (made["status"], made["output"]) == (status, None)
    assert made["error"]["content"] == [{"type": "text", "text": "output 1"}]
    assert event in names(bodies)


def test_calls_of_client_tools_come_without_output_and_complete_the_response() -> None:
    weather = ToolCall(id="c1", name="get_weather", arguments='{"city":"Bern"}')
    base = msgspec.structs.replace(BASE, tools=(FunctionTool(name="get_weather"),))
    bodies, resource = run([STARTED, completed("", weather), finished(handed=(weather,))], base)
    assert [item["type"] for item in resource["output"]] == ["function_call"]
    assert resource["status"] == "completed"
    assert names(bodies)[2:6] == [
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
    ]
    assert bodies[2]["item"]["arguments"] == ""
    assert bodies[4]["arguments"] == '{"city":"Bern"}'


def test_reasoning_is_an_item_before_the_message() -> None:
    thought = Reasoning(text="Hmm, well.")
    bodies, resource = run(
        [
            STARTED,
            ReasoningDelta("Hmm, "),
            ReasoningDelta("well."),
            TextDelta("Yes."),
            completed("Yes.", reasoning=thought),
            finished(text="Yes."),
        ]
    )
    assert [item["type"] for item in resource["output"]] == ["reasoning", "message"]
    assert resource["output"][0]["summary"] == [{"type": "summary_text", "text": "Hmm, well."}]
    assert names(bodies).index("reasoning_summary_part.done") < names(bodies).index(
        "output_text.delta"
    )


def test_live_and_retold_turns_give_the_same_object() -> None:
    thought = Reasoning(text="Think.")
    first = completed("A", call(1), call(2), reasoning=thought)
    live: list[TurnEvent] = [
        STARTED,
        ReasoningDelta("Thi"),
        ReasoningDelta("nk."),
        TextDelta("A"),
        first,
        tool_started(1),
        tool_started(2),
        tool_finished(2),
        tool_finished(1),
        TextDelta("B"),
        TextReset(),
        TextDelta("B"),
        TextDelta("C"),
        completed("BC"),
        finished(text="BC"),
    ]
    told: list[TurnEvent] = [
        STARTED,
        ReasoningDelta("Think."),
        TextDelta("A"),
        first,
        tool_started(1),
        tool_finished(1),
        tool_started(2),
        tool_finished(2),
        TextDelta("BC"),
        completed("BC"),
        finished(text="BC"),
    ]
    assert run(live)[1] == run(told)[1]


def test_a_repeated_beginning_after_a_restart_is_sent_once() -> None:
    bodies, resource = run(
        [
            STARTED,
            TextDelta("The answer"),
            TextReset(),
            TextDelta("The "),
            TextDelta("answer is 42."),
            completed("The answer is 42."),
            finished(text="The answer is 42."),
        ]
    )
    deltas = [body["delta"] for body in bodies if body["type"] == "response.output_text.delta"]
    assert deltas == ["The answer", " is 42."]
    assert texts(resource) == ["The answer is 42."]


def test_another_text_after_a_restart_goes_on_in_a_new_part_of_the_item() -> None:
    bodies, resource = run(
        [
            STARTED,
            TextDelta("One thing"),
            TextReset(),
            TextDelta("Another"),
            completed("Another"),
            finished(text="Another"),
        ]
    )
    done = [
        (body["content_index"], body["text"])
        for body in bodies
        if body["type"] == "response.output_text.done"
    ]
    assert done == [(0, "One thing"), (1, "Another")]
    assert texts(resource) == ["Another"]
    assert len(resource["output"]) == 1


def test_what_an_earlier_attempt_said_is_not_said_again_after_a_resume() -> None:
    said = completed("Looking.", call(1)).message
    resumed = TurnStarted(
        turn_id="t", session_id="s", agent_id="main", model="m", resumes=1, earlier=(said,)
    )
    ending: list[TurnEvent] = [TextDelta("Found."), completed("Found."), finished(text="Found.")]
    known: list[TurnEvent] = [
        STARTED,
        TextDelta("Looking."),
        completed("Looking.", call(1)),
        tool_finished(1),
    ]
    bodies, resource = run([*known, TextDelta("Fo"), resumed, *ending])
    assert texts(resource) == ["Looking.", "Found."]
    deltas = [body["delta"] for body in bodies if body["type"] == "response.output_text.delta"]
    assert "".join(deltas) == "Looking.Found."
    bodies, resource = run([resumed, *ending])
    assert texts(resource) == ["Looking.", "Found."]
    assert sum(item["type"] == "mcp_call" for item in resource["output"]) == 1


def test_an_answer_in_two_replies_because_of_its_length_is_one_message() -> None:
    events: list[TurnEvent] = [
        STARTED,
        TextDelta("Part one, "),
        completed("Part one, ", finish=FinishReason.LENGTH),
        TextDelta("part two."),
        completed("part two."),
        finished(text="Part one, part two."),
    ]
    _, resource = run(events)
    assert texts(resource) == ["Part one, part two."]
    assert resource["status"] == resource["output"][0]["status"] == "completed"


def test_an_answer_cut_off_by_its_limit_is_incomplete_and_says_why() -> None:
    cut = completed("Long", finish=FinishReason.LENGTH)
    bodies, resource = run([STARTED, TextDelta("Long"), cut, finished(text="Long")])
    assert bodies[-1]["type"] == "response.incomplete"
    assert resource["incomplete_details"] == {"reason": "max_output_tokens"}
    assert resource["output"][0]["status"] == "incomplete"


def test_a_failure_closes_the_open_message_and_names_the_error() -> None:
    error = TurnError(code="model", message="The model is down.", hint="Try later.")
    bodies, resource = run([STARTED, TextDelta("Half"), finished(TurnState.FAILED, error=error)])
    assert bodies[-1]["type"] == "response.failed"
    error_type, *rest = resource["error"].items()
    assert error_type == ("type", "server_error")
    assert dict(rest) == {"code": "model", "message": "The model is down. Try later."}
    assert resource["output"][0]["status"] == "incomplete"
    assert texts(resource) == ["Half"]


def run_ended(state: RunState | None) -> Run:
    return Run(
        id="resp_1",
        kind=RunKind.RESPONSE,
        key_id="owner",
        agent_id="main",
        session_id="s1",
        inbox_id=1,
        created_at=1000.0,
        updated_at=1234.5,
        outcome=None if state is None else RunOutcome(state=state),
    )


@pytest.mark.parametrize(
    ("base", "state", "status"),
    [
        (BASE, None, "incomplete"),
        (QUEUED, None, "cancelled"),
        (BASE, RunState.CANCELLED, "cancelled"),
        (QUEUED, RunState.INCOMPLETE, "incomplete"),
    ],
)
def test_an_interrupted_response_is_incomplete_or_cancelled(
    base: ResponseResource, state: RunState | None, status: str
) -> None:
    fold = ResponseStream(base)
    fold.begin()
    fold.feed(TextDelta("Half"))
    last = fold.feed(finished(TurnState.INTERRUPTED), run_ended(state))[-1]
    assert last.name == "response.incomplete"
    assert fold.resource.status == status
    assert fold.resource.completed_at is None
    assert not resource_errors(plain(fold.resource))


def test_only_a_completed_response_has_a_time_of_completion() -> None:
    fold = ResponseStream(BASE)
    fold.feed(completed("Yes."))
    fold.feed(finished(text="Yes."), run_ended(RunState.COMPLETED))
    assert fold.resource.completed_at == 1234


def test_in_the_background_a_response_is_queued_until_its_turn_begins() -> None:
    bodies, _ = run([STARTED, completed("Hi"), finished(text="Hi")], QUEUED)
    assert names(bodies)[:3] == ["created", "queued", "in_progress"]
    statuses = [body["response"]["status"] for body in bodies if "response" in body]
    assert statuses == ["queued", "queued", "in_progress", "completed"]


def test_approvals_are_events_of_our_own_with_a_number() -> None:
    request = ApprovalRequest(
        id="ap_1",
        kind=ApprovalKind.APPROVAL,
        agent_id="main",
        session_id="s",
        turn_id="t",
        call_id="call_1",
        tool="terminal",
        arguments_hash="",
        subject="rm -rf secret",
        reason="deletes files",
        pattern="rm",
        choices=("once", "deny"),
        created_at=1.0,
    )
    fold = ResponseStream(BASE, lambda text: text.replace("secret", "***"))
    fold.begin()
    asked = body(fold.feed(ApprovalAsked(request=request))[0])
    decision = Decision(state=ApprovalState.APPROVED, choice=Choice.ONCE)
    answered = body(fold.feed(ApprovalAnswered(approval_id="ap_1", decision=decision))[0])
    assert asked["type"] == "hermes:approval.request"
    assert (asked["id"], asked["command"]) == ("ap_1", "rm -rf ***")
    assert answered["type"] == "hermes:approval.responded"
    assert (answered["id"], answered["choice"]) == ("ap_1", "once")
    assert [asked["sequence_number"], answered["sequence_number"]] == [2, 3]


def test_secrets_in_arguments_and_thoughts_are_taken_out() -> None:
    fold = ResponseStream(BASE, lambda text: text.replace("hunter2", "***"))
    made = ToolCall(id="c", name="login", arguments='{"password":"hunter2"}')
    sent = fold.feed(ReasoningDelta("It is hunter2."))
    sent += fold.feed(completed("", made, reasoning=Reasoning(text="It is hunter2.")))
    sent += fold.feed(finished())
    assert not any(b"hunter2" in event.frame() for event in sent)
    assert b'"arguments":"{\\"password\\":\\"***\\"}"' in sent[-1].frame()


def test_a_stream_that_ends_because_hermes_stops_says_so_and_does_not_end_the_response() -> None:
    error = TurnError(code="shutdown", message="Hermes is stopping.")
    bodies, resource = run([STARTED, finished(TurnState.INTERRUPTED, error=error)])
    assert bodies[-1]["type"] == "error"
    assert bodies[-1]["error"]["code"] == "shutdown"
    assert resource["status"] == "in_progress"
    assert not event_errors(bodies[-1])


def test_an_answer_that_came_without_a_message_is_still_shown() -> None:
    _, resource = run([STARTED, finished(text="From a hook.")])
    assert texts(resource) == ["From a hook."]


def test_the_object_can_be_read_at_any_time() -> None:
    fold = ResponseStream(BASE)
    fold.begin()
    fold.feed(STARTED)
    fold.feed(ReasoningDelta("Hm"))
    assert fold.resource.output[0] == msgspec.convert(
        {"type": "reasoning", "id": "rs_1_0", "summary": [{"type": "summary_text", "text": "Hm"}]},
        type(fold.resource.output[0]),
    )
    fold.feed(TextDelta("So far"))
    assert texts(plain(fold.resource)) == ["So far"]
    assert not resource_errors(plain(fold.resource))


words = st.text(st.sampled_from("ab "), max_size=4)
calls = st.integers(0, 4)
messages = st.builds(
    lambda text, numbers, thought, finish: completed(
        text,
        *[call(number) for number in numbers],
        reasoning=Reasoning(text=thought) if thought else None,
        finish=finish,
    ),
    words,
    st.lists(calls, max_size=2, unique=True),
    words,
    st.sampled_from(FinishReason),
)
events = st.one_of(
    st.builds(TextDelta, words),
    st.builds(ReasoningDelta, words),
    st.just(TextReset()),
    st.just(STARTED),
    st.builds(
        lambda earlier, resumes: TurnStarted(
            turn_id="t",
            session_id="s",
            agent_id="main",
            model="m",
            resumes=resumes,
            earlier=tuple(one.message for one in earlier),
        ),
        st.lists(messages, max_size=2),
        st.integers(1, 2),
    ),
    st.builds(tool_started, calls),
    st.builds(tool_finished, calls, st.sampled_from(ToolOutcome)),
    st.just(Notice(code="retry", text="again")),
    messages,
)
ends = st.builds(
    finished,
    st.sampled_from([TurnState.DONE, TurnState.FAILED, TurnState.INTERRUPTED]),
    words,
)


@given(st.lists(events, max_size=12), ends, st.sampled_from([BASE, QUEUED]))
def test_any_turn_gives_a_well_formed_stream(
    said: list[TurnEvent], end: TurnFinished, base: ResponseResource
) -> None:
    bodies, resource = run([*said, end], base)
    assert [body["sequence_number"] for body in bodies] == list(range(len(bodies)))
    assert [error for body in bodies for error in event_errors(body)] == []
    assert resource_errors(resource) == []
    assert bodies[-1]["response"] == resource

    added = {b["output_index"]: b["item"]["id"] for b in bodies if b["type"].endswith("item.added")}
    done = {b["output_index"]: b["item"] for b in bodies if b["type"].endswith("item.done")}
    assert sorted(added) == list(range(len(added)))
    assert added == {index: item["id"] for index, item in done.items()}
    assert len(set(added.values())) == len(added)
    assert [done[index] for index in sorted(done)] == resource["output"]


def ledger_view(said: list[TurnEvent]) -> list[TurnEvent]:
    """Return the turn as it is told later: whole messages only."""
    told: list[TurnEvent] = []
    for event in said:
        if isinstance(event, MessageCompleted):
            if event.message.text:
                told.append(TextDelta(event.message.text))
            told.append(event)
    return told


pieces = st.lists(st.text(st.sampled_from("abc "), min_size=1, max_size=3), min_size=1, max_size=4)


@st.composite
def replies(draw: st.DrawFn) -> list[TurnEvent]:
    """One reply: attempts that were given up, then the one that counts, told in deltas."""
    told: list[TurnEvent] = []
    for attempt in draw(st.lists(pieces, max_size=2)):
        told += [TextDelta(piece) for piece in attempt]
        told.append(TextReset())
    final = draw(pieces)
    told += [TextDelta(piece) for piece in final]
    return [*told, completed("".join(final))]


@given(st.lists(replies(), min_size=1, max_size=3))
def test_deltas_of_each_part_make_up_its_text_and_retelling_gives_the_same(
    turns: list[list[TurnEvent]],
) -> None:
    said = [event for reply in turns for event in reply]
    bodies, resource = run([STARTED, *said, finished(text="x")])
    parts: dict[tuple[int, int], str] = {}
    for body in bodies:
        if body["type"] == "response.output_text.delta":
            place = (body["output_index"], body["content_index"])
            parts[place] = parts.get(place, "") + body["delta"]
        if body["type"] == "response.output_text.done":
            assert parts[body["output_index"], body["content_index"]] == body["text"]
    assert run([STARTED, *ledger_view(said), finished(text="x")])[1] == resource
