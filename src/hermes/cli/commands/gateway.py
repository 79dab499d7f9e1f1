"""`hermes gateway`: the process behind the chat platforms, run, started, stopped and looked at."""

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec import Struct

from hermes.app.options import AppOptions, run
from hermes.cli.home import (
    HomeLedger,
    app_options,
    json_lines_option,
    json_option,
    known_secrets,
    this_home,
    with_ledger,
)
from hermes.config.environment import process_environ
from hermes.config.paths import HermesHome
from hermes.control.commands.wording import count
from hermes.control.supervision.health import (
    GatewayPhase,
    GatewayState,
    PlatformState,
    outbox_facts,
    read_gateway_state,
    undelivered,
)
from hermes.control.supervision.instance import (
    RunningGateway,
    end_gateway,
    running_gateway,
    wait_until_gone,
)
from hermes.domain.errors import Conflict
from hermes.domain.outbound import OutboxEntry, OutboxState
from hermes.domain.wording import ago, long_time, one_line
from hermes.execution.clock import SystemClock
from hermes.observability.logs import RedactingFormatter

NOT_RUNNING = 3
"""What `status` ends with when nothing runs, as service managers expect."""
SILENT_SECONDS = 120.0
"""A state file this old belongs to a process that hangs."""
START_SECONDS = 30.0
SUCCESSOR_SECONDS = 30.0
LOOK_EVERY_SECONDS = 0.05
LOG_BYTES = 5_000_000
SHOWN_CHARACTERS = 80
TAIL_LINES = 10


@click.group("gateway")
def command() -> None:
    """Run the agent behind the chat platforms."""


@command.command("run")
@click.option("--replace", is_flag=True, help="Replace a gateway that is running.")
@click.option("-v", "--verbose", is_flag=True, help="Show time and origin of every line.")
@click.option("-q", "--quiet", is_flag=True, help="Show only what needs attention.")
def run_command(replace: bool, verbose: bool, quiet: bool) -> None:
    """Run in the foreground until stopped.

    SIGTERM or Ctrl-C finishes what runs and ends; a second one ends at once.
    SIGUSR1 finishes and ends with exit code 75, to be started again. Exit code
    78 means that the configuration cannot work.
    """
    from hermes.app.serve import START_AGAIN, serve  # noqa: PLC0415 - only this one needs it

    _log_to_console(verbose=verbose, quiet=quiet)
    code = run(serve(_options(), replace=replace))
    if code == START_AGAIN:
        os.execv(sys.executable, [sys.executable, "-m", "hermes.cli", *sys.argv[1:]])  # noqa: S606
    sys.exit(code)


@command.command("start")
def start_command() -> None:
    """Start in the background."""
    _start(this_home())


@command.command("stop")
@click.option("--timeout", type=click.FloatRange(min=0), default=90.0, show_default=True)
@click.option("--force", is_flag=True, help="Kill it if it has not ended by then.")
def stop_command(timeout: float, force: bool) -> None:
    """Finish what runs and stop."""
    ending = end_gateway(this_home().root, SystemClock(), patience=timeout, force=force)
    stopped = asyncio.run(ending)
    click.echo("The gateway has stopped." if stopped else "No gateway is running.")


@command.command("restart")
@click.option("--timeout", type=click.FloatRange(min=0), default=90.0, show_default=True)
def restart_command(timeout: float) -> None:
    """Finish what runs, stop and start again."""
    from hermes.app.serve import check_serving  # noqa: PLC0415 - see above

    home = this_home()
    # A configuration that cannot work must not cost the gateway that does.
    check_serving(_options())
    old = _ended_to_restart(home, patience=timeout)
    if old is not None and old.supervised:
        new = _successor(home, old)
        if new is None:
            click.echo("The gateway has stopped; its supervisor has not started it again yet.")
            sys.exit(1)
        click.echo(f"The gateway runs again (process {new.pid}).")
        return
    _start(home)


