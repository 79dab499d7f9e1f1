"""Starting, stopping and restarting the gateway of a home as another process."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from hermes.config.paths import HermesHome
from hermes.control.supervision.health import (
    GatewayPhase,
    GatewayState,
    PlatformState,
    read_gateway_state,
)
from hermes.control.supervision.instance import (
    RunningGateway,
    end_gateway,
    running_gateway,
    wait_until_gone,
)
from hermes.domain.errors import Conflict
from hermes.execution.clock import SystemClock

START_SECONDS = 30.0
SUCCESSOR_SECONDS = 30.0
LOOK_EVERY_SECONDS = 0.05
LOG_BYTES = 5_000_000
TAIL_LINES = 10


class Started(Struct, frozen=True, kw_only=True):
    pid: int
    exit_code: int | None = None
    """None: it runs."""
    ready: bool = False
    """False while it is still connecting."""
    said: str = ""
    """The last lines of one that has ended."""


def state_file(home: HermesHome) -> Path:
    return home.root / "gateway_state.json"


def start_detached(home: HermesHome, environ: Mapping[str, str]) -> Started:
    """Start `hermes gateway run` in the background; wait until it runs or has ended."""
    holder = running_gateway(home.root)
    if holder is not None:
        raise Conflict(
            f"A gateway is already running for this home (process {holder.pid}).",
            hint="Restart it with: hermes gateway restart",
        )
    log_file = _log_file(home)
    size = log_file.stat().st_size if log_file.exists() else 0
    pid = _spawn(environ, log_file)
    ends_at = time.monotonic() + START_SECONDS
    while time.monotonic() < ends_at:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            return Started(pid=pid, exit_code=code, said=_tail(log_file, size))
        if _is_ready(read_gateway_state(state_file(home)), pid):
            return Started(pid=pid, ready=True)
        time.sleep(LOOK_EVERY_SECONDS)
    return Started(pid=pid)


def stop(home: HermesHome, *, patience: float, force: bool) -> bool:
    """End the gateway of a home; False if none runs."""
    return asyncio.run(end_gateway(home.root, SystemClock(), patience=patience, force=force))


def ask_to_restart(home: HermesHome, *, patience: float) -> RunningGateway | None:
    """Ask the gateway of a home to finish, and wait; return it, or None if none runs."""
    holder = running_gateway(home.root)
    if holder is None or holder.pid == 0:
        return None
    os.kill(holder.pid, signal.SIGUSR1)
    if not asyncio.run(wait_until_gone(home.root, holder.pid, SystemClock(), patience)):
        raise Conflict(
            f"The gateway (process {holder.pid}) did not end within {patience:g} seconds.",
            hint="It may be finishing a turn. Force it with: hermes gateway stop --force",
        )
    return holder


def wait_for_successor(home: HermesHome, old: RunningGateway) -> RunningGateway | None:
    """Wait until whoever supervises the gateway has started it again."""
    ends_at = time.monotonic() + SUCCESSOR_SECONDS
    while time.monotonic() < ends_at:
        holder = running_gateway(home.root)
        if holder is not None and holder.pid not in {0, old.pid}:
            return holder
        time.sleep(LOOK_EVERY_SECONDS)
    return None


def _is_ready(state: GatewayState | None, pid: int) -> bool:
    return (
        state is not None and state.pid == pid and state.gateway_state == GatewayPhase.RUNNING.value
    )


def _spawn(environ: Mapping[str, str], log_file: Path) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    # Not `subprocess`: it warns about a child that outlives it, which is the purpose here.
    return os.posix_spawn(
        sys.executable,
        [sys.executable, "-m", "hermes.cli", "gateway", "run"],
        dict(environ),
        setsid=True,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log_file), flags, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
    )


def _log_file(home: HermesHome) -> Path:
    path = home.subdirectory(home.logs_dir) / "gateway.log"
    if path.exists() and path.stat().st_size > LOG_BYTES:
        path.replace(path.with_suffix(".log.1"))
    return path


def _tail(path: Path, since: int) -> str:
    with path.open("rb") as file:
        file.seek(since)
        lines = file.read().decode(errors="replace").splitlines()
    return "\n".join(lines[-TAIL_LINES:])


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
