"""Metrics of the gateway, and where each number comes from.

    turns      a tap on each turn's stream: a function call an event, no task
    requests   counted by the HTTP door itself: `hermes_http_requests_total`
    the rest   `sample`, which looks when somebody asks for the metrics

Label values come from a bounded set: names that a model has made up share the
label `other` once there are too many.
"""

import asyncio
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from hermes.control.lanes.gateway import Gateway
from hermes.domain.events import (
    ApprovalAnswered,
    ApprovalAsked,
    TextDelta,
    ToolFinished,
    TurnEvent,
    TurnFinished,
    TurnJob,
    TurnStarted,
    UsageReported,
)
from hermes.domain.outbound import UNSENT
from hermes.domain.ports.clock import Clock
from hermes.domain.runs import RunQuery, RunState
from hermes.observability.metrics import Registry

OTHER = "other"
MAX_NAMES = 200
"""So many tools and models are told apart."""
MAX_RUNS = 1000
OPEN_RUNS = tuple(state for state in RunState if state.open)
TURN_SECONDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)


class TurnMetrics:
    """Counts turns and what happens in them; `on_turn` is meant for `Doors.watching`."""

    def __init__(self, registry: Registry, clock: Clock) -> None:
        self.clock = clock
        self.turns = registry.counter("hermes_turns_total", "Turns that ended.")
        self.seconds = registry.histogram(
            "hermes_turn_seconds", "From the start of a turn to its end.", TURN_SECONDS
        )
        self.first_token = registry.histogram(
            "hermes_first_token_seconds", "From the start of a turn to the first text."
        )
        self.tokens = registry.counter("hermes_tokens_total", "Tokens used by turns.")
        self.cost = registry.counter(
            "hermes_cost_usd_total", "What turns have cost, in US dollars."
        )
        self.calls = registry.counter("hermes_tool_calls_total", "Tool calls that ended.")
        self.approvals = registry.counter(
            "hermes_approvals_total", "Approvals and questions by what became of them."
        )
        self._names: set[str] = set()

    def on_turn(self, job: TurnJob) -> None:
        job.stream.tap(_TurnTap(self, job).seen)

    def bounded(self, name: str) -> str:
        if name not in self._names:
            if len(self._names) >= MAX_NAMES:
                return OTHER
            self._names.add(name)
        return name


class _TurnTap:
    __slots__ = ("_agent", "_begun", "_metrics", "_model", "_platform", "_spoke")

    def __init__(self, metrics: TurnMetrics, job: TurnJob) -> None:
        self._metrics = metrics
        self._begun = metrics.clock.monotonic()
        self._agent = job.profile.id
        first = job.entry is not None and not job.resumed
        self._platform = job.entry.message.platform if job.entry and first else "resumed"
        self._model = ""
        self._spoke = False

    def seen(self, event: TurnEvent) -> None:
        match event:
            case TextDelta():
                self._said()
            case TurnStarted():
                self._agent, self._model = event.agent_id, self._metrics.bounded(event.model)
            case UsageReported():
                self._used(event)
            case ToolFinished():
                tool = self._metrics.bounded(event.name)
                self._metrics.calls.add(tool=tool, outcome=event.outcome.value)
            case ApprovalAsked():
                self._metrics.approvals.add(state="asked")
            case ApprovalAnswered():
                self._metrics.approvals.add(state=event.decision.state.value)
            case TurnFinished():
                self._ended(event)
            case _:
                pass

    def _said(self) -> None:
        if not self._spoke:
            self._spoke = True
            self._metrics.first_token.observe(self._elapsed(), agent=self._agent)

    def _elapsed(self) -> float:
        return max(self._metrics.clock.monotonic() - self._begun, 0.0)

    def _used(self, event: UsageReported) -> None:
        for kind in ("input", "output", "cache_read", "cache_write", "reasoning"):
            if (count := getattr(event.usage, f"{kind}_tokens")) > 0:
                self._metrics.tokens.add(count, kind=kind, model=self._model)
        if event.cost_usd is not None and event.cost_usd > 0:
            self._metrics.cost.add(event.cost_usd, model=self._model)

    def _ended(self, event: TurnFinished) -> None:
        self._metrics.seconds.observe(self._elapsed(), agent=self._agent)
        self._metrics.turns.add(
            agent=self._agent, platform=self._platform, outcome=event.outcome.value
        )


async def sample(registry: Registry, gateway: Gateway, state: Mapping[str, Any]) -> None:
    """Note how things stand right now: queues, ages, adapters, memory.

    `state` is what `gateway_state.json` would say now.
    """
    ledger, now = gateway.ledger, gateway.clock.now()
    stats = await ledger.stats()
    oldest = await ledger.outbox(UNSENT, limit=1)
    runs = await ledger.runs(RunQuery(states=OPEN_RUNS, limit=MAX_RUNS))
    values = {
        "hermes_live_sessions": ("Sessions with something to do.", gateway.live_sessions),
        "hermes_inbox_waiting": ("Messages no turn has taken yet.", stats.inbox_waiting),
        "hermes_outbox_pending": ("Pieces that wait to be sent.", stats.outbox_pending),
        "hermes_outbox_oldest_seconds": (
            "Age of the oldest piece that is not sent.",
            max(now - oldest[0].created_at, 0.0) if oldest else 0.0,
        ),
        "hermes_approvals_pending": ("Approvals nobody has answered.", stats.approvals_pending),
        "hermes_runs_open": (f"Runs under way, at most {MAX_RUNS}.", len(runs)),
        "hermes_ledger_bytes": ("Size of the ledger.", stats.bytes),
    }
    for name, (help_text, value) in values.items():
        registry.gauge(name, help_text).set(value)
    up = registry.gauge("hermes_adapter_up", "1 while the platform is connected.")
    for name, platform in to_builtins(state.get("platforms", {})).items():
        up.set(1.0 if platform.get("state") == "connected" else 0.0, platform=name)
    resident = await asyncio.to_thread(_resident_bytes)
    if resident is not None:
        registry.gauge("process_resident_memory_bytes", "Resident memory of this process.").set(
            resident
        )


def _resident_bytes() -> int | None:
    with suppress(OSError, ValueError, IndexError):
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    return None
