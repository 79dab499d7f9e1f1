"""The bash that stands around every command on another machine.

The supervisor runs the command in a process group of its own and, when it has
ended, prints a mark with the exit status and the directory the command ended
in. Whoever reads the output up to the mark has all of it and knows the end,
even while a grandchild keeps the pipe open; output that stops without a mark
means that the way to the machine was cut and the effect is unknown. The mark
is one line, so that bash writes it at once and a grandchild that floods the
pipe cannot get in between; newlines in the directory are replaced by a unit separator.

The command's first act is to claim `pid.<number>` without overwriting it.
Killing works through that file: if the killer finds none it claims the name
itself, and then the command never begins. So a cancel cannot come too early.
"""

import asyncio
import contextlib
import re
import secrets
import shlex
from collections.abc import Awaitable, Callable

from hermes.domain.errors import HermesError
from hermes.execution.host.process import KILL_GRACE, ChildProcess, ExitWatch
from hermes.execution.remote.link import Link, RemoteCall

# Arguments: state directory, number, mark, outdated generation, INNER.
_SUPERVISOR = (
    '[ -d "$1" ] || mkdir -m 700 "$1";'
    " if [ -t 0 ]; then stty -onlcr; set -m;"
    ' bash --noprofile --norc -c "$5" bash "$1" "$2"; s=$?; exec 2>/dev/null;'
    ' else set -m; bash --noprofile --norc -c "$5" bash "$1" "$2" 2>&1 <&0 &'
    " c=$!; set +m; exec </dev/null 2>/dev/null; wait $c; s=$?; fi;"
    ' w=; [ -f "$1/cwd.$2" ] && IFS= read -rd "" w <"$1/cwd.$2";'
    " case $w in *$'\\n') w=${w%?};; *) w=;; esac; w=${w//$'\\n'/$'\\037'};"
    ' rm -f "$1/pid.$2" "$1/cwd.$2" "$1/script.$2" ${4:+"$1/env.$4"};'
    r' printf "\036%s %s %s\036%s\n" "$3" "$s" "$w" "$3"'
)
_INNER = (
    'set -C; { echo $$ >"$1/pid.$2"; } 2>/dev/null || exit 137; set +C;'
    ' if [ -f "$1/script.$2" ]; then IFS= read -rd "" __hermes_script <"$1/script.$2";'
    ' else IFS= read -rd "" __hermes_script; fi;'
    ' set --; eval -- "unset __hermes_script; $__hermes_script"'
)
_KILL = (
    'f={pid}; {{ set -C; echo 0 >"$f"; }} 2>/dev/null && exit 0; p=$(cat "$f" 2>/dev/null);'
    ' [ "${{p:-0}}" -gt 1 ] || exit 0; kill -TERM -- "-$p" 2>/dev/null; i=0;'
    ' while kill -0 -- "-$p" 2>/dev/null && [ $i -lt {polls} ];'
    " do sleep 0.05; i=$((i+1)); done;"
    ' kill -KILL -- "-$p" 2>/dev/null; exit 0'
)
_KILL_ALL = (
    'for f in {state}/pid.*; do [ -f "$f" ] && p=$(cat "$f") && [ "${{p:-0}}" -gt 1 ]'
    ' && [ "$f" != {own} ] && kill -KILL -- "-$p" 2>/dev/null; done; rm -rf {state}'
)
LOST = 255
"""Exit code of a command of which nothing more is known."""
_LINGER = 0.1
"""How long the carrier may take to end by itself after the mark."""
_SETTLE = 5.0
"""How long the mark may take to arrive after a kill."""
START_TIMEOUT = 60.0
_POLL = 0.05
_MAX_FRAME = 64 * 1024
"""A mark with the longest directory name there can be is far shorter."""


def supervised(state_dir: str, number: str, outdated: str = "") -> tuple[str, tuple[str, ...]]:
    """Return mark and command line for the next script; the script itself goes to its input."""
    mark = secrets.token_hex(8)
    return mark, (
        *("bash", "--noprofile", "--norc", "-c", _SUPERVISOR),
        *("bash", state_dir, number, mark, outdated, _INNER),
    )


def kill_script(state_dir: str, number: str, grace: float) -> str:
    """Return bash that ends a supervised command and its group."""
    pid = shlex.quote(f"{state_dir}/pid.{number}")
    return _KILL.format(pid=pid, polls=max(1, int(grace / _POLL)))


def kill_all_script(state_dir: str, own_number: str) -> str:
    """Return bash that ends everything supervised there and removes the state."""
    own = shlex.quote(f"{state_dir}/pid.{own_number}")
    return _KILL_ALL.format(state=shlex.quote(state_dir), own=own)


