"""A turn as chat completion chunks: what clients see of every event."""

from fakes.chat_events import CALL, chunks, content, finished, message, named, started, stream
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
    Notice,
    ReasoningDelta,
    TextDelta,
    ToolFinished,
    ToolProgress,
    ToolStarted,
)
from hermes.domain.messages import FinishReason, ToolCall, ToolOutcome
from hermes.domain.turn import TurnError, TurnState
from hermes.streaming.wire.frames import frame


def test_a_frame_has_its_id_and_its_name_before_the_data() -> None:
    assert frame(b"{}") == b"data: {}\n\n"
    assert frame(b"{}", event="ping", id="7") == b"id: 7\nevent: ping\ndata: {}\n\n"


def test_the_role_comes_first_then_the_text_then_the_reason_and_the_usage() -> None:
    wire = stream(
        started(),
        TextDelta("Hel"),
        TextDelta('lo "you"\n'),
        message('Hello "you"\n'),
        finished("x"),
    )
    first, one, two, last = chunks(wire)
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert first["object"] == "chat.completion.chunk"
    assert first["created"] == 1700000000
    assert first["model"] == "hermes"
    assert one["choices"][0]["delta"] == {"content": "Hel"}
    assert two["choices"][0]["delta"] == {"content": 'lo "you"\n'}
    assert {chunk["id"] for chunk in chunks(wire)} == {"chatcmpl-1"}
    assert last["choices"][0] == {
        "index": 0,
        "delta": {},
        "logprobs": None,
        "finish_reason": "stop",
    }
    assert last["usage"] == {
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "total_tokens": 120,
        "prompt_tokens_details": {"cached_tokens": 64},
        "completion_tokens_details": {"reasoning_tokens": 7},
    }
    assert "hermes" not in last


def test_with_include_usage_the_usage_has_a_chunk_of_its_own() -> None:
    *_, last, usage = chunks(stream(started(), finished("Hi"), include_usage=True))
    assert last["choices"][0]["finish_reason"] == "stop"
    assert "usage" not in last
    assert usage["choices"] == []
    assert usage["usage"]["total_tokens"] == 120


def test_tools_are_named_events_and_never_content() -> None:
    wire = stream(
        started(),
        TextDelta("Let me look."),
        message("Let me look.", CALL),
        ToolStarted(call_id="call_1", name="read_file", arguments={}, emoji="📖", label="a.txt"),
        ToolProgress(call_id="call_1", text="half"),
        ToolFinished(
            call_id="call_1", name="read_file", outcome=ToolOutcome.OK, seconds=0.1, preview="x"
        ),
        ToolFinished(
            call_id="call_2", name="terminal", outcome=ToolOutcome.REFUSED, seconds=0.1, preview=""
        ),
        TextDelta("It is empty."),
        message("It is empty."),
        finished("It is empty."),
    )
    assert content(wire) == "Let me look.\n\nIt is empty."
    (run, running), (_, completed), (_, failed) = named(wire)
    assert run == "hermes.tool.progress"
    assert running["tool"] == "read_file"
    assert running["emoji"] == "📖"
    assert running["label"] == "a.txt"
    assert running["toolCallId"] == "call_1"
    assert [running["status"], completed["status"], failed["status"]] == [
        "running",
        "completed",
        "failed",
    ]
    assert completed["label"] == "a.txt"


def test_the_data_of_a_named_event_is_a_chunk_that_says_nothing() -> None:
    wire = stream(started(), Notice(code="retry", text="Trying again."), finished("Hi"))
    [(name, notice)] = named(wire)
    assert name == "hermes.notice"
    assert notice["text"] == "Trying again."
    assert notice["object"] == "chat.completion.chunk"
    [choice] = notice["choices"]
    assert choice == {"index": 0, "delta": {}, "logprobs": None, "finish_reason": None}