@command.command("status")
@json_option
def status_command(as_json: bool) -> None:
    """Show the state of the gateway and its platforms; exit code 3 if it does not run."""
    now = time.time()
    report = gateway_report(this_home(), now)
    if as_json:
        click.echo(msgspec.json.encode(gateway_facts(report)).decode())
    else:
        for line in gateway_lines(report, now):
            click.echo(line)
    sys.exit(0 if report.running else NOT_RUNNING)


@command.command("list")
def list_command() -> None:
    """List the gateways of this home and of the profiles below it."""
    home, now = this_home(), time.time()
    profiles = home.root / "profiles"
    names = sorted(p.name for p in profiles.iterdir() if p.is_dir()) if profiles.is_dir() else []
    for name, each in [("default", home), *((name, home.profile(name)) for name in names)]:
        report = gateway_report(each, now)
        process = f" (process {report.running.pid})" if report.running else ""
        click.echo(f"{name}\t{report.summary}{process}")


@command.command("outbox")
@json_lines_option
@with_ledger
async def outbox_command(store: HomeLedger, as_json: bool) -> None:
    """List what has not been sent, and what was given up in the last week, oldest first."""
    now = time.time()
    pieces = await undelivered(store.ledger, now)
    for piece in pieces:
        line = f"{_fate(piece)} {ago(now - piece.created_at)}: {piece.target.platform}"
        line += f" chat {piece.target.chat_id}, {piece.kind.value}"
        line += f", {count(piece.attempts, 'attempt')}" if piece.attempts else ""
        about = one_line(piece.attachment or piece.content, SHOWN_CHARACTERS)
        why = f" ({piece.error})" if piece.error else ""
        store.show(piece, f"{line}: {about}{why}", as_json=as_json)
    if not pieces and not as_json:
        store.say("Everything has been sent.")


def outbox_lines(pieces: Sequence[OutboxEntry], now: float) -> Iterator[str]:
    for platform, facts in outbox_facts(pieces, now).items():
        said = (
            (facts["unsent"], f"oldest from {ago(facts['oldest_seconds'])}"),
            (facts["unknown"], f"{facts['unknown']:g} of unknown fate"),
            (facts["failed"], f"{facts['failed']:g} given up"),
        )
        about = ", ".join(text for number, text in said if number)
        yield f"Unsent on {platform}: {facts['unsent']:g} ({about}; see: hermes gateway outbox)"


def _fate(piece: OutboxEntry) -> str:
    if piece.of_unknown_fate:
        return "unknown fate"
    return "given up" if piece.state is OutboxState.FAILED else "waiting"


def _options() -> AppOptions:
    home = this_home()
    return app_options(cwd=home.subdirectory(home.workspace), can_ask=True, platform="gateway")


def _ended_to_restart(home: HermesHome, *, patience: float) -> RunningGateway | None:
    """Ask the gateway of a home to finish, and wait; return it, or None if none runs."""
    holder = running_gateway(home.root)
    if holder is None or holder.pid == 0:
        return None
    os.kill(holder.pid, signal.SIGUSR1)
    if not asyncio.run(wait_until_gone(home.root, holder.pid, SystemClock(), patience)):
        raise Conflict(
            f"The gateway (process {holder.pid}) did not stop within {patience:g} seconds.",
            hint="It may be finishing a turn. Force it with: hermes gateway stop --force",
        )
    return holder


def _successor(home: HermesHome, old: RunningGateway) -> RunningGateway | None:
    """Wait until whoever supervises the gateway has started it again."""
    ends_at = time.monotonic() + SUCCESSOR_SECONDS
    while time.monotonic() < ends_at:
        holder = running_gateway(home.root)
        if holder is not None and holder.pid not in {0, old.pid}:
            return holder
        time.sleep(LOOK_EVERY_SECONDS)
    return None


