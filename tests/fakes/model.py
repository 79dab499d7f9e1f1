"""A model provider on loopback: chat completions, Responses and Messages, scripted.

In a test: `async with FakeModelServer(Script(...)) as server: server.base_url`.
As a process: `python -m fakes.model --port 0 --script FILE.json`, which prints
its port on the first line. It parses HTTP itself, because a real framework
cannot reset a connection, stall half-open or cut a body in the middle.
"""

import argparse
import asyncio
import json
import socket
import struct
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fakes.model_check import complaint, conversation
from fakes.model_script import Call, Counts, Rule, Script, Step, load_script
from fakes.model_wire import document, error_body, frames

__all__ = ["Call", "Counts", "FakeModelServer", "RecordedRequest", "Rule", "Script", "Step"]

_PATHS = {"/chat/completions": "chat", "/responses": "responses", "/messages": "anthropic"}


class RecordedRequest:
    """One request as it arrived."""

    def __init__(self, protocol: str, headers: dict[str, str], raw: bytes) -> None:
        self.protocol = protocol
        self.headers = headers
        self.raw = raw
        self.body: dict[str, Any] = json.loads(raw)

    @property
    def key(self) -> str:
        bearer = self.headers.get("authorization", "").removeprefix("Bearer ")
        return self.headers.get("x-api-key") or self.headers.get("api-key") or bearer


class _Gone(Exception):
    """The connection is over."""


