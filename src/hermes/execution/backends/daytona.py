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
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import httpx2
import msgspec
from msgspec import Struct

from hermes.domain.errors import ConfigError, HermesError, MissingExtra, NotFound
from hermes.execution.backend import Backend, EnvironmentRequest
from hermes.execution.remote.environment import LinkedEnvironment, open_linked
from hermes.execution.remote.link import CloudLink, RemoteCall, StreamChild

T = TypeVar("T")

API_URL = "https://app.daytona.io/api"
_TIMEOUT = 60.0


class Sandbox(Struct, frozen=True, kw_only=True, rename="camel"):
    """What the API tells about a sandbox."""

    id: str
    name: str = ""
    state: str = "unknown"
    error_reason: str | None = None
    toolbox_proxy_url: str = ""


class _Answer(Struct, frozen=True, rename="camel"):
    url: str = ""
    cmd_id: str = ""
    exit_code: int = 0


class DaytonaApi:
    def __init__(self, api_key: str, api_url: str, organization: str = "") -> None:
        headers = {"Authorization": f"Bearer {api_key}", "X-Daytona-Source": "hermes"}
        if organization:
            headers["X-Daytona-Organization-ID"] = organization
        self._api = api_url.rstrip("/")
        self._client = httpx2.AsyncClient(headers=headers, timeout=_TIMEOUT)

    async def close(self) -> None:
        await self._client.aclose()

    async def find(self, name: str) -> Sandbox | None:
        try:
            found = await self._ask("GET", f"{self._api}/sandbox/{name}", Sandbox)
        except NotFound:
            return None
        if found.toolbox_proxy_url:
            return found
        proxy = await self._ask("GET", f"{self._api}/sandbox/{found.id}/toolbox-proxy-url", _Answer)
        return msgspec.structs.replace(found, toolbox_proxy_url=proxy.url)

    async def create(self, wanted: Mapping[str, Any]) -> None:
        """Make a sandbox; it starts by itself. One with that name is fine too."""
        await self._call("POST", f"{self._api}/sandbox", json=wanted, fine=(409,))

    async def start(self, sandbox_id: str) -> None:
        await self._call("POST", f"{self._api}/sandbox/{sandbox_id}/start")

    async def stop(self, sandbox_id: str) -> None:
        """Stop a sandbox; its files stay."""
        await self._call("POST", f"{self._api}/sandbox/{sandbox_id}/stop")

    async def delete(self, sandbox_id: str) -> None:
        await self._call("DELETE", f"{self._api}/sandbox/{sandbox_id}", fine=(404,))

    async def begin(self, sandbox: Sandbox, session: str, command: str) -> str:
        """Start a command in a new process session; return its id."""
        toolbox = self._toolbox(sandbox)
        await self._call("POST", f"{toolbox}/process/session", json={"sessionId": session})
        started = await self._ask(
            "POST",
            f"{toolbox}/process/session/{session}/exec",
            _Answer,
            json={"command": command, "runAsync": True, "suppressInputEcho": True},
        )
        return started.cmd_id

    async def follow(
        self, sandbox: Sandbox, session: str, command_id: str, sink: Callable[[bytes], None]
    ) -> None:
        """Pass a command's log on, as it grows, until it ends."""
        from httpx2 import websockets  # noqa: PLC0415 - needs the extra

        path = f"process/session/{session}/command/{command_id}/logs"
        url = f"{self._toolbox(sandbox)}/{path}".replace("http", "ws", 1)
        with _explained():
            try:
                async with self._client.websocket(
                    url, params={"follow": "true"}, timeout=httpx2.Timeout(_TIMEOUT, read=None)
                ) as socket:
                    while True:
                        event = await socket.receive()
                        data: bytes | str = getattr(event, "data", b"")
                        sink(data.encode() if isinstance(data, str) else bytes(data))
            except websockets.WebSocketDisconnect:
                return
            except websockets.HTTPXWSException as error:
                raise HermesError(f"Daytona's log of a command broke off: {error!r}.") from error

    async def end(self, sandbox: Sandbox, session: str) -> None:
        """End a process session and forget its log."""
        url = f"{self._toolbox(sandbox)}/process/session/{session}"
        await self._call("DELETE", url, fine=(404,))

    async def execute(self, sandbox: Sandbox, command: str, timeout: int) -> int:
        """Run a short command to its end; return its exit code."""
        url = f"{self._toolbox(sandbox)}/process/execute"
        body = {"command": command, "timeout": timeout}
        return (await self._ask("POST", url, _Answer, json=body)).exit_code

    async def upload(self, sandbox: Sandbox, path: str, data: bytes) -> None:
        url = f"{self._toolbox(sandbox)}/files/bulk-upload"
        form = {"files[0].path": path}
        files = {"files[0].file": (path, data, "application/octet-stream")}
        with _explained():
            answer = await self._client.post(url, data=form, files=files, timeout=600)
        _check(answer, ())

    def _toolbox(self, sandbox: Sandbox) -> str:
        return f"{sandbox.toolbox_proxy_url.rstrip('/')}/{sandbox.id}"

    async def _ask(
        self, method: str, url: str, kind: type[T], json: Mapping[str, Any] | None = None
    ) -> T:
        answer = await self._call(method, url, json=json)
        try:
            return msgspec.json.decode(answer.content, type=kind)
        except msgspec.MsgspecError as error:
            raise HermesError(f"Daytona answered something unexpected: {error}.") from error

    async def _call(
        self,
        method: str,
        url: str,
        *,
        json: Mapping[str, Any] | None = None,
        fine: tuple[int, ...] = (),
    ) -> httpx2.Response:
        with _explained():
            answer = await self._client.request(method, url, json=json)
        _check(answer, fine)
        return answer


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except httpx2.TimeoutException as error:
        raise HermesError("Daytona does not answer in time.", hint="Try again later.") from error
    except httpx2.HTTPError as error:
        raise HermesError(
            f"No connection to Daytona: {error}.", hint="Check the network and DAYTONA_API_URL."
        ) from error


