"""The process that serves one model file to all Hermes processes of a home.

It listens on loopback with a random key, writes where to `run/`, loads the
model meanwhile, and ends by itself when nobody has used it for a while, so a
killed parent leaves nothing behind for long. A lock held for its whole life
keeps a second one from starting.
"""

import argparse
import asyncio
import contextlib
import hmac
import json
import os
import secrets
import signal
import sys
import time
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from hermes.config.atomic import write_atomic
from hermes.config.paths import HermesHome
from hermes.domain.errors import HermesError
from hermes.execution.local_model.engine import Engine, EngineSettings, start_engine
from hermes.execution.local_model.relay import relay
from hermes.execution.local_model.state import ServerFiles, ServerState, server_files, take_lock
from hermes.execution.local_model.wire import BadMessage, Head, read_head

__all__ = ["ALREADY_RUNNING", "IDLE_SECONDS", "ServerOptions", "main", "serve"]

ALREADY_RUNNING: Final = 3
"""Exit code when another process serves this model."""
IDLE_SECONDS: Final = 900.0
_MAX_HEAD: Final = 65_536


class ServerOptions(Struct, frozen=True, kw_only=True):
    """What to serve and how."""

    engine: EngineSettings
    files: ServerFiles
    fingerprint: str
    constrained: bool
    idle_seconds: float = IDLE_SECONDS


