"""Replay: a turn that is over, told as events from what the ledger has of it.

The content is the same as when it happened; the deltas are whole messages.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from hermes.agent.tools.define import parse_object
from hermes.domain.events import (
    MessageCompleted,
    ReasoningDelta,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnEvent,
    TurnFinished,
    TurnStarted,
)
from hermes.domain.messages import (
    AssistantMessage,
    FinishReason,
    ToolCall,
    ToolMessage,
    content_text,
)
from hermes.domain.runs import Run, RunOutcome, RunState
from hermes.domain.session import StoredMessage
from hermes.domain.turn import Turn, TurnError, TurnState
from hermes.domain.usage import TurnUsage

PREVIEW_CHARS = 200

_TURN_STATES: Mapping[RunState, TurnState] = {
    RunState.COMPLETED: TurnState.DONE,
    RunState.INCOMPLETE: TurnState.DONE,
    RunState.FAILED: TurnState.FAILED,
    RunState.CANCELLED: TurnState.INTERRUPTED,
}


def retold(run: Run, transcript: Sequence[StoredMessage], model: str) -> Iterator[TurnEvent]:
    outcome = run.outcome
    assert outcome is not None
    yield TurnStarted(
        turn_id=run.turn_id or "", session_id=run.session_id, agent_id=run.agent_id, model=model
    )
    own = [stored for stored in transcript if stored.turn_id == run.turn_id and run.turn_id]
    results = {s.message.call_id: s.message for s in own if isinstance(s.message, ToolMessage)}
    handed = {call.id for call in outcome.handed}
    for stored in own:
        if isinstance(stored.message, AssistantMessage):
            yield from _reply(stored.id, stored.message)
            for call in stored.message.tool_calls:
                if call.id not in handed:
                    yield from _call(call, results.get(call.id))
    yield finished_event(outcome)


def ended_turn_outcome(
    turn: Turn | None, transcript: Sequence[StoredMessage], used: TurnUsage
) -> RunOutcome:
    """Return the outcome of a run whose turn ended while nobody was watching."""
    spent: dict[str, Any] = {
        "usage": used.usage,
        "cost_usd": used.cost_usd,
        "model_calls": used.calls,
    }
    if turn is None:
        reason = TurnError(code="lost", message="Its session has been deleted.")
        return RunOutcome(state=RunState.FAILED, error=reason, **spent)
    if turn.state is not TurnState.DONE:
        failed = turn.state is TurnState.FAILED
        state = RunState.FAILED if failed else RunState.CANCELLED
        return RunOutcome(state=state, error=turn.error, **spent)
    own = [stored.message for stored in transcript if stored.turn_id == turn.id]
    replies = [message for message in own if isinstance(message, AssistantMessage)]
    last = replies[-1] if replies else AssistantMessage()
    answered = {message.call_id for message in own if isinstance(message, ToolMessage)}
    cut_off = last.finish is FinishReason.LENGTH
    return RunOutcome(
        state=RunState.INCOMPLETE if cut_off else RunState.COMPLETED,
        text=last.text,
        handed=tuple(call for call in last.tool_calls if call.id not in answered),
        **spent,
    )


def missed_events(
    run: Run, turn: Turn | None, transcript: Sequence[StoredMessage], outcome: RunOutcome
) -> list[TurnEvent]:
    """Return what the log lacks of a run whose turn ended while nobody was watching.

    Its last deltas may not have been logged, or only some of them: as after a
    restart, what was said is told once more as a whole.
    """
    if turn is None:
        return [finished_event(outcome)]
    own = [stored.message for stored in transcript if stored.turn_id == turn.id]
    said = tuple(message for message in own if isinstance(message, AssistantMessage))
    again = TurnStarted(
        turn_id=turn.id,
        session_id=run.session_id,
        agent_id=run.agent_id,
        model="",
        resumes=turn.resumes + 1,
        earlier=said,
    )
    return [again, finished_event(outcome)]


def finished_event(outcome: RunOutcome) -> TurnFinished:
    cut_off = outcome.state is RunState.INCOMPLETE and not outcome.text
    logprobs = outcome.logprobs
    return TurnFinished(
        outcome=TurnState.INTERRUPTED if cut_off else _TURN_STATES[outcome.state],
        text=outcome.text,
        usage=outcome.usage,
        cost_usd=outcome.cost_usd,
        model_calls=outcome.model_calls,
        error=outcome.error,
        handed=outcome.handed,
        logprobs=logprobs if isinstance(logprobs, str) else msgspec.json.encode(logprobs).decode(),
    )


def _reply(message_id: int, message: AssistantMessage) -> Iterator[TurnEvent]:
    if message.reasoning is not None and message.reasoning.text:
        yield ReasoningDelta(message.reasoning.text)
    if message.text:
        yield TextDelta(message.text)
    yield MessageCompleted(message_id=message_id, message=message)


def _call(call: ToolCall, result: ToolMessage | None) -> Iterator[TurnEvent]:
    arguments = parse_object(call.arguments) or {}
    yield ToolStarted(
        call_id=call.id,
        name=call.name,
        arguments=arguments,
        emoji="",
        label=str(next(iter(arguments.values()), ""))[:PREVIEW_CHARS],
    )
    if result is not None:
        output = content_text(result.content)
        yield ToolFinished(
            call_id=call.id,
            name=call.name,
            outcome=result.outcome,
            seconds=0.0,
            preview=output[:PREVIEW_CHARS],
            output=output,
        )