class MarkReader:
    """Passes output on until the mark, then knows how the command ended."""

    def __init__(self, mark: str, sink: Callable[[bytes], None]) -> None:
        self._start = f"\x1e{mark} ".encode()
        self._whole = re.compile(
            re.escape(self._start) + rb"(\d+) ([^\x1e\n]*)\x1e" + mark.encode()
        )
        self._sink = sink
        self._held = b""
        self.tail = b""
        """The last of the output, to explain an end without a mark."""
        self.status: int | None = None
        self.cwd = ""

    def feed(self, data: bytes) -> bool:
        """Take bytes; True once the mark was seen."""
        if self.status is not None:
            return True
        data = self._held + data
        self._held = b""
        found = self._whole.search(data)
        if found is not None:
            self._pass(data[: found.start()])
            self.status = int(found[1])
            directory = found[2].decode("utf-8", "surrogateescape").replace("\x1f", "\n")
            self.cwd = f"{directory}\n" if directory else ""
            return True
        # Somebody may imitate the beginning; what is held must stay bounded.
        at = data.find(self._start, max(0, len(data) - _MAX_FRAME))
        keep = len(data) - at if at >= 0 else _partial(data, self._start)
        self._pass(data[: len(data) - keep])
        self._held = data[len(data) - keep :]
        return False

    def finish(self) -> None:
        """Pass on what was held back: there will be no mark."""
        held, self._held = self._held, b""
        self._pass(held)

    def _pass(self, data: bytes) -> None:
        if data:
            self.tail = (self.tail + data)[-2000:]
            self._sink(data)


def _partial(data: bytes, mark: bytes) -> int:
    """Return how many bytes at the end of `data` may be the beginning of the mark."""
    at = data.rfind(mark[:1], max(0, len(data) - len(mark) + 1))
    return len(data) - at if at >= 0 and mark.startswith(data[at:]) else 0


class RemoteChild(ExitWatch):
    """A supervised command; ends when its mark arrives, or when what carried it ends."""

    def __init__(self, link: Link, mark: str, sink: Callable[[bytes], None]) -> None:
        super().__init__()
        self._link = link
        self._sink = sink
        self._reader = MarkReader(mark, sink)
        self._carrier: ChildProcess | None = None
        self._end: Callable[[float], Awaitable[None]] | None = None
        self.lost = False
        """True when it ended without telling how."""

    async def begin(self, call: RemoteCall, end: Callable[[float], Awaitable[None]] | None) -> None:
        """Start it; `end` is how it is killed, None to let it go with its carrier."""
        self._end = end
        try:
            async with asyncio.timeout(START_TIMEOUT):
                self._carrier = await self._link.start(call, self._feed)
        except (asyncio.CancelledError, TimeoutError) as error:
            # It may have begun, or be about to.
            await self._try_to_end(0.0)
            if isinstance(error, TimeoutError):
                raise HermesError(f"Nothing could be started on {self._link.name}.") from error
            raise
        self._carrier.when_exited(self._carrier_ended)

    @property
    def exit_code(self) -> int | None:
        if self.running:
            return None
        return LOST if self._reader.status is None else self._reader.status

    @property
    def cwd(self) -> str:
        return self._reader.cwd

    def drain(self) -> None:
        if self._carrier is not None and self.running:
            self._carrier.drain()

    async def finish_reading(self) -> None:
        """Do nothing: the mark comes after all output."""

    async def stop(self, grace: float = KILL_GRACE) -> None:
        if self.running and await self._try_to_end(grace) and await self.wait(_SETTLE):
            return
        if self._carrier is not None:
            await self._carrier.close(_LINGER)
        self._finish()

    async def close(self, grace: float = KILL_GRACE) -> None:
        try:
            if self.running:
                await self.stop(grace)
            elif self._carrier is not None:
                await self._carrier.wait(_LINGER)
        finally:
            if self._carrier is not None:
                await self._carrier.close(_LINGER)
            self._finish()

    async def write(self, data: bytes) -> None:
        if self._carrier is None or not self.running:
            raise HermesError("The standard input of this process is closed.")
        await self._carrier.write(data)

    def close_stdin(self) -> None:
        if self._carrier is not None:
            self._carrier.close_stdin()

    async def _try_to_end(self, grace: float) -> bool:
        if self._end is None:
            return False
        with contextlib.suppress(HermesError):
            await self._end(grace)
        return True

    def _feed(self, data: bytes) -> None:
        if self.running and self._reader.feed(data):
            self._finish()

    def _carrier_ended(self) -> None:
        carrier = self._carrier
        if not self.running or carrier is None:
            return
        carrier.drain()
        if self.running:
            self.lost = True
            self._reader.finish()
            tail = self._reader.tail.decode("utf-8", "replace")
            said = self._link.explain(carrier.exit_code, tail)
            self._sink(f"\n[{said}]\n".encode())
            self._finish()
