"""The budgets of the design, section 8, and how a figure is judged by them."""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from bench.harness import Figure

__all__ = ["BUDGETS", "Budget", "Verdict", "judge"]


class Verdict(StrEnum):
    """How a figure stands to its budget."""

    STRETCH = "stretch"
    WITHIN = "within"
    MISSED = "MISSED"
    UNJUDGED = "-"


class Budget(Struct, frozen=True, kw_only=True):
    """What a figure is called, what it may be and what it should be."""

    what: str
    unit: str = "ms"
    limit: float | None = None
    stretch: float | None = None
    more_is_better: bool = False


Pair = tuple[float | None, float | None]
OPEN: Pair = (None, None)


def _sessions(
    count: int, *, rate: Pair = OPEN, middle: Pair = OPEN, tail: Pair = OPEN, lag: Pair = OPEN
) -> dict[str, Budget]:
    """Return the budgets of many sessions at once; a pair is (budget, stretch)."""
    name = f"{count:,} session{'s' if count > 1 else ''}"

    def budget(what: str, pair: Pair, unit: str = "ms", *, more: bool = False) -> Budget:
        return Budget(
            what=f"{name}{what}", unit=unit, limit=pair[0], stretch=pair[1], more_is_better=more
        )

    return {
        f"sessions_{count}_rate": budget(" at once", rate, "turns/s", more=True),
        f"sessions_{count}_median": budget(", added, median", middle),
        f"sessions_{count}_p95": budget(", added, p95", tail),
        f"sessions_{count}_lag": budget(", event loop delay meanwhile, p95", lag),
        f"sessions_{count}_failed": budget(", turns that failed", (0, 0), ""),
    }


def _streams(
    count: int, *, rate: Pair = OPEN, middle: Pair = OPEN, tail: Pair = OPEN, health: Pair = OPEN
) -> dict[str, Budget]:
    """Return the budgets of many HTTP streams at once; a pair is (budget, stretch)."""
    name = f"{count:,} HTTP stream{'s' if count > 1 else ''}"

    def budget(what: str, pair: Pair, unit: str = "ms", *, more: bool = False) -> Budget:
        return Budget(
            what=f"{name}{what}", unit=unit, limit=pair[0], stretch=pair[1], more_is_better=more
        )

    return {
        f"http_{count}_rate": budget(" at once", rate, "turns/s", more=True),
        f"http_{count}_median": budget(", added, median", middle),
        f"http_{count}_p95": budget(", added, p95", tail),
        f"http_{count}_health": budget(", /health meanwhile, p95", health),
        f"http_{count}_peak": budget(", most memory", OPEN, "MB"),
        f"http_{count}_failed": budget(", requests that failed", (0, 0), ""),
    }


def _agents(count: int, start: Pair = OPEN) -> dict[str, Budget]:
    name = f"{count:,} agent{'s' if count > 1 else ''}"
    return {
        f"agents_{count}_start": Budget(
            what=f"{name}, core start", limit=start[0], stretch=start[1]
        ),
        f"agents_{count}_turn": Budget(what=f"{name}, a turn, median"),
    }


BUDGETS: Mapping[str, Budget] = {
    "version_wall": Budget(what="`--version`, wall", limit=80, stretch=40),
    "version_peak": Budget(what="`--version`, peak memory", unit="MB"),
    "oneshot_wall": Budget(what="one-shot answer, wall", limit=500, stretch=300),
    "oneshot_cpu": Budget(what="one-shot answer, CPU"),
    "oneshot_peak": Budget(what="one-shot answer, peak memory", unit="MB"),
    "gateway_start": Budget(what="gateway start until it runs", unit="s", limit=0.7, stretch=0.4),
    "gateway_first_turn": Budget(
        what="first turn of a gateway, message to answer, added", limit=60, stretch=20
    ),
    "gateway_idle": Budget(what="idle gateway, resident", unit="MB", limit=70, stretch=50),
    "http_start": Budget(
        what="gateway start until `/health` answers", unit="s", limit=0.7, stretch=0.4
    ),
    "http_idle": Budget(
        what="idle gateway with the API server, resident", unit="MB", limit=70, stretch=50
    ),
    "http_first_turn": Budget(what="first request after start, added", limit=60, stretch=20),
    "http_first_token": Budget(what="first token over HTTP, added", limit=8, stretch=3),
    "http_cpu": Budget(what="gateway CPU per streamed HTTP turn", limit=8, stretch=4),
    "core_start": Budget(what="core start until it takes messages"),
    "first_turn": Budget(what="first turn after start, added", limit=60, stretch=20),
    "first_token": Budget(what="time to first token, added", limit=8, stretch=3),
    "turn_cpu": Budget(what="CPU per streamed turn of 20 tokens", limit=8, stretch=4),
    "per_token": Budget(what="per token streamed, added", unit="us"),
    "read_file": Budget(what="tool call `read_file`, added a call", limit=4, stretch=2),
    "terminal_local": Budget(
        what="tool call `terminal echo` on local, added a call", limit=15, stretch=8
    ),
    "terminal_sandbox": Budget(
        what="tool call `terminal echo` on sandbox, added a call", limit=30, stretch=15
    ),
    "growth": Budget(
        what="turn 500 against turn 10, added, ratio", unit="x", limit=1.2, stretch=1.05
    ),
    "growth_turn_10": Budget(what="turn 10 of a session, added"),
    "growth_turn_500": Budget(what="turn 500 of a session, added"),
    "search_p95": Budget(what="search over 1,000,000 messages, p95", limit=60, stretch=20),
    "appends": Budget(
        what="durable appends", unit="/s", limit=5_000, stretch=20_000, more_is_better=True
    ),
    **_agents(1),
    **_agents(10),
    **_agents(100),
    **_agents(500, start=(700, 400)),
    "idle_agent": Budget(what="per further agent", unit="KB", limit=200, stretch=50),
    "used_agent": Budget(what="per further agent that was used", unit="KB", limit=200),
    "idle_core": Budget(what="idle core, resident", unit="MB"),
    "idle_session": Budget(what="per further idle session", unit="KB", limit=5, stretch=1),
    "used_session": Budget(what="per further session that was used", unit="KB"),
    "prompt_tokens": Budget(
        what="fixed prompt, default tools", unit="tokens", limit=5_000, stretch=3_500
    ),
    "unasked_calls": Budget(
        what="model calls nobody asked for, 200 turns", unit="", limit=1, stretch=1
    ),
    **_sessions(1),
    **_sessions(10),
    **_sessions(100, rate=(100, 250), middle=(800, 300), lag=(50, 20)),
    **_sessions(1000, tail=(None, 5_000)),
    **_streams(1),
    **_streams(8),
    **_streams(32),
    **_streams(100, rate=(100, 250), middle=(800, 300), health=(50, 20)),
    **_streams(1000, tail=(None, 5_000)),
}


def judge(figure: Figure) -> Verdict:
    """Return how `figure` stands to its budget."""
    budget = BUDGETS[figure.key]
    sign = -1 if budget.more_is_better else 1
    if budget.stretch is not None and sign * figure.measured <= sign * budget.stretch:
        return Verdict.STRETCH
    if budget.limit is None:
        return Verdict.UNJUDGED
    return Verdict.WITHIN if sign * figure.measured <= sign * budget.limit else Verdict.MISSED
