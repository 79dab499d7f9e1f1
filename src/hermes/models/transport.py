"""HTTP to models: directly (`http1`), or through a proxy by the HTTP library, known here only.

Every wait has a bound: connect, first byte, idle and total, kept by one
timeout scope that each arrival of bytes moves on. Leaving the exchange in any
way before the end, cancellation included, closes the connection. What speaks HTTP
is imported with the first call.
"""

import asyncio
import os
import re
import ssl
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import msgspec

from hermes.domain.nesting import values_in
from hermes.domain.ports.model import FailureKind
from hermes.domain.settings.models import ModelTimeouts
from hermes.domain.wording import one_line
from hermes.models.bounds import (
    BYTES,
    EVENT_BYTES,
    PROBABLE_BYTES,
    PROBABLE_EVENT_BYTES,
    VALUES,
)
from hermes.models.logprobs import without_logprobs
from hermes.models.sse import SseParser
from hermes.models.wire import Decoder, Sink, WireCall, WireFault

if TYPE_CHECKING:
    from types import ModuleType

    import httpcore2

    from hermes.models.http1 import ConnectionPool, Receiver


_UNPACKED_AT_ONCE = 64 * 1024
_MAX_SMALL_DOCUMENT = 1024 * 1024
_MAX_ERROR_BODY = 16 * 1024
_MAX_ERROR_TEXT = 600
_DRAIN_SECONDS = 0.25
_FEW = 100
"""Values of an event that are not counted."""
Waiting = Callable[[float], None]
ProxyOf = Callable[[str], str | None]
"""Address -> the proxy to go through; None for directly."""


class Transport:
    """Connections to providers, shared by all model clients of a process."""

    def __init__(self, proxy_of: ProxyOf = lambda _: None) -> None:
        self._proxy_of = proxy_of
        self._pools: dict[tuple[object, ...], ConnectionPool | httpcore2.AsyncConnectionPool] = {}

    async def exchange(
        self,
        call: WireCall,
        decoder: Decoder,
        timeouts: ModelTimeouts,
        waiting: Waiting,
        notice: float,
        sink: Sink,
    ) -> None:
        """Send `call` and feed the answer to `decoder`; raise `WireFault` on anything else.

        What the connection has gathered is told to `sink` as one.
        """
        patience = _Patience(timeouts, waiting, notice)
        headers = {"content-type": "application/json", "accept-encoding": "identity"}
        headers["accept"] = "text/event-stream" if call.stream else "application/json"
        headers["user-agent"] = "hermes"
        whole = msgspec.structs.replace(call, headers=headers | call.headers)
        receiver = _Answer(decoder, patience, sink)
        try:
            async with asyncio.timeout_at(patience.first_deadline()) as scope:
                patience.watch(scope)
                await self._send("POST", whole, receiver, timeouts.connect)
                await receiver.unpack()
                receiver.end()
        except TimeoutError as error:
            if decoder.done:
                return
            raise WireFault(patience.complaint(), kind=FailureKind.TIMEOUT) from error
        except (msgspec.MsgspecError, RecursionError) as error:
            raise WireFault(str(error), kind=FailureKind.MALFORMED) from error
        except (
            _http1().NoConnection,
            _http1().BrokenAnswer,
            OSError,
            ValueError,
            zlib.error,
        ) as error:
            if decoder.done:
                return
            raise _connection_fault(error, patience) from error
        finally:
            patience.stop()

    async def get(self, url: str, key: str) -> tuple[int, bytes]:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        return await self.document(WireCall(url=url, headers=headers, body=b"", stream=False))

    async def document(self, call: WireCall) -> tuple[int, bytes]:
        """Return status and content of a small document; `WireFault` if there is no answer.

        Without a body it is fetched, else the body is sent. The caller keeps the time.
        """
        found = _SmallDocument()
        try:
            await self._send("POST" if call.body else "GET", call, found, None)
        except (_http1().NoConnection, _http1().BrokenAnswer, OSError, ValueError) as error:
            raise WireFault(str(error), kind=FailureKind.CONNECTION) from error
        return found.status, found.content

    async def warm(self, call_url: str) -> None:
        """Import what speaks HTTP and prepare a pool, so that the first call need not."""
        await asyncio.to_thread(_http1)
        if call_url.startswith("https:") or self._proxy_of(call_url):
            await asyncio.to_thread(_library)
        self._pool(WireCall(url=call_url, headers={}, body=b"", stream=False))

    async def close(self) -> None:
        pools, self._pools = self._pools, {}
        for pool in pools.values():
            await pool.aclose()

    def _pool(self, call: WireCall) -> "ConnectionPool | httpcore2.AsyncConnectionPool":
        # Loading certificates takes as long as a whole local call: only for TLS.
        secure = call.url.startswith("https:")
        proxy = self._proxy_of(call.url)
        key = (asyncio.get_running_loop(), secure, proxy, call.verify, call.ca_file)
        pool = self._pools.get(key)
        if pool is None:
            context = _ssl_context(call) if secure else None
            pool = _proxied(proxy, context) if proxy else _http1().ConnectionPool(context)
            self._pools[key] = pool
        return pool

    async def _send(
        self, method: str, call: WireCall, receiver: "Receiver", connect: float | None
    ) -> None:
        from hermes.models.http1 import (  # noqa: PLC0415 - with the first call
            ConnectionPool,
            request_bytes,
        )

        pool = self._pool(call)
        if isinstance(pool, ConnectionPool):
            request = request_bytes(method, call.url, call.headers, call.body)
            await pool.exchange(call.url, request, receiver, connect)
            return
        with _library_faults():
            answer = pool.stream(
                method,
                call.url,
                headers=list(call.headers.items()),
                content=call.body or None,
                extensions={"timeout": {"connect": connect}},
            )
            async with answer as response:
                receiver.head(response.status, _headers(response))
                async for chunk in response.aiter_stream():
                    receiver.body(chunk)


