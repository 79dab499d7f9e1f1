"""The `modal` backend: a cloud sandbox per session, through Modal's SDK.

The SDK (extra `modal`) is imported with the first use. A persistent session
leaves a snapshot of its filesystem when it is closed; the id is kept in
`modal_snapshots.json` of the Hermes home and the next sandbox starts from it.
"""

import asyncio
import contextlib
import importlib
import secrets
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from hermes.config.locks import locked
from hermes.domain.errors import ConfigError, HermesError, MissingExtra
from hermes.domain.ports.clock import Clock
from hermes.execution.backend import EnvironmentRequest, decode_options, task_id
from hermes.execution.host.process import KILL_GRACE
from hermes.execution.remote.link import RemoteCall, StreamChild
from hermes.execution.remote.place import LinkedEnvironment, open_linked
from hermes.execution.remote.sync import FileSync, SyncRoot

_CALL_TIMEOUT = 60.0
_SNAPSHOT_TIMEOUT = 120
_LOOK_AGAIN = 30.0
"""Seconds after which an unused sandbox is asked whether it still lives."""
_PIECE = 1024 * 1024
"""The SDK holds two of these at most."""


class ModalOptions(Struct, frozen=True, kw_only=True):
    """How sandboxes are made."""

    image: str = ""
    app: str = "hermes"
    cpu: float = 1.0
    memory: int = 5120
    """MB."""
    lifetime: int = 86_400
    """Seconds after which Modal ends a sandbox whatever it does."""
    start_timeout: float = 600.0
    """Seconds for building the image and starting; the first time takes long."""
    persistent: bool = True
    snapshots_file: str = ""
    """`modal_snapshots.json` of the Hermes home."""
    token_id: str = ""
    token_secret: str = ""
    """Both empty: what the SDK finds by itself."""
    sync: tuple[SyncRoot, ...] = ()
    kill_grace: float = KILL_GRACE


async def open_environment(request: EnvironmentRequest) -> LinkedEnvironment:
    """Start the sandbox of one session."""
    options = decode_options(ModalOptions, request.settings.options, "The modal backend")
    if not options.image:
        raise ConfigError("The modal backend has no image.", hint="Set `terminal.modal_image`.")
    return await open_linked(
        ModalLink(_sdk(), options, task_id(request.agent_id, request.session_id), request.clock),
        request,
        kill_grace=options.kill_grace,
        sync=FileSync(options.sync, request.clock) if options.sync else None,
    )


def _sdk() -> Any:
    try:
        return importlib.import_module("modal")
    except ImportError as error:
        raise MissingExtra("modal", "The modal backend") from error


class ModalLink:
    """One sandbox in Modal's cloud."""

    isolated = True
    has_terminal = False
    text_only = False

    def __init__(self, sdk: Any, options: ModalOptions, task: str, clock: Clock) -> None:
        self._modal = sdk
        self._options = options
        self._task = task
        self._clock = clock
        self._snapshots = Snapshots(options.snapshots_file) if options.persistent else None
        self._client: Any = None
        self._sandbox: Any = None
        self._seen_alive = 0.0
        self._starts = 0
        self.name = "the Modal sandbox"

    async def open(self) -> int:
        """Start a sandbox unless there is one."""
        if self._sandbox is not None and self._clock.monotonic() - self._seen_alive > _LOOK_AGAIN:
            async with self._explained(_CALL_TIMEOUT):
                if await self._sandbox.poll.aio() is not None:
                    self._sandbox = None
            self._seen_alive = self._clock.monotonic()
        if self._sandbox is None:
            await self._create()
        return self._starts

    async def start(self, call: RemoteCall, sink: Callable[[bytes], None]) -> StreamChild:
        """Start a program in the sandbox."""
        async with self._explained(_CALL_TIMEOUT):
            process = await self._sandbox.exec.aio(*call.argv, text=False)
        self._seen_alive = self._clock.monotonic()
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

    def explain(self, exit_code: int | None, output: str) -> str:  # noqa: ARG002 - a Link has it
        """Say why a command's end was not seen; look at the sandbox before the next."""
        self._seen_alive = float("-inf")
        if exit_code in {126, 127}:
            return f"There is no bash in the image `{self._options.image}`; nothing was run"
        return f"{self.name} stopped answering; whether the command took effect is unknown"

    async def close(self) -> None:
        """Keep the files of a persistent session, and end the sandbox."""
        sandbox, self._sandbox = self._sandbox, None
        if sandbox is None:
            return
        try:
            if self._snapshots is not None:
                async with self._explained(_SNAPSHOT_TIMEOUT + 10):
                    image = await sandbox.snapshot_filesystem.aio(timeout=_SNAPSHOT_TIMEOUT)
                await self._snapshots.put(self._task, str(image.object_id))
        finally:
            async with self._explained(_CALL_TIMEOUT):
                await sandbox.terminate.aio()

    async def _create(self) -> None:
        modal, options = self._modal, self._options
        async with self._explained(options.start_timeout):
            if options.token_id and self._client is None:
                self._client = await modal.Client.from_credentials.aio(
                    options.token_id, options.token_secret
                )
            app = await modal.App.lookup.aio(
                options.app, client=self._client, create_if_missing=True
            )
            snapshot = await self._snapshots.get(self._task) if self._snapshots else None
            if snapshot is not None and await self._create_from(
                app, modal.Image.from_id(snapshot, client=self._client)
            ):
                return
            image = modal.Image.from_registry(options.image)
            if not await self._create_from(app, image):
                raise HermesError(f"Modal does not find the image `{options.image}`.")

    async def _create_from(self, app: Any, image: Any) -> bool:
        """Start a sandbox; False if there is no such image (snapshots expire)."""
        options = self._options
        try:
            self._sandbox = await self._modal.Sandbox.create.aio(
                *("sleep", "infinity"),
                app=app,
                image=image,
                cpu=options.cpu,
                memory=options.memory,
                timeout=options.lifetime,
                client=self._client,
            )
        except self._modal.exception.NotFoundError:
            return False
        self._starts += 1
        self._seen_alive = self._clock.monotonic()
        return True

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
    """One program in the sandbox."""

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


class Snapshots:
    """The snapshot ids in one file."""

    def __init__(self, path: str) -> None:
        if not path:
            raise ConfigError(
                "The modal backend does not know where to keep snapshot ids.",
                hint="Set `terminal.container_persistent` to false, or report this.",
            )
        self._path = Path(path)

    async def get(self, task: str) -> str | None:
        """Return the snapshot of a session."""
        return (await asyncio.to_thread(self._read)).get(task)

    async def put(self, task: str, image_id: str) -> None:
        """Remember the snapshot of a session."""
        await asyncio.to_thread(self._put, task, image_id)

    def _put(self, task: str, image_id: str) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with locked(self._path.with_name(f"{self._path.name}.lock")):
            known = {**self._read(), task: image_id}
            draft = self._path.with_name(f".{self._path.name}.{secrets.token_hex(6)}.tmp")
            draft.write_bytes(msgspec.json.format(msgspec.json.encode(known), indent=2) + b"\n")
            draft.replace(self._path)

    def _read(self) -> dict[str, str]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, str])
        except FileNotFoundError:
            return {}
        except msgspec.MsgspecError as error:
            raise ConfigError(
                f"{self._path} is damaged: {error}.",
                hint="Delete the file; sessions then start from their image again.",
            ) from error
