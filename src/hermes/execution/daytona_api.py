"""The part of Daytona's HTTP API that the backend uses.

Sandboxes are made, started and stopped over the main API; commands run over
the toolbox of a sandbox, and their output is followed on a WebSocket. The
vendor's SDK does the same with many more dependencies.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import httpx2
import msgspec
from msgspec import Struct

from hermes.domain.errors import ConfigError, HermesError, MissingExtra, NotFound

__all__ = ["DaytonaApi", "Sandbox", "require_websockets"]

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


class _Url(Struct, frozen=True):
    url: str


class _Started(Struct, frozen=True, rename="camel"):
    cmd_id: str


class _Executed(Struct, frozen=True, rename="camel"):
    exit_code: int
    result: str = ""


class DaytonaApi:
    """Calls of one account."""

    def __init__(self, api_key: str, api_url: str, organization: str = "") -> None:
        headers = {"Authorization": f"Bearer {api_key}", "X-Daytona-Source": "hermes"}
        if organization:
            headers["X-Daytona-Organization-ID"] = organization
        self._api = (api_url or API_URL).rstrip("/")
        self._client = httpx2.AsyncClient(headers=headers, timeout=_TIMEOUT)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def find(self, name: str) -> Sandbox | None:
        """Return the sandbox with this name or id."""
        try:
            found = await self._ask("GET", f"{self._api}/sandbox/{name}", Sandbox)
        except NotFound:
            return None
        if found.toolbox_proxy_url:
            return found
        proxy = await self._ask("GET", f"{self._api}/sandbox/{found.id}/toolbox-proxy-url", _Url)
        return msgspec.structs.replace(found, toolbox_proxy_url=proxy.url)

    async def create(self, wanted: Mapping[str, Any]) -> None:
        """Make a sandbox; it starts by itself. One with that name is fine too."""
        await self._call("POST", f"{self._api}/sandbox", json=wanted, fine=(409,))

    async def start(self, sandbox_id: str) -> None:
        """Start a stopped sandbox."""
        await self._call("POST", f"{self._api}/sandbox/{sandbox_id}/start")

    async def stop(self, sandbox_id: str) -> None:
        """Stop a sandbox; its files stay."""
        await self._call("POST", f"{self._api}/sandbox/{sandbox_id}/stop")

    async def delete(self, sandbox_id: str) -> None:
        """Delete a sandbox and its files."""
        await self._call("DELETE", f"{self._api}/sandbox/{sandbox_id}", fine=(404,))

    async def begin(self, sandbox: Sandbox, session: str, command: str) -> str:
        """Start a command in a new process session; return its id."""
        toolbox = self._toolbox(sandbox)
        await self._call("POST", f"{toolbox}/process/session", json={"sessionId": session})
        started = await self._ask(
            "POST",
            f"{toolbox}/process/session/{session}/exec",
            _Started,
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
        return (await self._ask("POST", url, _Executed, json=body)).exit_code

    async def upload(self, sandbox: Sandbox, path: str, data: bytes) -> None:
        """Write a file."""
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


def require_websockets() -> None:
    """Complain unless the extra is installed."""
    try:
        from httpx2 import websockets  # noqa: F401, PLC0415
    except ImportError as error:
        raise MissingExtra("daytona", "The daytona backend") from error


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
    said = _message(answer)
    if answer.status_code == 404:
        raise NotFound(f"Daytona does not find it: {said}.")
    raise HermesError(f"Daytona reports {answer.status_code}: {said}.")


def _message(answer: httpx2.Response) -> str:
    try:
        told = msgspec.json.decode(answer.content, type=dict[str, Any])
    except msgspec.MsgspecError:
        return answer.text[:300]
    return str(told.get("message") or told.get("error") or told)[:300].rstrip(".")