class _Server:
    """Requests of one serving process."""

    def __init__(self, options: ServerOptions) -> None:
        self._options = options
        self.api_key = secrets.token_urlsafe(24)
        self.stopping = asyncio.Event()
        self._loaded = asyncio.Event()
        self._engine: Engine | None = None
        self._failure: HermesError | None = None
        self._open = 0
        self._used = time.monotonic()

    async def load(self) -> None:
        """Load the model; a failure is kept for whoever asks."""
        try:
            self._engine = await asyncio.to_thread(start_engine, self._options.engine)
        except HermesError as error:
            self._failure = error
        self._used = time.monotonic()
        self._loaded.set()

    async def end_when_idle(self) -> None:
        """Set `stopping` once nobody has used the server for the idle time."""
        while not self.stopping.is_set():
            left = self._used + self._options.idle_seconds - time.monotonic()
            if self._open == 0 and self._loaded.is_set() and left <= 0:
                self.stopping.set()
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(left, 0.05)):
                    await self.stopping.wait()

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the one request of a connection."""
        self._open += 1
        try:
            await self._answer(reader, writer)
        except BadMessage as error:
            writer.write(_json(400, {"error": {"message": str(error)}}))
        except OSError:
            pass
        finally:
            self._open -= 1
            self._used = time.monotonic()
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await read_head(reader)
        method, _, rest = head.first.partition(" ")
        path = rest.partition(" ")[0]
        body = await _body(reader, head)
        if not self._allowed(head):
            writer.write(_json(401, {"error": {"message": "The key is missing or wrong."}}))
        elif path == "/health":
            writer.write(_json(200, self._health()))
        elif path == "/shutdown":
            writer.write(_json(200, {"status": "stopping"}))
            self.stopping.set()
        else:
            await self._relayed(reader, writer, method, path, body)
            return
        await writer.drain()

    async def _relayed(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        method: str,
        path: str,
        body: bytes | None,
    ) -> None:
        """Pass a request on until it is answered or its client is gone."""

        async def work() -> None:
            try:
                await self._pass_on(writer, method, path, body)
            finally:
                watch.cancel()

        async def until_gone() -> None:
            with contextlib.suppress(OSError):
                await reader.read()
            working.cancel()

        async with asyncio.TaskGroup() as group:
            watch = group.create_task(until_gone())
            working = group.create_task(work())

    async def _pass_on(
        self, writer: asyncio.StreamWriter, method: str, path: str, body: bytes | None
    ) -> None:
        await self._loaded.wait()
        if self._engine is None:
            writer.write(_json(503, self._health()))
            return
        constrained = self._options.constrained
        answer = relay(self._engine, method, path, body, constrained=constrained)
        begun = False
        async with contextlib.aclosing(answer) as pieces:
            try:
                async for piece in pieces:
                    begun = True
                    writer.write(piece)
                    await writer.drain()
            except (BadMessage, OSError) as error:
                if not begun:
                    writer.write(_json(400, {"error": {"message": str(error)}}))

    def _allowed(self, head: Head) -> bool:
        given = head.headers.get("authorization", "").removeprefix("Bearer ")
        return hmac.compare_digest(given.encode(), self.api_key.encode())

    def _health(self) -> dict[str, object]:
        if self._failure is not None:
            return {
                "status": "failed",
                "error": {"message": self._failure.message, "hint": self._failure.hint},
            }
        status = "ok" if self._loaded.is_set() else "loading"
        return {"status": status, "fingerprint": self._options.fingerprint, "pid": os.getpid()}


async def serve(options: ServerOptions) -> None:
    """Serve until idle, asked to stop, or told to by a signal."""
    server = _Server(options)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.stopping.set)
    listener = await asyncio.start_server(
        server.connection, "127.0.0.1", 0, limit=_MAX_HEAD, backlog=64
    )
    state = ServerState(
        pid=os.getpid(),
        port=listener.sockets[0].getsockname()[1],
        api_key=server.api_key,
        fingerprint=options.fingerprint,
    )
    write_atomic(options.files.state, msgspec.json.encode(state).decode())
    try:
        async with asyncio.TaskGroup() as group:
            loading = group.create_task(server.load())
            idle = group.create_task(server.end_when_idle())
            await server.stopping.wait()
            listener.close()
            loading.cancel()
            idle.cancel()
    finally:
        options.files.state.unlink(missing_ok=True)


async def _body(reader: asyncio.StreamReader, head: Head) -> bytes | None:
    length = head.length
    if length is None:
        return None
    try:
        return await reader.readexactly(length)
    except asyncio.IncompleteReadError as error:
        raise BadMessage("the body ends early") from error


def _json(status: int, value: object) -> bytes:
    body = json.dumps(value).encode()
    reasons = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 503: "Service Unavailable"}
    head = (
        f"HTTP/1.1 {status} {reasons[status]}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m hermes.execution.local_model.server")
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--fingerprint", default="")
    parser.add_argument("--n-ctx", type=int, default=4096)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--temperature", type=float)
    parser.add_argument("--constrained", action="store_true")
    parser.add_argument("--idle-seconds", type=float, default=IDLE_SECONDS)
    parser.add_argument("--detach", action="store_true", help="go to the background at once")
    return parser.parse_args(argv)


def _threads() -> int:
    """Return all cores but one, which is left to everything else.

    On two cores that work, two threads read 4 to 8 tokens a second and one reads 80 to 100;
    when nothing else runs, two would be not quite twice as fast as one.
    """
    known = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if known else os.cpu_count() or 1
    return max(1, cores - 1)


def _detach(log: Path) -> None:
    """Go on as a process of its own; the lock goes along."""
    if os.fork():
        os._exit(0)
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for source, target in ((null, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    os.chdir("/")


async def _serve_to_the_end(options: ServerOptions) -> None:
    await serve(options)
    # A model that is still loading and the engine's threads would hold up a normal exit.
    os._exit(0)


def main(argv: list[str] | None = None) -> None:
    """Serve one model file."""
    given = _arguments(sys.argv[1:] if argv is None else argv)
    home = HermesHome(root=given.home)
    home.subdirectory(home.run_dir)
    home.subdirectory(home.logs_dir)
    files = server_files(home, given.name)
    if take_lock(files) is None:
        sys.exit(ALREADY_RUNNING)
    if given.detach:
        _detach(files.log)
    threads = given.threads or _threads()
    options = ServerOptions(
        engine=EngineSettings(
            model=given.model,
            name=given.name,
            n_ctx=given.n_ctx,
            threads=threads,
            temperature=given.temperature,
        ),
        files=files,
        fingerprint=given.fingerprint,
        constrained=given.constrained,
        idle_seconds=given.idle_seconds,
    )
    asyncio.run(_serve_to_the_end(options))


if __name__ == "__main__":
    main()
