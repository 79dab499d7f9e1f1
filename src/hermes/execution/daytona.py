"""The `daytona` backend: a cloud sandbox per session, over Daytona's HTTP API.

The sandbox is called `hermes-<task>`. A persistent session stops it when it is
closed and starts the same one again; otherwise it is deleted. The API carries
output by lines of text and has no end of input, so input travels as a file or
through a named pipe in the sandbox, and helper output in base64.
"""

import asyncio
import base64
import contextlib
import math
import secrets
import shlex
from collections.abc import Callable

from msgspec import Struct

from hermes.domain.errors import ConfigError, HermesError
from hermes.domain.ports.clock import Clock
from hermes.execution.contract import EnvironmentRequest
from hermes.execution.daytona_api import DaytonaApi, Sandbox, require_websockets
from hermes.execution.file_sync import FileSync, SyncRoot
from hermes.execution.options import decode_options
from hermes.execution.process import KILL_GRACE
from hermes.execution.remote_link import RemoteCall
from hermes.execution.remote_paths import task_id
from hermes.execution.remote_place import LinkedEnvironment, open_linked
from hermes.execution.remote_stream import StreamChild

__all__ = ["DaytonaLink", "DaytonaOptions", "LabelFilter", "open_environment"]

MAX_DISK = 10
"""GB that Daytona gives a sandbox."""
_INLINE = 48 * 1024
"""Input up to this size travels inside the command."""
_LOOK_AGAIN = 30.0
_HELPER_TIMEOUT = 20
_STOP_TIMEOUT = 60.0
_BROKEN = frozenset({"error", "build_failed"})
_GONE = frozenset({"destroyed", "destroying"})
_LABELS = (b"\x01\x01\x01", b"\x02\x02\x02")


class DaytonaOptions(Struct, frozen=True, kw_only=True):
    """How sandboxes are made."""

    image: str = ""
    api_key: str = ""
    api_url: str = ""
    """Empty for the vendor's."""
    organization: str = ""
    target: str = ""
    cpu: float = 1.0
    memory: int = 5120
    """MB."""
    disk: int = 10240
    """MB; more than 10 GB is not to be had."""
    persistent: bool = True
    auto_stop: int = 15
    """Minutes without activity after which Daytona stops a sandbox that was left behind."""
    start_timeout: float = 600.0
    """Seconds for building the image and starting; the first time takes long."""
    sync: tuple[SyncRoot, ...] = ()
    kill_grace: float = KILL_GRACE


async def open_environment(request: EnvironmentRequest) -> LinkedEnvironment:
    """Start the sandbox of one session."""
    options = decode_options(DaytonaOptions, request.settings.options, "The daytona backend")
    if not options.image:
        raise ConfigError("The daytona backend has no image.", hint="Set `terminal.daytona_image`.")
    if not options.api_key:
        raise ConfigError("The daytona backend has no key.", hint="Set DAYTONA_API_KEY.")
    require_websockets()
    task = task_id(request.agent_id, request.session_id)
    return await open_linked(
        DaytonaLink(options, f"hermes-{task}", request.clock),
        request,
        kill_grace=options.kill_grace,
        sync=FileSync(options.sync, request.clock) if options.sync else None,
    )


class DaytonaLink:
    """One sandbox in Daytona's cloud."""

    isolated = True
    has_terminal = False
    text_only = True

    def __init__(self, options: DaytonaOptions, sandbox_name: str, clock: Clock) -> None:
        self._options = options
        self._sandbox_name = sandbox_name
        self._clock = clock
        self._api: DaytonaApi | None = None
        self._sandbox: Sandbox | None = None
        self._seen_alive = 0.0
        self._starts = 0
        self.name = f"the Daytona sandbox `{sandbox_name}`"

    async def open(self) -> int:
        """Make or start the sandbox unless it runs."""
        if self._sandbox is not None and self._clock.monotonic() - self._seen_alive > _LOOK_AGAIN:
            found = await self._connected().find(self._sandbox_name)
            if found is None or found.state != "started":
                self._sandbox = None
            self._seen_alive = self._clock.monotonic()
        if self._sandbox is None:
            try:
                async with asyncio.timeout(self._options.start_timeout):
                    self._sandbox = await self._started()
            except TimeoutError as error:
                raise HermesError(f"{self.name} does not start in time.") from error
            self._starts += 1
            self._seen_alive = self._clock.monotonic()
        return self._starts

    async def start(self, call: RemoteCall, sink: Callable[[bytes], None]) -> StreamChild:
        """Start a program in the sandbox."""
        assert self._sandbox is not None
        stream = _Exec(self._connected(), self._sandbox)
        try:
            await stream.begin(call)
        except BaseException:
            with contextlib.suppress(HermesError):
                await stream.release()
            raise
        self._seen_alive = self._clock.monotonic()
        return StreamChild(stream, sink)

    def explain(self, exit_code: int | None, output: str) -> str:  # noqa: ARG002 - a Link has it
        """Say why a command's end was not seen; look at the sandbox before the next."""
        self._seen_alive = float("-inf")
        if "bash: not found" in output or "command not found: bash" in output:
            return f"There is no bash in the image `{self._options.image}`; nothing was run"
        return f"{self.name} stopped answering; whether the command took effect is unknown"

    async def close(self) -> None:
        """Stop the sandbox, or delete it when nothing is to be kept."""
        sandbox, self._sandbox = self._sandbox, None
        api, self._api = self._api, None
        if api is None:
            return
        try:
            if sandbox is not None:
                async with asyncio.timeout(_STOP_TIMEOUT):
                    end = api.stop if self._options.persistent else api.delete
                    await end(sandbox.id)
        except TimeoutError as error:
            raise HermesError(f"{self.name} does not stop in time.") from error
        finally:
            await api.close()

    def _connected(self) -> DaytonaApi:
        if self._api is None:
            options = self._options
            self._api = DaytonaApi(options.api_key, options.api_url, options.organization)
        return self._api

    async def _started(self) -> Sandbox:
        """Bring the sandbox up, whatever state it is in."""
        api = self._connected()
        pause = 0.05
        asked = ""
        while True:
            sandbox = await api.find(self._sandbox_name)
            state = sandbox.state if sandbox else "absent"
            if sandbox is not None and state == "started":
                return sandbox
            if sandbox is not None and state in _BROKEN:
                reason = sandbox.error_reason or state
                raise HermesError(
                    f"{self.name} cannot be started: {reason}.",
                    hint="Look at it in Daytona's dashboard, or delete it there.",
                )
            if state != asked and (sandbox is None or state in _GONE):
                await api.create(self._wanted())
                asked = state
            elif state != asked and sandbox is not None and state in {"stopped", "archived"}:
                await api.start(sandbox.id)
                asked = state
            await self._clock.sleep(pause)
            pause = min(pause * 1.5, 1.0)

    def _wanted(self) -> dict[str, object]:
        options = self._options
        wanted: dict[str, object] = {
            "name": self._sandbox_name,
            "buildInfo": {"dockerfileContent": f"FROM {options.image}\n"},
            "cpu": math.ceil(options.cpu),
            "memory": math.ceil(options.memory / 1024),
            "disk": min(MAX_DISK, math.ceil(options.disk / 1024)),
            "autoStopInterval": options.auto_stop,
            "labels": {"hermes": "session"},
            "env": {},
        }
        if options.target:
            wanted["target"] = options.target
        if not options.persistent:
            wanted["autoDeleteInterval"] = 0
        return wanted