def _proxied(proxy: str, context: ssl.SSLContext | None) -> "httpcore2.AsyncConnectionPool":
    parts = urlsplit(proxy)
    bare = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    auth = (unquote(parts.username), unquote(parts.password or "")) if parts.username else None
    library = _library()
    pool: httpcore2.AsyncConnectionPool = library.AsyncConnectionPool(
        ssl_context=context,
        proxy=library.Proxy(bare, auth=auth),
        max_connections=None,
        max_keepalive_connections=64,
        keepalive_expiry=60.0,
    )
    return pool


def _ssl_context(call: WireCall) -> ssl.SSLContext:
    if not call.verify:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif call.ca_file:
        context = ssl.create_default_context(cafile=call.ca_file)
    else:
        context = _library().default_ssl_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


class _Answer:
    """Feeds what comes to a decoder: events, or one document."""

    def __init__(self, decoder: Decoder, patience: "_Patience", sink: Sink) -> None:
        self._decoder = decoder
        self._sink = sink
        self._patience = patience
        asked = sink.logprobs
        self._bytes = PROBABLE_BYTES if asked else BYTES
        self._parser = SseParser(PROBABLE_EVENT_BYTES if asked else EVENT_BYTES)
        self._document: list[bytes] | None = None
        """Its pieces, where the answer is one document, or an error."""
        self._size = self._values = 0
        self._sniffing = False
        self._packed: Any = None
        """Unpacks what a server compresses although nobody asked for that."""
        self._folded = b""
        """What is not unpacked yet."""

    def head(self, status: int, headers: dict[str, str]) -> None:
        self._status, self._headers = status, headers
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if status >= 300 or kind.endswith("json"):
            self._document = []
        self._sniffing = kind != "text/event-stream"
        if headers.get("content-encoding", "").lower() in ("gzip", "x-gzip", "deflate"):
            self._packed = zlib.decompressobj(zlib.MAX_WBITS | 32)

    def body(self, chunk: bytes, *, gathered: bool = False) -> None:
        if self._packed is not None:
            self._folded += chunk
            chunk = self._next_unpacked()
        self._take(chunk, gathered=gathered)

    async def unpack(self) -> None:
        """Take what is left, and let others have their turn in between."""
        while self._folded and not self._decoder.done:
            self._take(self._next_unpacked(), gathered=True)
            await asyncio.sleep(0)

    def _next_unpacked(self) -> bytes:
        """Return the next part: little bytes may hold very much."""
        part: bytes = self._packed.decompress(self._folded, _UNPACKED_AT_ONCE)
        self._folded = self._packed.unconsumed_tail
        return part

    def _take(self, chunk: bytes, *, gathered: bool) -> None:
        self._size += len(chunk)
        most = self._bytes if self._document is None else BYTES
        most.hold(self._size + len(self._folded))
        if self._sniffing and self._document is None and chunk.strip():
            self._sniffing = False
            if chunk.lstrip().startswith(b"{"):
                self._document = []
        if self._document is not None:
            self._add(self._document, chunk)
            return
        self._patience.arrived()
        decoder = self._decoder
        if gathered:
            self._sink.gather()
        try:
            for data in self._parser.feed(chunk):
                if not decoder.done:  # what follows the end is not a part of the answer
                    self._measure(data)
                    decoder.feed(data)
        finally:
            self._sink.flush()
        if decoder.done:
            self._patience.drain()

    def _add(self, document: list[bytes], chunk: bytes) -> None:
        document.append(chunk)
        if self._status >= 300:
            if self._size >= _MAX_ERROR_BODY:
                self.end()
            return
        self._patience.arrived()

    def _measure(self, data: bytes) -> None:
        if data.count(b",") > _FEW:
            if b'"logprobs"' in data:
                data = without_logprobs(data)
            self._values += values_in(data, VALUES.most)
            VALUES.hold(self._values)

    def end(self) -> None:
        """Take it that nothing more comes."""
        if self._document is None:
            for data in self._parser.close():
                self._measure(data)
                with suppress(msgspec.MsgspecError):  # cut off within its last event
                    self._decoder.feed(data)
            return
        whole = b"".join(self._document)
        if self._status >= 300:
            raise _http_fault(self._status, self._headers, whole)
        self._measure(whole)
        self._decoder.feed_document(whole)


