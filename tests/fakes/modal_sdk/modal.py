"""Stands in for the `modal` package (1.x): what the backend uses of it, with its manners.

Every call has an `.aio` twin and only that works in an event loop; input is
buffered (2 MiB) until `drain`; arguments are limited to 64 KiB; dropping a
process handle does not end the process; a terminated sandbox knows nothing.
Programs are real processes of this machine. A sandbox's filesystem is its
home directory, so that is what a snapshot keeps.
"""

import asyncio
import itertools
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from fakes.tagged import kill_tagged

MAX_BUFFER = 2 * 1024 * 1024
MAX_ARGUMENTS = 2**16


class exception:  # noqa: N801 - named as the original's module
    """Errors of the SDK."""

    class Error(Exception):
        """The base of all."""

    class AuthError(Error):
        """Refused."""

    class NotFoundError(Error):
        """Not there."""

    class InvalidError(Error):
        """Wrong arguments."""


class _Bound:
    def __init__(self, aio: Callable[..., Any]) -> None:
        self.aio = aio

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("a blocking call in the event loop")


class both:  # noqa: N801 - a decorator
    """A method that has an `.aio` twin."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def __get__(self, instance: Any, owner: type) -> _Bound:
        return _Bound(self._function.__get__(instance, owner))


class Cloud:
    """What the fake service holds; `CLOUD.reset(directory)` before use."""

    def __init__(self) -> None:
        self.directory = Path()
        self.tokens: set[tuple[str, str]] | None = None
        self.images: dict[str, Path] = {}
        self.sandboxes: list[Sandbox] = []
        self.apps: list[str] = []
        self.numbers = itertools.count(1)

    def reset(self, directory: Path) -> None:
        self.__init__()  # type: ignore[misc]
        self.directory = directory


CLOUD = Cloud()


def _copy(source: Path, target: Path) -> None:
    subprocess.run(["cp", "-a", source, target], check=True)


class Client:
    def __init__(self, token: tuple[str, str]) -> None:
        self.token = token

    @staticmethod
    async def _from_credentials(token_id: str, token_secret: str) -> "Client":
        if CLOUD.tokens is not None and (token_id, token_secret) not in CLOUD.tokens:
            raise exception.AuthError("Token ID is malformed")
        return Client((token_id, token_secret))

    from_credentials = both(_from_credentials)


class App:
    def __init__(self, name: str) -> None:
        self.name = name

    @staticmethod
    async def _lookup(
        name: str, *, client: Client | None = None, create_if_missing: bool = False
    ) -> "App":
        if CLOUD.tokens is not None and client is None:
            raise exception.AuthError("Token missing")
        if name not in CLOUD.apps:
            if not create_if_missing:
                raise exception.NotFoundError(f"No App with name '{name}' found")
            CLOUD.apps.append(name)
        return App(name)

    lookup = both(_lookup)


class Image:
    def __init__(self, tag: str, object_id: str) -> None:
        self.tag = tag
        self.object_id = object_id

    @staticmethod
    def from_registry(tag: str) -> "Image":
        return Image(tag, "")

    @staticmethod
    def from_id(image_id: str, client: Client | None = None) -> "Image":
        return Image("", image_id)  # looked up only when it is used


class _Stdin:
    def __init__(self, process: "ContainerProcess") -> None:
        self._process = process
        self._buffer = bytearray()
        self._closed = False

    def write(self, data: bytes) -> None:
        if self._closed:
            raise ValueError("Stdin is closed. Cannot write to it.")
        if len(self._buffer) + len(data) > MAX_BUFFER:
            raise BufferError("Buffer size exceed limit. Call drain to flush the buffer.")
        self._buffer.extend(data)

    def write_eof(self) -> None:
        self._closed = True

    async def _drain(self) -> None:
        stdin = self._process.inner.stdin
        assert stdin is not None
        try:
            stdin.write(bytes(self._buffer))
            self._buffer.clear()
            await stdin.drain()
            if self._closed:
                stdin.close()
        except (BrokenPipeError, ConnectionResetError):
            return

    drain = both(_drain)


class ContainerProcess:
    def __init__(self, inner: asyncio.subprocess.Process, sandbox: "Sandbox") -> None:
        self.inner = inner
        self.sandbox = sandbox
        self.stdin = _Stdin(self)
        self.stdout = self._read()

    async def _read(self) -> AsyncIterator[bytes]:
        stdout = self.inner.stdout
        assert stdout is not None
        while data := await stdout.read(65_536):
            yield data

    async def _wait(self) -> int:
        code = await self.inner.wait()
        return 128 - code if code < 0 else code

    wait = both(_wait)


class Sandbox:
    def __init__(self, root: Path, options: dict[str, Any]) -> None:
        self.root = root
        self.options = options
        self.alive = True
        self.execs: list[tuple[str, ...]] = []
        self.processes: list[asyncio.subprocess.Process] = []

    @staticmethod
    async def _create(*args: str, app: App, image: Image, **options: Any) -> "Sandbox":
        unknown = set(options) - {"cpu", "memory", "timeout", "client"}
        assert not unknown, f"the stand-in does not know {unknown}"
        if image.object_id and image.object_id not in CLOUD.images:
            raise exception.NotFoundError(f"Image with ID '{image.object_id}' not found")
        root = CLOUD.directory / f"sb-{next(CLOUD.numbers)}"
        if image.object_id:
            _copy(CLOUD.images[image.object_id], root)
        else:
            root.mkdir()
        sandbox = Sandbox(root, {**options, "image": image.tag or image.object_id})
        CLOUD.sandboxes.append(sandbox)
        return sandbox

    create = both(_create)

    def _check(self) -> None:
        if not self.alive:
            raise exception.NotFoundError("Sandbox has already finished")

    async def _exec(self, *args: str, text: bool = True) -> ContainerProcess:
        self._check()
        assert not text, "the stand-in carries bytes only"
        if sum(len(arg.encode()) for arg in args) > MAX_ARGUMENTS:
            raise exception.InvalidError("Total length of CMD arguments cannot exceed 65536 bytes")
        self.execs.append(args)
        process = await asyncio.create_subprocess_exec(
            *args,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            cwd=self.root,
            env={
                "PATH": "/usr/local/bin:/usr/bin:/bin",
                "HOME": str(self.root),
                "MODAL_FAKE_SANDBOX": str(self.root),
            },
            start_new_session=True,
        )
        self.processes.append(process)
        return ContainerProcess(process, self)

    exec = both(_exec)

    async def _poll(self) -> int | None:
        return None if self.alive else 137

    poll = both(_poll)

    async def _snapshot_filesystem(self, timeout: int = 55) -> Image:
        self._check()
        number = f"im-{next(CLOUD.numbers)}"
        CLOUD.images[number] = CLOUD.directory / number
        await asyncio.to_thread(_copy, self.root, CLOUD.images[number])
        return Image("", number)

    snapshot_filesystem = both(_snapshot_filesystem)

    async def _terminate(self, *, wait: bool = False) -> None:
        await self.die()

    terminate = both(_terminate)

    async def die(self) -> None:
        """End, with all processes."""
        self.alive = False
        await asyncio.to_thread(kill_tagged, "MODAL_FAKE_SANDBOX", os.fspath(self.root))
        for process in self.processes:
            await process.wait()
            if process.stdin is not None:
                process.stdin.close()
            transport = process._transport  # type: ignore[attr-defined]
            transport.close()
        shutil.rmtree(self.root, ignore_errors=True)
        for path in {word for words in self.execs for word in words if word.startswith("/tmp/")}:
            shutil.rmtree(path, ignore_errors=True)  # its /tmp goes as well
