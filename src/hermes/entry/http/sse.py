"""Sending a stream of events while watching whether anybody still reads it.

One task sends chunk after chunk; beside it exactly one task waits for the
client to leave and breaks long silence with a comment. A client that reads
slowly holds up its own stream only: `send` waits until its connection has
room again.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from hermes.domain.events import TurnEvent, TurnFinished
from hermes.domain.runs import Run
from hermes.entry.http.endpoint import Call, StreamAnswer
from hermes.entry.http.request import Receive, Send, accepted_back

_KEEPALIVE = b": keepalive\n\n"
_IN_ONE_GO = 32
"""Chunks after which everybody else gets a turn."""


class Last(bytes):
    """A chunk after which nothing comes: it goes out together with the end."""


class _Left(Exception):
    """The client has closed the connection."""


async def send_stream(
    answer: StreamAnswer,
    receive: Receive,
    send: Send,
    headers: Sequence[tuple[bytes, bytes]],
    keepalive: float,
) -> None:
    """Send everything.

    What the iteration raises comes through; the answer is then still open.
    When the server itself stops, the iteration ends too, but `left` is not
    called: nobody has lost interest.
    """
    await send({"type": "http.response.start", "status": 200, "headers": [*headers]})
    pipe, last = _Pipe(send), b""
    gone = False
    try:
        async with _beside(_watch(pipe, receive, keepalive)):
            async for chunk in answer.chunks:
                if isinstance(chunk, Last):
                    last = chunk
                else:
                    await pipe.write(chunk)
    except _Left:
        gone = True
    finally:
        await close(answer)
    if gone and answer.left is not None:
        await answer.left()
    if not gone:
        body = accepted_back(last)
        await send({"type": "http.response.body", "body": body, "more_body": False})


async def close(answer: StreamAnswer) -> None:
    """End the iteration, wherever it is."""
    aclose = getattr(answer.chunks, "aclose", None)
    if aclose is not None:
        await aclose()


class _Pipe:
    __slots__ = ("_loop", "_send", "_sent", "busy", "last")

    def __init__(self, send: Send) -> None:
        self._send = send
        self._loop = asyncio.get_running_loop()
        self.last = self._loop.time()
        self.busy = False
        self._sent = 0

    async def write(self, chunk: bytes) -> None:
        self.busy = True
        body = accepted_back(chunk)
        await self._send({"type": "http.response.body", "body": body, "more_body": True})
        self.busy = False
        self.last = self._loop.time()
        self._sent += 1
        if self._sent % _IN_ONE_GO == 0:
            # Neither a ready source nor a `send` to a client that is gone waits for anything.
            await asyncio.sleep(0)

    def silence(self) -> float:
        return self._loop.time() - self.last


@asynccontextmanager
async def _beside(watch: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Let `watch` run while the body does; what either of them raises comes through."""
    try:
        async with asyncio.TaskGroup() as group:
            watcher = group.create_task(watch)
            try:
                yield
            finally:
                watcher.cancel()
    except BaseExceptionGroup as failures:
        # One of the two failed and the other was cancelled for it.
        raise failures.exceptions[0] from None


async def _watch(pipe: _Pipe, receive: Receive, keepalive: float) -> None:
    while True:
        quiet = pipe.silence()
        if quiet >= keepalive and not pipe.busy:
            await pipe.write(_KEEPALIVE)
            quiet = 0.0
        # Whoever has not taken the last chunk yet needs no sign of life either.
        wait = max(keepalive - quiet, 0.001) if not pipe.busy else keepalive
        with suppress(TimeoutError):
            async with asyncio.timeout(wait):
                while (await receive())["type"] != "http.disconnect":
                    pass
                raise _Left


async def chunks(
    batches: AsyncIterator[Sequence[TurnEvent]],
    feed: Callable[[TurnEvent], bytes],
    opening: bytes = b"",
) -> AsyncIterator[bytes]:
    """Yield what a stream makes of the events of a turn, together what came together."""
    if opening:
        yield opening
    async for batch in batches:
        if chunk := b"".join(map(feed, batch)):
            yield Last(chunk) if isinstance(batch[-1], TurnFinished) else chunk


T = TypeVar("T")
Stop = Callable[[], Awaitable[None]]


_UNSEEN_SECONDS = 2.0
"""The head of a stream that is left sooner may never have arrived."""


def stopper(call: Call[Any, Any], run: Run, *, streams: bool = False) -> Stop | None:
    """Return what stops a run whose client has left; None if a repeat may pick the run up.

    An SDK that counts its retries repeats what got no answer, and joins the run if that still
    goes on. Streams are repeated only if not even their head has arrived.
    """
    context = call.context
    began = context.clock.monotonic()

    async def stop() -> None:
        grace = context.retry_grace if call.headers.retry_count is not None else 0.0
        unseen = context.clock.monotonic() - began < _UNSEEN_SECONDS
        if streams and not (unseen and context.runs.said_nothing(run)):
            grace = 0.0
        await context.runs.leave(run, grace)

    return None if call.headers.idempotency_key else stop


async def attended(call: Call[Any, Any], work: Awaitable[T], stop: Stop | None) -> T:
    """Return what `work` gives; if the client leaves meanwhile, `stop` is called.

    The work goes on to its end, which `stop` brings about.
    """
    if stop is None:
        return await work
    async with _beside(_when_gone(call, stop)):
        return await work


async def _when_gone(call: Call[Any, Any], stop: Stop) -> None:
    await call.gone()
    await stop()