def test_an_approval_says_what_is_asked_and_where_to_answer() -> None:
    request = ApprovalRequest(
        id="appr_1",
        kind=ApprovalKind.APPROVAL,
        agent_id="main",
        session_id="s1",
        turn_id="turn_1",
        call_id="call_1",
        tool="terminal",
        arguments_hash="h",
        subject="rm -rf build",
        reason="deletes files",
        pattern="rm",
        choices=("once", "deny"),
        created_at=1.0,
    )
    wire = stream(
        started(),
        ApprovalAsked(request=request),
        ApprovalAnswered(
            approval_id="appr_1",
            decision=Decision(state=ApprovalState.APPROVED, choice=Choice.ONCE),
        ),
        finished("Done."),
    )
    (asked, question), (answered, answer) = named(wire)
    assert asked == "hermes.approval.request"
    approval = question["approval"]
    assert approval["id"] == "appr_1"
    assert approval["command"] == "rm -rf build"
    assert approval["choices"] == ["once", "deny"]
    assert approval["answer_url"] == "/v1/approvals/appr_1"
    assert approval["run_id"] == "chatcmpl-1"
    assert approval["session_id"] == "s1"
    assert answered == "hermes.approval.responded"
    assert answer["approval"]["state"] == "approved"
    assert answer["approval"]["choice"] == "once"


def test_reasoning_is_a_field_of_its_own() -> None:
    wire = stream(started(), ReasoningDelta("hm"), TextDelta("Yes."), finished("Yes."))
    assert content(wire) == "Yes."
    assert chunks(wire)[1]["choices"][0]["delta"] == {"reasoning_content": "hm"}


def test_calls_for_the_client_are_tool_calls() -> None:
    handed = (
        ToolCall(id="call_a", name="weather", arguments='{"city":"Rome"}'),
        ToolCall(id="call_b", name="time", arguments="{}"),
    )
    wire = stream(
        started(),
        TextDelta("One moment."),
        message("One moment.", *handed, finish=FinishReason.TOOL_CALLS),
        finished("One moment.", handed=handed),
    )
    *_, one, two, last = chunks(wire)
    assert content(wire) == "One moment."
    assert [each["choices"][0]["delta"]["tool_calls"][0] for each in (one, two)] == [
        {
            "index": 0,
            "id": "call_a",
            "type": "function",
            "function": {"name": "weather", "arguments": '{"city":"Rome"}'},
        },
        {
            "index": 1,
            "id": "call_b",
            "type": "function",
            "function": {"name": "time", "arguments": "{}"},
        },
    ]
    assert last["choices"][0]["finish_reason"] == "tool_calls"


def test_a_failure_ends_the_stream_with_its_reason() -> None:
    error = TurnError(code="model", message="The model is gone.", hint="Choose another.")
    wire = stream(started(), TextDelta("Well"), finished(outcome=TurnState.FAILED, error=error))
    alone, last = chunks(wire)[-2:]
    assert alone["error"] == last["error"]
    assert "choices" not in alone, "clients that know errors only by that see it, too"
    assert last["choices"][0]["finish_reason"] == "error"
    assert last["error"]["message"] == "The model is gone. Choose another."
    assert last["error"]["type"] == "server_error"
    assert last["hermes"] == {
        "completed": False,
        "partial": True,
        "failed": True,
        "error": "The model is gone. Choose another.",
        "error_code": "agent_error",
        "cause": "model",
    }


def test_an_answer_cut_off_by_its_limit_says_so() -> None:
    wire = stream(
        started(),
        TextDelta("The que"),
        message("The que", finish=FinishReason.LENGTH),
        finished("The que"),
    )
    last = chunks(wire)[-1]
    assert last["choices"][0]["finish_reason"] == "length"
    assert last["hermes"]["error_code"] == "output_truncated"
    assert last["hermes"]["partial"] is True
    assert "error" not in last


def test_an_interrupted_turn_is_partial_but_no_error() -> None:
    wire = stream(started(), TextDelta("The que"), finished(outcome=TurnState.INTERRUPTED))
    last = chunks(wire)[-1]
    assert last["choices"][0]["finish_reason"] == "stop"
    assert last["hermes"]["error_code"] == "interrupted"
    assert last["hermes"]["partial"] is True
