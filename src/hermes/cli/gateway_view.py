"""How the gateway does, in words."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from hermes.cli.gateway_process import state_file
from hermes.config.paths import HermesHome
from hermes.control.supervision.health import GatewayState, PlatformState, read_gateway_state
from hermes.control.supervision.instance import RunningGateway, running_gateway

__all__ = ["GatewayReport", "ago", "gateway_facts", "gateway_lines", "gateway_report"]

SILENT_SECONDS = 120.0
"""A state file that is this old belongs to a process that does not turn any more."""


class GatewayReport(Struct, frozen=True, kw_only=True):
    """What can be known about the gateway of a home from outside."""

    running: RunningGateway | None
    state: GatewayState | None
    """What it said last; None if it never said anything."""
    silent_for: float | None = None
    """Seconds for which a running gateway has not said anything, if too many."""

    @property
    def summary(self) -> str:
        """One or two words."""
        if self.running is None:
            return "not running"
        if self.silent_for is not None:
            return "does not respond"
        return self.state.gateway_state if self.state else "starting"


def gateway_report(home: HermesHome, now: float) -> GatewayReport:
    """Look at the lock and the state file of a home."""
    running = running_gateway(home.root)
    state = read_gateway_state(state_file(home))
    if running is not None and state is not None and running.pid not in {0, state.pid}:
        # Left by an earlier process.
        state = None
    silent = None
    if running is not None and state is not None:
        age = _age(state.updated_at, now)
        silent = age if age is not None and age > SILENT_SECONDS else None
    return GatewayReport(running=running, state=state, silent_for=silent)


def gateway_lines(report: GatewayReport, now: float) -> Iterator[str]:
    """Yield what a person wants to know."""
    state = report.state
    process = f" (process {report.running.pid})" if report.running else ""
    yield f"Gateway: {report.summary}{process}"
    if state is None:
        return
    if report.silent_for is not None:
        yield f"  Its last sign of life is {ago(report.silent_for)}."
    if report.running is None:
        yield f"  Last: {state.gateway_state} {_since(state.updated_at, now)}".rstrip()
        if state.exit_reason:
            yield f"  Reason: {state.exit_reason}"
        return
    if state.start_time is not None:
        yield f"  Started {ago(now - state.start_time)}; {state.active_agents} turns running."
    for name, platform in sorted(state.platforms.items()):
        yield from _platform_lines(name, platform, now)
    for warning in state.warnings:
        yield f"  Warning: {warning}"


def gateway_facts(report: GatewayReport) -> dict[str, Any]:
    """Return the same for a program."""
    facts: dict[str, Any] = msgspec.to_builtins(report.state) if report.state else {}
    return {
        **facts,
        "running": report.running is not None,
        "pid": report.running.pid if report.running else None,
        "responding": report.running is not None and report.silent_for is None,
    }


def _platform_lines(name: str, platform: PlatformState, now: float) -> Iterator[str]:
    parts = [f"  {name}: {platform.state}"]
    if platform.account:
        parts.append(f"as {platform.account}")
    heard = (
        ("heard", platform.last_alive_at),
        ("last in", platform.last_in_at),
        ("last out", platform.last_out_at),
    )
    parts += [f"{word} {_since(at, now)}" for word, at in heard if at]
    if platform.restarts:
        parts.append(f"reconnected {platform.restarts}×")
    yield ", ".join(parts)
    if platform.error_message:
        yield f"    {platform.error_message}"
    if platform.hint:
        yield f"    -> {platform.hint}"


def ago(seconds: float) -> str:
    """Return a length of time as people say it."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{max(0, seconds):.0f} s ago"


def _since(iso: str, now: float) -> str:
    age = _age(iso, now)
    return "" if age is None else ago(age)


def _age(iso: str, now: float) -> float | None:
    try:
        return now - datetime.fromisoformat(iso).timestamp()
    except ValueError:
        return None
