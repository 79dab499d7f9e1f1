"""Starting, stopping and restarting the gateway of a home as another process."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from hermes.config.paths import HermesHome
from hermes.control.supervision.health import GatewayPhase, GatewayState, read_gateway_state
from hermes.control.supervision.instance import (
    RunningGateway,
    end_gateway,
    running_gateway,
    wait_until_gone,
)
from hermes.domain.errors import Conflict
from hermes.execution.clock import SystemClock

__all__ = [
    "Started",
    "ask_to_restart",
    "start_detached",
    "state_file",
    "stop",
    "wait_for_successor",
]

START_SECONDS = 30.0
SUCCESSOR_SECONDS = 30.0
LOOK_EVERY_SECONDS = 0.05
LOG_BYTES = 5_000_000
TAIL_LINES = 10


class Started(Struct, frozen=True, kw_only=True):
    """What became of a start."""

    pid: int
    exit_code: int | None = None
    """None: it runs."""
    ready: bool = False
    """False while it is still connecting."""
    said: str = ""
    """The last lines of one that has ended."""


def state_file(home: HermesHome) -> Path:
    """Return where a gateway says how it does."""
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
