"""Locks: one gateway per home, and one gateway per bot.

Both are kernel locks (`flock`), which end with the process however it ends; the
files beside them only say who holds them. `gateway.lock` guards the home,
`gateway.pid` names its holder. Locks on credentials lie outside every home, so
that two homes on one machine cannot use the same bot.
"""

import hashlib
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from hermes.config.atomic import write_atomic
from hermes.config.locks import is_locked, open_lock, take_lock, try_lock
from hermes.control.supervision.health import KIND
from hermes.domain.errors import Conflict
from hermes.domain.ports.clock import Clock

LOCK_FILE = "gateway.lock"
PID_FILE = "gateway.pid"
LOOK_EVERY_SECONDS = 0.05
TERM_SECONDS = 30.0
KILL_SECONDS = 5.0
MAX_STARTS = 3
STARTS_SECONDS = 60.0


class RunningGateway(Struct, frozen=True, kw_only=True):
    """The process that holds a home, as `gateway.pid` describes it."""

    pid: int
    kind: str = KIND
    argv: tuple[str, ...] = ()
    start_time: int | None = None
    """When the kernel started it, so that a pid used again is not taken for it."""
    supervised: bool = False
    """Somebody starts it again when it ends with exit code 75."""


@contextmanager
def hold_home(root: Path, argv: Sequence[str] = (), *, supervised: bool = False) -> Iterator[None]:
    """Be the gateway of a home for the body of the `with`; `Conflict` if there is one."""
    descriptor = take_lock(root / LOCK_FILE)
    if descriptor is None:
        holder = running_gateway(root)
        who = f" (process {holder.pid})" if holder and holder.pid else ""
        raise Conflict(
            f"A gateway is already running for this home{who}.",
            hint="Take over with: hermes gateway run --replace",
        )
    me = RunningGateway(
        pid=os.getpid(),
        argv=tuple(argv),
        start_time=_start_time(os.getpid()),
        supervised=supervised,
    )
    try:
        write_atomic(root / PID_FILE, msgspec.json.encode(me).decode() + "\n")
        yield
    finally:
        (root / PID_FILE).unlink(missing_ok=True)
        os.close(descriptor)


def running_gateway(root: Path) -> RunningGateway | None:
    """Return the gateway that runs for a home; a pid of 0 means that it is not known yet."""
    if not is_locked(root / LOCK_FILE, if_unreadable=False):
        return None
    try:
        holder = msgspec.json.decode((root / PID_FILE).read_bytes(), type=RunningGateway)
    except (OSError, msgspec.DecodeError):
        return RunningGateway(pid=0)
    if holder.start_time is not None and holder.start_time != _start_time(holder.pid):
        return RunningGateway(pid=0)
    return holder


def is_supervised(environ: Mapping[str, str]) -> bool:
    """Tell whether somebody will start this process again when it ends to be restarted."""
    if environ.get("HERMES_SUPERVISED", "").strip().lower() in {"1", "true", "yes"}:
        return True
    # systemd names the process it started; its children inherit the variable, not the number.
    me = os.getpid()
    return me == 1 or environ.get("SYSTEMD_EXEC_PID") == str(me)


async def end_gateway(
    root: Path, clock: Clock, *, patience: float = TERM_SECONDS, force: bool = True
) -> bool:
    """Ask the gateway of a home to end and wait; with `force` kill it in the end.

    Returns False if none was running; `Conflict` if it is still there.
    """
    holder = await _known(root, clock)
    if holder is None:
        return False
    _send(holder.pid, signal.SIGTERM)
    if await wait_until_gone(root, holder.pid, clock, patience):
        return True
    if force:
        _send(holder.pid, signal.SIGKILL)
        if await wait_until_gone(root, holder.pid, clock, KILL_SECONDS):
            return True
    raise Conflict(
        f"The gateway (process {holder.pid}) did not stop within {patience:g} seconds.",
        hint="It may be finishing a turn. Try again, or use --force.",
    )


