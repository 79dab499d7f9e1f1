"""Whether the gateway lives, is ready, and how it is doing.

`/health` touches nothing but memory: it has to answer while everything else is
busy. `/ready` says yes or no to each check and nothing more, since it needs no
key.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from hermes.control.supervision.health import GatewayPhase, outbox_facts, undelivered
from hermes.control.supervision.metrics import sample
from hermes.domain.errors import StoreError
from hermes.domain.keys import Action, Caller
from hermes.entry.http.endpoint import Answer, Call, JsonAnswer, Operations, TextAnswer
from hermes.observability.metrics import render

operation = Operations("Health")

PLATFORM_NAME = "hermes-agent"
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


class Health(Struct, frozen=True, kw_only=True):
    """The process answers."""

    status: Literal["ok"]
    platform: str
    version: str


class Readiness(Struct, frozen=True, kw_only=True):
    """Whether requests can be served."""

    status: Literal["ready", "not_ready"]
    checks: Mapping[str, bool]


class DetailedHealth(Struct, frozen=True, kw_only=True):
    """What the gateway knows about itself."""

    status: Literal["ok"]
    platform: str
    version: str
    readiness: Readiness
    gateway_state: str
    platforms: dict[str, Any]
    outbox: dict[str, dict[str, float]]
    """Platform -> pieces that are unsent, of unknown fate and given up, and the oldest age."""
    active_agents: int
    """Turns that run right now."""
    gateway_busy: bool
    gateway_drainable: bool
    """Whether it would go down cleanly: it runs, and is not on its way down already."""
    exit_reason: str | None
    updated_at: str | None
    pid: int | None
    warnings: list[str]


@operation("GET /health", public=True)
async def health(call: Call[None, None]) -> Health:
    """Say that the process answers."""
    return Health(status="ok", platform=PLATFORM_NAME, version=call.context.version)


health_v1 = replace(health, name="healthV1", path="/v1/health")


@operation("GET /ready", public=True, answers={200: Readiness, 503: Readiness})
async def ready(call: Call[None, None]) -> Answer:
    """Say whether requests can be served."""
    found = _readiness(call.context.ready())
    return JsonAnswer(value=found, status=200 if found.status == "ready" else 503)


@operation("GET /health/detailed", action=Action.OBSERVE, redacts=True)
async def detailed_health(call: Call[None, None]) -> DetailedHealth:
    """Return the health of the gateway and its platforms."""
    state, gateway = call.context.gateway_state(), call.context.gateway
    now, outbox = gateway.clock.now(), dict[str, dict[str, float]]()
    bound = bool(call.caller.agents)
    with suppress(StoreError):
        outbox = {} if bound else outbox_facts(await undelivered(gateway.ledger, now), now)
    found: dict[str, Any] = state.get("platforms") or {}
    phase, active = str(state.get("gateway_state", "")), int(state.get("active_agents") or 0)
    return DetailedHealth(
        status="ok",
        platform=PLATFORM_NAME,
        version=call.context.version,
        readiness=_readiness(call.context.ready()),
        gateway_state=phase,
        platforms={
            name: each for name, each in found.items() if _shown(call.caller, platform=name)
        },
        outbox=outbox,
        active_agents=active,
        gateway_busy=active > 0,
        gateway_drainable=phase == GatewayPhase.RUNNING,
        exit_reason=state.get("exit_reason"),
        updated_at=state.get("updated_at") or None,
        pid=state.get("pid") or None,
        # They name other agents, and where things are.
        warnings=[] if bound else state.get("warnings") or [],
    )


@operation("GET /metrics", 503, action=Action.OBSERVE, answers={200: "text/plain"})
async def metrics(call: Call[None, None]) -> Answer:
    """Metrics for Prometheus."""
    context = call.context
    await sample(context.metrics, context.gateway, context.gateway_state())
    text = render(context.metrics, lambda labels: _shown(call.caller, **labels))
    return TextAnswer(text=text, media_type=PROMETHEUS)


def _shown(caller: Caller, agent: str = "", platform: str = "", **_labels: str) -> bool:
    """Tell whether a key may know about an agent or a bot: a bound one only about its own."""
    if not caller.agents or not (agent or platform):
        return True
    return (agent or platform.partition(":")[2]) in caller.agents


def _readiness(checks: Mapping[str, bool]) -> Readiness:
    return Readiness(
        status="ready" if all(checks.values()) else "not_ready",
        checks={name: bool(value) for name, value in checks.items()},
    )