class _SmallDocument:
    status = 0
    content = b""

    def head(self, status: int, headers: dict[str, str]) -> None:  # noqa: ARG002
        self.status = status

    def body(self, chunk: bytes, *, gathered: bool = False) -> None:  # noqa: ARG002
        self.content += chunk
        if len(self.content) > _MAX_SMALL_DOCUMENT:
            raise WireFault("The document is too large.", kind=FailureKind.MALFORMED)


class _Patience:
    """The deadlines of one exchange, and the notices while it waits."""

    def __init__(self, timeouts: ModelTimeouts, waiting: Waiting, notice: float) -> None:
        self.timeouts = timeouts
        self._waiting = waiting
        self._loop = asyncio.get_running_loop()
        self._started = self._loop.time()
        self._end = self._started + timeouts.total
        self._scope: asyncio.Timeout | None = None
        self._last = self._started
        self._idle_timer: asyncio.TimerHandle | None = None
        self._draining = False
        self._next_notice = notice
        self._timer: asyncio.TimerHandle | None = None
        self.received = False

    def first_deadline(self) -> float:
        return min(self._end, self._started + self.timeouts.first_byte)

    def watch(self, scope: asyncio.Timeout) -> None:
        self._scope = scope
        self._arm()

    def arrived(self) -> None:
        """Restart the idle time: bytes arrived.

        Only a clock reading is kept, because this runs for every token; one
        timer looks at it when the idle time could be over.
        """
        self._last = self._loop.time()
        if not self.received:
            self.received = True
            self.stop()
            self._move(self._end)
            self._watch_idle()

    def drain(self) -> None:
        """Allow a moment for the end of the body: the reply is complete."""
        if not self._draining:
            self._draining = True
            self._move(min(self._end, self._loop.time() + _DRAIN_SECONDS))

    def stop(self) -> None:
        for timer in (self._timer, self._idle_timer):
            if timer is not None:
                timer.cancel()

    def complaint(self) -> str:
        waited = self._loop.time() - self._started
        if self._loop.time() >= self._end:
            return f"it was still answering after {waited:.0f} s"
        if self.received:
            return f"nothing more came for {self.timeouts.idle:g} s"
        return f"nothing came within {self.timeouts.first_byte:g} s"

    def _move(self, deadline: float) -> None:
        scope = self._scope
        if scope is not None and not scope.expired():
            scope.reschedule(deadline)

    def _watch_idle(self) -> None:
        over = self._last + self.timeouts.idle
        if over <= self._loop.time():
            self._move(over)
        else:
            self._idle_timer = self._loop.call_at(over, self._watch_idle)

    def _arm(self) -> None:
        self._timer = self._loop.call_at(self._started + self._next_notice, self._notify)

    def _notify(self) -> None:
        self._waiting(self._loop.time() - self._started)
        self._next_notice *= 2
        self._arm()