async def wait_until_gone(root: Path, pid: int, clock: Clock, seconds: float) -> bool:
    """Wait until the home is no longer held by `pid`; False when the time is over."""
    ends_at = clock.monotonic() + seconds
    while True:
        holder = running_gateway(root)
        if holder is None or holder.pid not in {pid, 0}:
            return True
        if clock.monotonic() >= ends_at:
            return False
        await clock.sleep(LOOK_EVERY_SECONDS)


async def _known(root: Path, clock: Clock) -> RunningGateway | None:
    """Return the running gateway, waiting a moment for one that has only just locked."""
    ends_at = clock.monotonic() + KILL_SECONDS
    while (holder := running_gateway(root)) is not None and holder.pid == 0:
        if clock.monotonic() >= ends_at:
            raise Conflict(
                f"Another process holds {root / LOCK_FILE}, but its process id is unknown.",
                hint="Find it with: fuser " + str(root / LOCK_FILE),
            )
        await clock.sleep(LOOK_EVERY_SECONDS)
    return holder


# -- credentials -------------------------------------------------------------


def credential_locks_dir(environ: Mapping[str, str]) -> Path:
    state = environ.get("XDG_STATE_HOME", "").strip()
    base = Path(state) if state else Path(environ.get("HOME") or Path.home()) / ".local" / "state"
    return base / "hermes" / "gateway-locks"


@contextmanager
def hold_credential(
    folder: Path, platform: str, secrets: str, home: Path, name: str = ""
) -> Iterator[None]:
    """Keep the credentials of an account (`name`) to this process for the body of the `with`.

    There is one a line, each with a lock of its own: accounts that share only one of
    theirs would still take each other's messages. `Conflict` names the process and home
    that use it. A file's name is a hash; the credential itself is written nowhere.
    """
    with ExitStack() as stack:
        for secret in filter(None, secrets.split("\n")):  # one that is missing is told elsewhere
            stack.enter_context(_hold_one(folder, platform, secret, home, name or platform))
        yield


@contextmanager
def _hold_one(folder: Path, platform: str, secret: str, home: Path, name: str) -> Iterator[None]:
    digest = hashlib.sha256(f"{platform}\0{secret}".encode()).hexdigest()[:32]
    descriptor = open_lock(folder / f"{platform}-{digest}.lock")
    try:
        if not try_lock(descriptor):
            holder = os.read(descriptor, 4096).decode(errors="replace").strip() or "unknown"
            mine = holder.startswith(f"process {os.getpid()},")
            who = "Another account of this gateway" if mine else "Another gateway on this machine"
            raise Conflict(
                f"{who} uses the same {platform} account ({holder}).",
                hint=f"Give {name} a credential of its own, or switch off the other one."
                if mine
                else f"Stop that one (hermes gateway stop, with HERMES_HOME or -p of that home),"
                f" or give {name} a credential of its own.",
            )
        os.ftruncate(descriptor, 0)
        profile = f", profile {home.name}" if home.parent.name == "profiles" else ""
        line = f"process {os.getpid()}, home {home}{profile}, account {name}\n"
        os.pwrite(descriptor, line.encode(), 0)
        yield
    finally:
        # Never unlinked: a lock on a file that is gone would guard nothing.
        os.close(descriptor)


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _start_time(pid: int) -> int | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    # The name in parentheses may hold anything; fields are counted after it.
    return int(stat.rpartition(")")[2].split()[19])


def starts_too_often(path: Path, now: float) -> bool:
    """Note a start; tell whether it is one more than `MAX_STARTS` within the window."""
    try:
        earlier = msgspec.json.decode(path.read_bytes(), type=list[float])
    except (OSError, msgspec.DecodeError):
        # A guard that cannot remember must not keep the gateway from starting.
        earlier = []
    starts = [start for start in earlier if 0 <= now - start < STARTS_SECONDS] + [now]
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_atomic(path, msgspec.json.encode(starts).decode())
    return len(starts) > MAX_STARTS
