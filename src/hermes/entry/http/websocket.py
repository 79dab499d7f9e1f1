"""WebSocket mode: requests and the events of their answers as messages of one connection.

    client   {"type": "response.create", ...}     the body of the same operation over HTTP
    server   the events of its stream, one message each
             {"type": "error", "status": 400, "error": {...}} for a request that cannot be granted

One answer is under way at a time; requests that come meanwhile wait. A client that closes the
connection leaves the answer, as with a stream over HTTP. The connection remembers responses
that are not stored, so that the next request can go on from them; they are forgotten with it,
and earlier if a request that goes on from one fails. It ends after an hour, between two answers,
and at once if very many requests after each other cannot be granted.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec import Struct

from hermes.domain.errors import HermesError
from hermes.entry.http.endpoint import Connection, StreamAnswer
from hermes.entry.http.errors import ErrorDetail, Problem, problem_of
from hermes.entry.http.request import AsgiMessage, Receive, Send
from hermes.entry.http.room import BodyRoom, HeldRoom
from hermes.entry.http.sse import send_stream

log = logging.getLogger(__name__)

STOPPING = 1012
"""The code with which the server says that it stops: what is under way may end first."""
UNWANTED = 1008
"""The code with which a connection ends whose client goes on with what it should not do."""
MAX_WAITING = 16
"""Requests that may wait for the one under way."""
MAX_REFUSED = 100
"""Requests after each other that cannot be granted: to refuse them takes time that others need."""
MAX_SOCKETS = 64
"""Connections of one key at once; usual is a handful."""
SocketAnswer = Callable[[bytes, Connection], Awaitable[StreamAnswer]]


class SocketError(Struct, frozen=True, kw_only=True, tag_field="type", tag="error"):
    """A request over a WebSocket that cannot be granted."""

    status: int
    error: ErrorDetail


class _RequestHead(Struct, frozen=True):
    type: str = ""
    previous_response_id: str | None = None
    background: bool | None = None


def request_head(raw: bytes, wanted: str) -> str | None:
    """Check that a message is a request; return the response that it goes on from."""
    try:
        head = msgspec.json.decode(raw, type=_RequestHead)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        text = "The message is not a JSON object with a `type`."
        raise Problem(400, text, code="invalid_json") from None
    if head.type != wanted:
        text = f"Messages here are of type `{wanted}`."
        raise Problem(400, text, code="invalid_value", param="type")
    if head.background:
        text = "`background` is for requests over HTTP."
        raise Problem(400, text, code="unsupported_value", param="background")
    return head.previous_response_id


class Socket:
    """One connection, from its handshake to its end."""

    def __init__(
        self,
        receive: Receive,
        send: Send,
        answer: SocketAnswer,
        redact: Callable[[str], str],
        room: BodyRoom,
    ) -> None:
        self._receive = receive
        self._asgi_send = send
        self._answer = answer
        self._redact = redact
        self._room = room
        self._waiting: asyncio.Queue[tuple[bytes, HeldRoom] | None] = asyncio.Queue()
        self._left = asyncio.Event()
        self._refused = 0
        """Requests, since one was granted."""
        self._hopeless = False
        self.connection = Connection(gone=self._gone)

    async def run(self, headers: list[tuple[bytes, bytes]], seconds: float) -> None:
        """Answer requests until the client leaves or its time is up."""
        await self._receive()  # `websocket.connect`
        await self._asgi_send({"type": "websocket.accept", "headers": headers})
        try:
            async with asyncio.TaskGroup() as group:
                listening = group.create_task(self._listen())
                try:
                    await self._serve(seconds)
                except asyncio.CancelledError:
                    text = "Hermes is stopping; try again in a moment."
                    await self._refuse(Problem(503, text, code="draining"))
                    raise
                finally:
                    listening.cancel()
        finally:
            while not self._waiting.empty():
                if waited := self._waiting.get_nowait():
                    waited[1].clear()
            await self.connection.forget()
            if self._hopeless:
                reason = f"{MAX_REFUSED} requests after each other could not be granted"
                await self._send({"type": "websocket.close", "code": UNWANTED, "reason": reason})
            elif not self._left.is_set():
                await self._send({"type": "websocket.close", "code": 1000})

    async def _serve(self, seconds: float) -> None:
        end = asyncio.get_running_loop().time() + seconds
        while True:
            try:
                async with asyncio.timeout_at(end):
                    waited = await self._waiting.get()
            except TimeoutError:
                text = "This connection is as old as one may be; open another one."
                await self._refuse(Problem(400, text, code="websocket_connection_limit_reached"))
                return
            if waited is None:
                return
            raw, held = waited
            held.clear()
            if self._hopeless:
                return
            await self._respond(raw)

    async def _respond(self, raw: bytes) -> None:
        try:
            answer = await self._answer(raw, self.connection)
            self._refused = 0
            await send_stream(answer, self._gone, self._send_events, (), 15.0)
        except HermesError as error:
            await self._refuse(problem_of(error))
        except Exception:  # the boundary of a request, as for one over HTTP
            log.exception("a request over a WebSocket could not be answered")
            text = "Something unexpected went wrong here; the log has the details."
            await self._refuse(Problem(500, text, code="internal_error"))

    async def _listen(self) -> None:
        while (message := await self._receive())["type"] == "websocket.receive":
            text = message.get("text")
            raw = text.encode() if text is not None else message.get("bytes") or b""
            try:
                self._enqueue(raw)
            except Problem as problem:
                await self._refuse(problem)
            if self._hopeless:
                break
        if message.get("code") != STOPPING:
            self._left.set()
        self._waiting.put_nowait(None)

    def _enqueue(self, raw: bytes) -> None:
        """Let a request wait for its turn, if there is room for it."""
        if self._waiting.qsize() >= MAX_WAITING:
            text = f"{MAX_WAITING} requests wait already on this connection."
            raise Problem(429, text, code="too_many_runs")
        held = self._room.body()
        held.grow(len(raw))
        self._waiting.put_nowait((raw, held))

    async def _gone(self) -> AsgiMessage:
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send_events(self, message: AsgiMessage) -> None:
        """Send the server-sent events of a chunk as messages; comments and marks are left out."""
        for block in message.get("body", b"").split(b"\n\n"):
            _, found, data = block.partition(b"data: ")
            if found and data != b"[DONE]":
                await self._send({"type": "websocket.send", "text": data.decode()})

    async def _refuse(self, problem: Problem) -> None:
        detail = problem.body(self._redact(problem.message)).error
        text = msgspec.json.encode(SocketError(status=problem.status, error=detail)).decode()
        await self._send({"type": "websocket.send", "text": text})
        self._refused += 1
        if self._refused == MAX_REFUSED:
            self._hopeless = True
            self._left.set()  # what is under way ends as if the client had gone
            self._waiting.put_nowait(None)

    async def _send(self, message: dict[str, Any]) -> None:
        try:
            await self._asgi_send(message)
        except OSError:
            self._left.set()  # nobody is there to read it


def rejecting(send: Send) -> Send:
    """Return what sends a plain answer in place of a handshake."""

    async def translated(message: AsgiMessage) -> None:
        if message["type"].startswith("http."):
            message = {**message, "type": f"websocket.{message['type']}"}
        await send(message)

    return translated