def _start(home: HermesHome) -> None:
    """Start `hermes gateway run` in the background; wait until it runs or has ended."""
    holder = running_gateway(home.root)
    if holder is not None:
        raise Conflict(
            f"A gateway is already running for this home (process {holder.pid}).",
            hint="Restart it with: hermes gateway restart",
        )
    log_file = home.subdirectory(home.logs_dir) / "gateway.log"
    if log_file.exists() and log_file.stat().st_size > LOG_BYTES:
        log_file.replace(log_file.with_suffix(".log.1"))
    size = log_file.stat().st_size if log_file.exists() else 0
    pid = _spawn(log_file)
    state, ends_at = "is starting", time.monotonic() + START_SECONDS
    while time.monotonic() < ends_at:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            click.echo(_tail(log_file, size), err=True, nl=False)
            click.echo(f"The gateway ended at once (exit code {code}).", err=True)
            sys.exit(code or 1)
        found = read_gateway_state(_state_file(home))
        if found and found.pid == pid and found.gateway_state == GatewayPhase.RUNNING.value:
            state = "runs"
            break
        time.sleep(LOOK_EVERY_SECONDS)
    click.echo(f"The gateway {state} (process {pid}). See: hermes gateway status")


def _spawn(log_file: Path) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    # Not `subprocess`: it warns about a child that outlives it, which is the purpose here.
    return os.posix_spawn(
        sys.executable,
        [sys.executable, "-m", "hermes.cli", "gateway", "run"],
        dict(process_environ()),
        setsid=True,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log_file), flags, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
    )


def _tail(path: Path, since: int) -> str:
    with path.open("rb") as file:
        file.seek(since)
        lines = file.read().decode(errors="replace").splitlines()
    return "".join(f"{line}\n" for line in lines[-TAIL_LINES:])


def _log_to_console(*, verbose: bool, quiet: bool) -> None:
    """Show log lines of Hermes on stderr, beside the files that hold everything."""
    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING if quiet else logging.NOTSET)
    pattern = "%(asctime)s %(levelname)-7s %(name)s: %(message)s" if verbose else "%(message)s"
    handler.setFormatter(RedactingFormatter(known_secrets(this_home()), pattern))
    logging.getLogger("hermes").addHandler(handler)


# -- its state --------------------------------------------------------------


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
    running = running_gateway(home.root)
    state = read_gateway_state(_state_file(home))
    if running is not None and state is not None and running.pid not in {0, state.pid}:
        # Left by an earlier process.
        state = None
    silent = None
    if running is not None and state is not None:
        age = _age(state.updated_at, now)
        silent = age if age is not None and age > SILENT_SECONDS else None
    return GatewayReport(running=running, state=state, silent_for=silent)


def gateway_lines(report: GatewayReport, now: float) -> Iterator[str]:
    state = report.state
    process = f" (process {report.running.pid})" if report.running else ""
    yield f"Gateway: {report.summary}{process}"
    if state is None:
        return
    if report.silent_for is not None:
        yield f"  It last reported {ago(report.silent_for)}."
    if report.running is None:
        yield f"  Last: {state.gateway_state} {_since(state.updated_at, now)}".rstrip()
        if state.exit_reason:
            yield f"  Reason: {state.exit_reason}"
        return
    if state.start_time is not None:
        turns = count(state.active_agents, "turn")
        yield f"  Started {ago(now - state.start_time)}; {turns} running."
    for name, platform in sorted(state.platforms.items()):
        yield from _platform_lines(name, platform, now)
    for warning in state.warnings:
        yield f"  Warning: {warning}"


def gateway_facts(report: GatewayReport) -> dict[str, Any]:
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
        ("alive", platform.last_alive_at),
        ("last message in", platform.last_in_at),
        ("last message out", platform.last_out_at),
    )
    parts += [f"{word} {_since(at, now)}" for word, at in heard if at]
    if platform.restarts:
        parts.append(f"reconnected {platform.restarts}×")
    yield ", ".join(parts)
    if platform.error_message:
        yield f"    {platform.error_message}"
    if platform.hint:
        yield f"    -> {platform.hint}"
    left = -(_age(platform.next_try_at or "", now) or 0.0)
    if left > 0:
        yield f"    The next try is in {long_time(max(left, 1))}."


def _since(iso: str, now: float) -> str:
    age = _age(iso, now)
    return "" if age is None else ago(age)


def _age(iso: str, now: float) -> float | None:
    try:
        return now - datetime.fromisoformat(iso).timestamp()
    except ValueError:
        return None


def _state_file(home: HermesHome) -> Path:
    return home.root / "gateway_state.json"