class _Exec:
    """One program in the sandbox, in a process session of its own."""

    def __init__(self, api: DaytonaApi, sandbox: Sandbox) -> None:
        self._api = api
        self._sandbox = sandbox
        self._session = f"hermes-{secrets.token_hex(8)}"
        self._input = f"/tmp/{self._session}"  # noqa: S108 - in the sandbox
        self._command_id = ""

    async def begin(self, call: RemoteCall) -> None:
        program = shlex.join(call.argv)
        if len(call.stdin) > _INLINE:
            await self._api.upload(self._sandbox, self._input, call.stdin)
            first = f"cat {self._input}"
        else:
            first = f"printf %s {base64.b64encode(call.stdin).decode()} | base64 -d"
        if call.interactive:
            pipe = f"{self._input}.in"
            command = (
                f"mkfifo {pipe}; sleep 2147483 >{pipe} & echo $! >{pipe}.pid;"
                f" {{ {first}; cat {pipe}; }} | {program}"
            )
        else:
            command = f"{{ {first}; }} | {program}"
        self._command_id = await self._api.begin(self._sandbox, self._session, command)

    async def follow(self, sink: Callable[[bytes], None]) -> int | None:
        await self._api.follow(
            self._sandbox, self._session, self._command_id, LabelFilter(sink).feed
        )
        return None

    async def write(self, data: bytes) -> None:
        for start in range(0, len(data), _INLINE):
            text = base64.b64encode(data[start : start + _INLINE]).decode()
            pipe = f"{self._input}.in"
            await self._short(
                f"until [ -p {pipe} ]; do sleep 0.05; done; printf %s {text} | base64 -d >{pipe}"
            )

    async def end_input(self) -> None:
        # Written to a file that may not be there yet when this comes at once.
        file = f"{self._input}.in.pid"
        await self._short(f"until [ -s {file} ]; do sleep 0.05; done; kill $(cat {file})")

    async def release(self) -> None:
        await self._api.end(self._sandbox, self._session)
        await self._short(f"rm -f {self._input} {self._input}.in {self._input}.in.pid")

    async def _short(self, command: str) -> None:
        script = f"sh -c {shlex.quote(command)}"
        if await self._api.execute(self._sandbox, script, _HELPER_TIMEOUT):
            raise HermesError("The process in the Daytona sandbox does not take its input.")


class LabelFilter:
    """Takes away the label that Daytona puts before each line of a log."""

    def __init__(self, sink: Callable[[bytes], None]) -> None:
        self._sink = sink
        self._held = b""
        self._in_line = False

    def feed(self, data: bytes) -> None:
        """Pass on more of the log."""
        *whole, rest = (self._held + data).split(b"\n")
        clean = b"".join(self._unlabelled(line) + b"\n" for line in whole)
        self._held = b""
        if not self._in_line and len(rest) < 3 and any(x.startswith(rest) for x in _LABELS):
            self._held = rest
        else:
            clean += self._unlabelled(rest)
            self._in_line = True
        if clean:
            self._sink(clean)

    def _unlabelled(self, piece: bytes) -> bytes:
        """Return a line, or its rest, without a label; the next piece begins a line."""
        begun, self._in_line = self._in_line, False
        return piece[3:] if not begun and piece.startswith(_LABELS) else piece
