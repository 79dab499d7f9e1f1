"""The `modal` backend: a cloud sandbox per session, through Modal's SDK.

The SDK (extra `modal`) is imported with the first use. A persistent session
leaves a snapshot of its filesystem when it is closed; the id is kept in
`modal_snapshots.json` of the Hermes home and the next sandbox starts from it.
"""

import asyncio
import contextlib
import importlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from msgspec import Struct

from hermes.config.atomic import editing, read_json, write_json
from hermes.domain.errors import ConfigError, HermesError, MissingExtra
from hermes.execution.backend import Backend, EnvironmentRequest
from hermes.execution.remote.environment import LinkedEnvironment, open_linked
from hermes.execution.remote.link import CloudLink, RemoteCall, StreamChild

_SNAPSHOTS = "modal_snapshots.json"
"""Which filesystem snapshot belongs to which session."""
_CALL_TIMEOUT = 60.0
_SNAPSHOT_TIMEOUT = 120
_PIECE = 1024 * 1024
"""The SDK holds two of these at most."""


class ModalOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `terminal.backend_options` may hold."""

    app: str = "hermes"
    lifetime: int = 86_400
    """Seconds after which Modal ends a sandbox whatever it does."""
    start_timeout: float = 600.0
    """Seconds for building the image and starting; the first time takes long."""


def _sdk() -> Any:
    try:
        return importlib.import_module("modal")
    except ImportError as error:
        raise MissingExtra("modal", "The modal backend") from error


class ModalLink(CloudLink):
    def __init__(self, sdk: Any, request: EnvironmentRequest) -> None:
        super().__init__("the Modal sandbox", request.terminal.modal_image, request.clock)
        self._modal = sdk
        self._request = request
        self._options = request.options(ModalOptions)
        self._keeps = request.terminal.container_persistent
        self._client: Any = None
        self._sandbox: Any = None

    async def start(self, call: RemoteCall, sink: Callable[[bytes], None]) -> StreamChild:
        async with self._explained(_CALL_TIMEOUT):
            process = await self._sandbox.exec.aio(*call.argv, text=False)
        self._seen = self._clock.monotonic()
        stream = _Exec(self, process)
        child = StreamChild(stream, sink)
        try:
            await stream.write(call.stdin)
            if not call.interactive:
                await stream.end_input()
        except BaseException:
            await child.close()
            raise
        return child

    async def close(self) -> None:
        """Keep the files of a persistent session, and end the sandbox."""
        sandbox, self._sandbox, self._up = self._sandbox, None, False
        if sandbox is None:
            return
        try:
            if self._keeps:
                async with self._explained(_SNAPSHOT_TIMEOUT + 10):
                    image = await sandbox.snapshot_filesystem.aio(timeout=_SNAPSHOT_TIMEOUT)
                await asyncio.to_thread(self._keep_snapshot, str(image.object_id))
        finally:
            async with self._explained(_CALL_TIMEOUT):
                await sandbox.terminate.aio()

    async def _alive(self) -> bool:
        async with self._explained(_CALL_TIMEOUT):
            return await self._sandbox.poll.aio() is None

    async def _create(self) -> None:
        modal, options = self._modal, self._options
        async with self._explained(options.start_timeout):
            variable = self._request.settings.variable
            if self._client is None and (token := variable("MODAL_TOKEN_ID")):
                secret = variable("MODAL_TOKEN_SECRET") or ""
                self._client = await modal.Client.from_credentials.aio(token, secret)
            app = await modal.App.lookup.aio(
                options.app, client=self._client, create_if_missing=True
            )
            snapshots = await asyncio.to_thread(self._snapshots) if self._keeps else {}
            snapshot = snapshots.get(self._request.task)
            if snapshot is not None and await self._create_from(
                app, modal.Image.from_id(snapshot, client=self._client)
            ):
                return
            if not await self._create_from(app, modal.Image.from_registry(self._image)):
                raise HermesError(f"Modal does not find the image `{self._image}`.")

    async def _create_from(self, app: Any, image: Any) -> bool:
        """Start a sandbox; False if there is no such image (snapshots expire)."""
        try:
            self._sandbox = await self._modal.Sandbox.create.aio(
                *("sleep", "infinity"),
                app=app,
                image=image,
                cpu=self._request.terminal.container_cpu,
                memory=self._request.terminal.container_memory,
                timeout=self._options.lifetime,
                client=self._client,
            )
        except self._modal.exception.NotFoundError:
            return False
        return True

    def _snapshots(self) -> dict[str, str]:
        return read_json(self._request.settings.home.root / _SNAPSHOTS, dict[str, str])

    def _keep_snapshot(self, image_id: str) -> None:
        # Sessions of several processes may end at the same time.
        home = self._request.settings.home
        with editing(home):
            write_json(home.root / _SNAPSHOTS, {**self._snapshots(), self._request.task: image_id})

    @contextlib.asynccontextmanager
    async def _explained(self, timeout: float | None) -> AsyncIterator[None]:
        """Bound a call and turn the SDK's errors into sentences."""
        errors = self._modal.exception
        try:
            async with asyncio.timeout(timeout):
                yield
        except TimeoutError as error:
            raise HermesError(f"Modal did not answer for {timeout} seconds.") from error
        except errors.AuthError as error:
            raise ConfigError(
                "Modal refuses the token.",
                hint="Set MODAL_TOKEN_ID and MODAL_TOKEN_SECRET, or run: modal token new",
            ) from error
        except errors.Error as error:
            raise HermesError(f"Modal reports: {error}") from error


class _Exec:
    def __init__(self, link: ModalLink, process: Any) -> None:
        self._explained = link._explained  # noqa: SLF001 - two halves of one link
        self._process = process

    async def follow(self, sink: Callable[[bytes], None]) -> int | None:
        # No time limit: the command has one.
        async with self._explained(None):
            async for data in self._process.stdout:
                sink(data)
            return int(await self._process.wait.aio())

    async def write(self, data: bytes) -> None:
        async with self._explained(_CALL_TIMEOUT):
            for start in range(0, len(data), _PIECE):
                self._process.stdin.write(data[start : start + _PIECE])
                await self._process.stdin.drain.aio()

    async def end_input(self) -> None:
        async with self._explained(_CALL_TIMEOUT):
            self._process.stdin.write_eof()
            await self._process.stdin.drain.aio()

    async def release(self) -> None:
        """Nothing is held."""


async def _open_environment(request: EnvironmentRequest) -> LinkedEnvironment:
    if not request.terminal.modal_image:
        raise ConfigError("The modal backend has no image.", hint="Set `terminal.modal_image`.")
    return await open_linked(ModalLink(_sdk(), request), request)


BACKEND = Backend(open=_open_environment)