class FakeModelServer:
    """Serves a script and records what is asked of it."""

    def __init__(self, script: Script | list[Step] | None = None) -> None:
        self.script = Script(steps=script) if isinstance(script, list) else script or Script()
        self.requests: list[RecordedRequest] = []
        self.disconnects = 0
        """Clients that left before their answer was complete."""
        self.connections = 0
        self.at_once = 0
        """Answers under way."""
        self.most_at_once = 0
        self.disconnected = asyncio.Event()
        self.arrived = asyncio.Event()
        """Set with each request; clear it to wait for the next one."""
        self._release = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def base_url(self) -> str:
        """For OpenAI-compatible clients; Messages clients use `origin`."""
        return f"{self.origin}/v1"

    def release(self) -> None:
        """Let stalled answers go on."""
        self._release.set()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    async def start(self, port: int = 0) -> None:
        self._server = await asyncio.start_server(
            self._connected, "127.0.0.1", port, limit=64 * 1024 * 1024, backlog=2048
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        connection = _Connection(self, reader, writer)
        try:
            while await connection.serve_one():
                pass
        except (ConnectionError, asyncio.IncompleteReadError, _Gone):
            pass
        except asyncio.CancelledError:
            # The server stops; asyncio.streams reports a cancelled handler as an error.
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    def answer(self, request: RecordedRequest) -> Step:
        """Choose what is said to a request."""
        text, after = conversation(request.protocol, request.body)
        for rule in self.script.rules:
            if rule.contains not in text or rule.model not in request.body["model"]:
                continue
            step = rule.steps[min(after, len(rule.steps) - 1)]
            return _echoing(step, text)
        step = self.script.steps.pop(0) if self.script.steps else self.script.default
        return _echoing(step, text)

    def refusal(self, request: RecordedRequest) -> tuple[int, str] | None:
        """Return why a request is refused before any step is taken."""
        if self.script.keys and request.key not in self.script.keys:
            return 401, f"Incorrect API key provided: {request.key}"
        if self.script.strict and (wrong := complaint(request.protocol, request.body)):
            return 400, wrong
        return None

    def stats(self) -> dict[str, Any]:
        return {
            "requests": len(self.requests),
            "disconnects": self.disconnects,
            "connections": self.connections,
            "at_once": self.at_once,
            "most_at_once": self.most_at_once,
        }

    def left(self) -> None:
        self.disconnects += 1
        self.disconnected.set()

    async def released(self) -> None:
        await self._release.wait()


def _echoing(step: Step, text: str) -> Step:
    if not step.echo:
        return step
    fields = {name: getattr(step, name) for name in step.__struct_fields__}
    return Step(**{**fields, "text": step.text + text})


class _Connection:
    """One keep-alive connection."""

    def __init__(
        self,
        server: FakeModelServer,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._server = server
        self._reader = reader
        self._writer = writer

    async def serve_one(self) -> bool:
        line = await self._reader.readline()
        if not line:
            return False
        try:
            method, target, _ = line.decode("latin-1").split(" ", 2)
        except ValueError:
            return False
        headers: dict[str, str] = {}
        while (line := await self._reader.readline()) not in {b"\r\n", b"\n", b""}:
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.strip().lower()] = value.strip()
        raw = await self._reader.readexactly(int(headers.get("content-length", "0")))
        path = target.partition("?")[0]
        protocol = next((p for end, p in _PATHS.items() if path.endswith(end)), None)
        if method == "POST" and protocol is not None:
            await self._model_call(RecordedRequest(protocol, headers, raw))
        else:
            await self._other(path)
        return headers.get("connection", "").lower() != "close"

    async def _other(self, path: str) -> None:
        server = self._server
        if path.endswith("/models"):
            models = [{"id": name, "object": "model"} for name in server.script.models]
            await self._json(200, {"object": "list", "data": models})
        elif path == "/__requests":
            seen = [
                {"protocol": r.protocol, "headers": r.headers, "body": r.body}
                for r in server.requests
            ]
            await self._json(200, seen)
        elif path == "/__stats":
            await self._json(200, server.stats())
        elif path == "/__release":
            server.release()
            await self._json(200, {})
        else:
            await self._json(404, {"error": {"message": f"no such path {path}"}})

    async def _model_call(self, request: RecordedRequest) -> None:
        server = self._server
        server.requests.append(request)
        server.arrived.set()
        if (refused := server.refusal(request)) is not None:
            status, message = refused
            await self._json(status, error_body(request.protocol, status, message))
            return
        step = server.answer(request)
        if (wrong := _refused_by_step(step, request.body)) is not None:
            await self._json(400, error_body(request.protocol, 400, wrong))
            return
        server.at_once += 1
        server.most_at_once = max(server.most_at_once, server.at_once)
        try:
            await self._play(step, request)
        finally:
            server.at_once -= 1

    async def _play(self, step: Step, request: RecordedRequest) -> None:
        if step.delay:
            await asyncio.sleep(step.delay)
        if step.stall == "before":
            await self._stall()
        if step.reset == "before":
            self._reset()
        if step.status != 200:
            body = step.body
            if body is None:
                body = error_body(request.protocol, step.status, f"scripted error {step.status}")
            await self._json(step.status, body, step.headers)
        elif step.raw:
            await self._stream(iter([step.raw.encode()]), step)
        elif not request.body.get("stream") or step.plain:
            model = request.body["model"]
            await self._json(200, document(request.protocol, step, model), step.headers)
        else:
            model = request.body["model"]
            await self._stream(frames(request.protocol, step, model), step)

    async def _stream(self, events: Any, step: Step) -> None:
        usual = {"content-type": "text/event-stream", "transfer-encoding": "chunked"}
        self._head(200, usual | step.headers)
        if step.stall == "first":
            await self._stall()
        interval = step.interval
        if step.tokens_per_second:
            interval = 1 / step.tokens_per_second
        sequence = list(events)
        if step.empty:
            sequence = [sequence[0], *sequence[-3:]]
        middle = max(1, len(sequence) // 2)
        if interval or step.stall or step.reset or step.cut:
            for number, event in enumerate(sequence):
                if number == middle:
                    await self._trouble(step)
                self._chunk(event)
                await self._flush()
                if interval:
                    await asyncio.sleep(interval)
        else:
            self._chunk(b"".join(_doctored(sequence, middle, step)))
        if step.stall == "end":
            await self._stall()
        self._writer.write(b"0\r\n\r\n")
        await self._flush()

    async def _trouble(self, step: Step) -> None:
        if step.stall == "middle":
            await self._stall()
        if step.reset == "middle":
            self._reset()
        if step.cut:
            raise _Gone

    async def _stall(self) -> None:
        """Say nothing until the client leaves or the test says go on."""
        await self._flush()
        leaving = asyncio.ensure_future(self._reader.read(1))
        going_on = asyncio.ensure_future(self._server.released())
        try:
            await asyncio.wait({leaving, going_on}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            going_on.cancel()
            leaving.cancel()
            await asyncio.gather(leaving, going_on, return_exceptions=True)
        if leaving.done() and not leaving.cancelled():
            self._server.left()
            raise _Gone

    def _reset(self) -> None:
        linger = struct.pack("ii", 1, 0)
        raw = self._writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self._writer.transport.abort()
        raise _Gone

    async def _flush(self) -> None:
        try:
            await self._writer.drain()
        except ConnectionError:
            self._server.left()
            raise
        if self._reader.at_eof():
            self._server.left()
            raise _Gone

    async def _json(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        text = body if isinstance(body, str) else json.dumps(body)
        kind = "text/plain" if isinstance(body, str) else "application/json"
        data = text.encode()
        lengths = {"content-type": kind, "content-length": str(len(data))}
        self._head(status, lengths | (headers or {}))
        self._writer.write(data)
        await self._writer.drain()

    def _head(self, status: int, headers: dict[str, str]) -> None:
        lines = [f"HTTP/1.1 {status} Scripted", *(f"{k}: {v}" for k, v in headers.items())]
        self._writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))

    def _chunk(self, data: bytes) -> None:
        self._writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


def _doctored(events: list[bytes], middle: int, step: Step) -> list[bytes]:
    if step.malformed:
        return [*events[:middle], b'data: {"choices": [{"delta": \n\n', *events[middle:]]
    if step.stream_error is not None:
        data = json.dumps(step.stream_error)
        return [*events[:middle], f"event: error\ndata: {data}\n\n".encode()]
    if step.truncate:
        return events[:middle]
    return events


def _refused_by_step(step: Step, body: dict[str, Any]) -> str | None:
    if step.refuse_stream and body.get("stream"):
        return "Streaming is not supported by this model."
    if step.refuse_field and step.refuse_field in body:
        return f"Unsupported parameter: '{step.refuse_field}' is not supported with this model."
    return None


async def _main() -> None:
    parser = argparse.ArgumentParser(description="A scripted model provider on loopback.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--script", type=Path)
    options = parser.parse_args()
    script = load_script(options.script.read_bytes()) if options.script else Script()
    server = FakeModelServer(script)
    await server.start(options.port)
    print(server.port, flush=True)  # noqa: T201 - how the parent learns the port
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main())