def _check(answer: httpx2.Response, fine: tuple[int, ...]) -> None:
    if answer.status_code < 400 or answer.status_code in fine:
        return
    if answer.status_code in {401, 403}:
        raise ConfigError("Daytona refuses the API key.", hint="Set DAYTONA_API_KEY.")
    try:
        told = msgspec.json.decode(answer.content, type=dict[str, Any])
        said = str(told.get("message") or told.get("error") or told)[:300].rstrip(".")
    except msgspec.MsgspecError:
        said = answer.text[:300]
    if answer.status_code == 404:
        raise NotFound(f"Daytona does not find it: {said}.")
    raise HermesError(f"Daytona reports {answer.status_code}: {said}.")


MAX_DISK = 10
"""GB that Daytona gives a sandbox."""
_INLINE = 48 * 1024
"""Input up to this size travels inside the command."""
_HELPER_TIMEOUT = 20
_STOP_TIMEOUT = 60.0
_BROKEN = frozenset({"error", "build_failed"})
_GONE = frozenset({"destroyed", "destroying"})
_LABELS = (b"\x01\x01\x01", b"\x02\x02\x02")


class DaytonaOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `terminal.backend_options` may hold."""

    auto_stop: int = 15
    """Minutes without activity after which Daytona stops a sandbox that was left behind."""
    start_timeout: float = 600.0
    """Seconds for building the image and starting; the first time takes long."""


class DaytonaLink(CloudLink):
    text_only = True

    def __init__(self, request: EnvironmentRequest) -> None:
        self._sandbox_name = f"hermes-{request.task}"
        name = f"the Daytona sandbox `{self._sandbox_name}`"
        super().__init__(name, request.terminal.daytona_image, request.clock)
        self._options = request.options(DaytonaOptions)
        self._terminal = request.terminal
        self._variable = request.settings.variable
        self._api: DaytonaApi | None = None
        self._sandbox: Sandbox | None = None

    async def start(self, call: RemoteCall, sink: Callable[[bytes], None]) -> StreamChild:
        assert self._sandbox is not None
        stream = _Exec(self._connected(), self._sandbox)
        try:
            await stream.begin(call)
        except BaseException:
            with contextlib.suppress(HermesError):
                await stream.release()
            raise
        self._seen = self._clock.monotonic()
        return StreamChild(stream, sink)

    async def close(self) -> None:
        """Stop the sandbox, or delete it when nothing is to be kept."""
        sandbox, self._sandbox, self._up = self._sandbox, None, False
        api, self._api = self._api, None
        if api is None:
            return
        try:
            if sandbox is not None:
                async with asyncio.timeout(_STOP_TIMEOUT):
                    end = api.stop if self._terminal.container_persistent else api.delete
                    await end(sandbox.id)
        except TimeoutError as error:
            raise HermesError(f"{self.name} does not stop in time.") from error
        finally:
            await api.close()

    def _connected(self) -> DaytonaApi:
        if self._api is None:
            self._api = DaytonaApi(
                self._variable("DAYTONA_API_KEY") or "",
                self._variable("DAYTONA_API_URL") or API_URL,
                self._variable("DAYTONA_ORGANIZATION_ID") or "",
            )
        return self._api

    async def _alive(self) -> bool:
        found = await self._connected().find(self._sandbox_name)
        return found is not None and found.state == "started"

    async def _create(self) -> None:
        try:
            async with asyncio.timeout(self._options.start_timeout):
                self._sandbox = await self._started()
        except TimeoutError as error:
            raise HermesError(f"{self.name} does not start in time.") from error

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
        terminal = self._terminal
        wanted: dict[str, object] = {
            "name": self._sandbox_name,
            "buildInfo": {"dockerfileContent": f"FROM {self._image}\n"},
            "cpu": math.ceil(terminal.container_cpu),
            "memory": math.ceil(terminal.container_memory / 1024),
            "disk": min(MAX_DISK, math.ceil(terminal.container_disk / 1024)),
            "autoStopInterval": self._options.auto_stop,
            "labels": {"hermes": "session"},
            "env": {},
        }
        if target := self._variable("DAYTONA_TARGET"):
            wanted["target"] = target
        if not terminal.container_persistent:
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


async def _open_environment(request: EnvironmentRequest) -> LinkedEnvironment:
    if not request.terminal.daytona_image:
        raise ConfigError("The daytona backend has no image.", hint="Set `terminal.daytona_image`.")
    if not request.settings.variable("DAYTONA_API_KEY"):
        raise ConfigError("The daytona backend has no key.", hint="Set DAYTONA_API_KEY.")
    try:
        from httpx2 import websockets  # noqa: F401, PLC0415
    except ImportError as error:
        raise MissingExtra("daytona", "The daytona backend") from error
    return await open_linked(DaytonaLink(request), request)


BACKEND = Backend(open=_open_environment)