def _http1() -> "ModuleType":
    from hermes.models import http1  # noqa: PLC0415 - most commands call no model

    return http1


def _library() -> "ModuleType":
    import httpcore2  # noqa: PLC0415 - takes 100 ms

    return httpcore2


@contextmanager
def _library_faults() -> Iterator[None]:
    """Say what went wrong at a proxy in the words of `http1`."""
    library, http1 = _library(), _http1()
    try:
        yield
    except library.TimeoutException as error:
        raise http1.ConnectionLate from error
    except library.ConnectError as error:
        raise http1.NoConnection(str(error)) from error
    except (library.NetworkError, library.ProtocolError, library.ProxyError) as error:
        raise http1.BrokenAnswer(str(error)) from error
    except library.UnsupportedProtocol as error:
        raise ValueError(str(error)) from error


def _connection_fault(error: Exception, patience: _Patience) -> WireFault:
    http1 = _http1()
    if isinstance(error, http1.ConnectionLate):
        return WireFault("the connection could not be made in time", kind=FailureKind.TIMEOUT)
    chain: BaseException | None = error
    while chain is not None:
        if isinstance(chain, ssl.SSLError):
            return WireFault(_bounded(str(chain)), kind=FailureKind.TLS)
        chain = chain.__cause__ or chain.__context__
    text = _bounded(str(error)) or type(error).__name__
    if failed := re.search(r"\[Errno (\d+)\] Connect call failed", text):
        text = os.strerror(int(failed[1])).lower()
    if isinstance(error, ValueError):
        return WireFault(f"the address is not usable: {text}", kind=FailureKind.BAD_REQUEST)
    if patience.received:
        return WireFault(f"the connection broke: {text}", kind=FailureKind.CONNECTION)
    refused = isinstance(error, http1.NoConnection)
    return WireFault(text, kind=FailureKind.CONNECTION, connected=not refused)


def _headers(response: "httpcore2.Response") -> dict[str, str]:
    return {
        name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers
    }


def _http_fault(status: int, headers: dict[str, str], body: bytes) -> WireFault:
    message, code = _error_text(body[:_MAX_ERROR_BODY])
    if 300 <= status < 400 and "location" in headers:
        message = f"it redirects to {headers['location']}"
    return WireFault(_bounded(message), status=status, headers=headers, code=code)


def _error_text(body: bytes) -> tuple[str, str]:
    try:
        document = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return body.decode("utf-8", "replace"), ""
    if isinstance(document, list) and document:
        document = document[0]
    if not isinstance(document, dict):
        return str(document), ""
    error = document.get("error", document)
    if not isinstance(error, dict):
        return str(error), ""
    message = error.get("message") or error.get("detail") or document.get("detail") or error
    code = error.get("code") if isinstance(error.get("code"), str) else error.get("type")
    raw = error.get("metadata")
    if isinstance(raw, dict) and raw.get("raw"):
        message = f"{message} {raw['raw']}"
    return str(message), str(code or "")


def _bounded(text: str) -> str:
    return one_line(text, _MAX_ERROR_TEXT)
