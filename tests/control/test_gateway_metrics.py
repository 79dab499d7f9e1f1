"""What the gateway counts, from real turns and a real ledger."""

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fakes.core import ScriptedTools, job_of, returns, running_core
from fakes.ledgers import arrival, outgoing, request, session
from hermes.control.supervision.metrics import MAX_NAMES, TurnMetrics, sample
from hermes.domain.approvals import ApprovalState, Decision
from hermes.domain.events import (
    ApprovalAnswered,
    ApprovalAsked,
    TextDelta,
    ToolFinished,
    TurnStream,
)
from hermes.domain.messages import ToolOutcome
from hermes.domain.ports.model import FailureKind, ModelFailure
from hermes.domain.usage import Usage
from hermes.observability.metrics import Registry, render
from hermes.testing import FakeClock
from hermes.testing.model import Reply, ScriptedModel, call, calls


def finished_call(name: str) -> ToolFinished:
    return ToolFinished(
        call_id="c", name=name, outcome=ToolOutcome.OK, seconds=0.1, preview="", diff=None
    )


async def test_a_turn_is_counted_with_its_tokens_tools_and_times(tmp_path: Path) -> None:
    registry, tools = Registry(), ScriptedTools()
    tools.add("look", returns("there"))
    usage = Usage(input_tokens=10, output_tokens=5, cache_read_tokens=4, reasoning_tokens=2)
    answer = Reply(pieces=("a", "b"), usage=usage, cost_usd=0.25)
    model = ScriptedModel([calls(call("look"), call("invented")), answer])
    async with running_core(tmp_path, model, tools=tools) as core:
        with core.gateway.doors.watching(TurnMetrics(registry, core.gateway.clock).on_turn):
            await core.ask("hello")
            await core.idle()
    turns = registry.counter("hermes_turns_total", "")
    assert turns.value(agent="main", platform="cli", outcome="done") == 1
    assert registry.histogram("hermes_turn_seconds", "").count(agent="main") == 1
    assert registry.histogram("hermes_first_token_seconds", "").count(agent="main") == 1
    tokens = registry.counter("hermes_tokens_total", "")
    counted = {kind: tokens.value(kind=kind, model="scripted-1") for kind in ("input", "output")}
    assert counted == {"input": 20, "output": 10}
    assert tokens.value(kind="cache_read", model="scripted-1") == 4
    assert tokens.value(kind="reasoning", model="scripted-1") == 2
    assert registry.counter("hermes_cost_usd_total", "").value(model="scripted-1") == 0.25
    used = registry.counter("hermes_tool_calls_total", "")
    assert used.value(tool="look", outcome="ok") == 1
    assert used.value(tool="invented", outcome="error") == 1


async def test_a_turn_that_fails_is_counted_as_failed(tmp_path: Path) -> None:
    registry = Registry()
    failure = ModelFailure(FailureKind.AUTH, "no key")
    async with running_core(tmp_path, ScriptedModel([failure])) as core:
        with core.gateway.doors.watching(TurnMetrics(registry, core.gateway.clock).on_turn):
            await core.ask("hello")
            await core.idle()
    turns = registry.counter("hermes_turns_total", "")
    assert turns.value(agent="main", platform="cli", outcome="failed") == 1
    assert registry.histogram("hermes_first_token_seconds", "").count(agent="main") == 0


def test_the_time_to_the_first_text_is_taken_once_and_by_the_clock() -> None:
    registry, clock = Registry(), FakeClock()
    stream = TurnStream("t", "s")
    TurnMetrics(registry, clock).on_turn(job_of(stream))
    clock.advance(2.0)
    stream.emit(TextDelta("a"))
    clock.advance(7.0)
    stream.emit(TextDelta("b"))
    first = registry.histogram("hermes_first_token_seconds", "")
    assert (first.count(agent="main"), first.value(agent="main")) == (1, 2.0)


def test_names_a_model_makes_up_do_not_become_endless_labels() -> None:
    registry = Registry()
    stream = TurnStream("t", "s")
    TurnMetrics(registry, FakeClock()).on_turn(job_of(stream))
    for number in range(MAX_NAMES + 50):
        stream.emit(finished_call(f"made_up_{number}"))
    used = registry.counter("hermes_tool_calls_total", "")
    assert used.value(tool="made_up_0", outcome="ok") == 1
    assert used.value(tool="other", outcome="ok") == 50
    assert len(list(used.samples())) == MAX_NAMES + 1


def test_approvals_are_counted_by_what_became_of_them() -> None:
    registry = Registry()
    stream = TurnStream("t", "s")
    TurnMetrics(registry, FakeClock()).on_turn(job_of(stream))
    stream.emit(ApprovalAsked(request=request("a1")))
    stream.emit(ApprovalAnswered(approval_id="a1", decision=Decision(state=ApprovalState.EXPIRED)))
    asked = registry.counter("hermes_approvals_total", "")
    assert (asked.value(state="asked"), asked.value(state="expired")) == (1, 1)


async def test_a_sample_shows_queues_ages_adapters_and_memory(tmp_path: Path) -> None:
    registry = Registry()
    state: Mapping[str, Any] = {
        "platforms": {"telegram": {"state": "connected"}, "slack": {"state": "retrying"}}
    }
    hold = asyncio.Event()
    model = ScriptedModel([Reply(pieces=("a",), before_end=hold)])
    async with running_core(tmp_path, model) as core:
        await sample(registry, core.gateway, state)
        quiet = render(registry)
        stream = await core.say("hello")
        await core.ledger.create_session(session("s1"))
        await core.ledger.admit(arrival("waits"))
        await core.ledger.enqueue(outgoing("o1", at=core.gateway.clock.now() - 90))
        await sample(registry, core.gateway, state)
        busy = render(registry)
        hold.set()
        await stream.wait()
    for line in ("hermes_live_sessions 0", "hermes_outbox_oldest_seconds 0", "hermes_runs_open 0"):
        assert f"\n{line}\n" in quiet
    for line in (
        "hermes_live_sessions 1",
        "hermes_inbox_waiting 1",
        "hermes_outbox_pending 1",
        "hermes_approvals_pending 0",
        'hermes_adapter_up{platform="telegram"} 1',
        'hermes_adapter_up{platform="slack"} 0',
    ):
        assert f"\n{line}\n" in busy
    assert registry.gauge("hermes_outbox_oldest_seconds", "").value() >= 90
    assert registry.gauge("process_resident_memory_bytes", "").value() > 1e6


def test_counting_a_token_costs_next_to_nothing() -> None:
    def emit_many(watched: bool) -> float:
        stream = TurnStream("t", "s")
        if watched:
            TurnMetrics(Registry(), FakeClock()).on_turn(job_of(stream))
        event, begun = TextDelta("x"), time.perf_counter()
        for _ in range(20_000):
            stream.emit(event)
        return (time.perf_counter() - begun) / 20_000

    bare = min(emit_many(False) for _ in range(5))
    watched = min(emit_many(True) for _ in range(5))
    assert watched < bare * 8, (bare, watched)
