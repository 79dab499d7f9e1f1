"""HTTP to models; the only module of the model wire that knows the HTTP library.

Every wait has a bound: connect, first byte, idle and total, kept by one
timeout scope that each arrival of bytes moves on. Leaving the exchange in any
way before the end, cancellation included, closes the connection. The library
is imported with the first call.
"""

import asyncio
import os
import re
import ssl
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import msgspec

from hermes.domain.ports.model import FailureKind
from hermes.domain.settings.models import ModelTimeouts
from hermes.domain.wording import one_line
from hermes.models.sse import FrameTooLarge, SseParser
from hermes.models.wire import Decoder, WireCall, WireFault

if TYPE_CHECKING:
    from types import ModuleType

    import httpcore2


_MAX_DOCUMENT = 64 * 1024 * 1024
_MAX_SMALL_DOCUMENT = 1024 * 1024
_MAX_ERROR_BODY = 16 * 1024
_MAX_ERROR_TEXT = 600
_DRAIN_SECONDS = 0.25
Waiting = Callable[[float], None]
ProxyOf = Callable[[str], str | None]
"""Address -> the proxy to go through; None for directly."""


class Transport:
    """Connections to providers, shared by all model clients of a process."""

    def __init__(self, proxy_of: ProxyOf = lambda _: None) -> None:
        self._proxy_of = proxy_of
        self._pools: dict[tuple[object, ...], httpcore2.AsyncConnectionPool] = {}

    async def exchange(
        self,
        call: WireCall,
        decoder: Decoder,
        timeouts: ModelTimeouts,
        waiting: Waiting,
        notice: float,
    ) -> None:
        """Send `call` and feed the answer to `decoder`; raise `WireFault` on anything else."""
        pool = self._pool(call)
        patience = _Patience(timeouts, waiting, notice)
        try:
            async with asyncio.timeout_at(patience.first_deadline()) as scope:
                patience.watch(scope)
                await self._exchange(pool, call, decoder, patience)
        except TimeoutError as error:
            if decoder.done:
                return
            raise WireFault(patience.complaint(), kind=FailureKind.TIMEOUT) from error
        except FrameTooLarge as error:
            raise WireFault("One event is too large.", kind=FailureKind.MALFORMED) from error
        except msgspec.MsgspecError as error:
            raise WireFault(str(error), kind=FailureKind.MALFORMED) from error
        except _http_errors() as error:
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
        pool, method = self._pool(call), "POST" if call.body else "GET"
        headers, content = list(call.headers.items()), call.body or None
        body = b""
        try:
            async with pool.stream(method, call.url, headers=headers, content=content) as response:
                async for chunk in response.aiter_stream():
                    body += chunk
                    if len(body) > _MAX_SMALL_DOCUMENT:
                        raise WireFault("The document is too large.", kind=FailureKind.MALFORMED)
                return response.status, body
        except _http_errors() as error:
            raise WireFault(str(error), kind=FailureKind.CONNECTION) from error

    async def warm(self, call_url: str) -> None:
        """Import the library and prepare a pool, so that the first call need not."""
        await asyncio.to_thread(_library)
        self._pool(WireCall(url=call_url, headers={}, body=b"", stream=False))

    async def close(self) -> None:
        pools, self._pools = self._pools, {}
        for pool in pools.values():
            await pool.aclose()

    def _pool(self, call: WireCall) -> "httpcore2.AsyncConnectionPool":
        # Loading certificates takes as long as a whole local call: only for TLS.
        secure = call.url.startswith("https:")
        proxy = self._proxy_of(call.url)
        key = (asyncio.get_running_loop(), secure, proxy, call.verify, call.ca_file)
        pool = self._pools.get(key)
        if pool is None:
            pool = self._pools[key] = _new_pool(call, proxy, secure=secure)
        return pool

    async def _exchange(
        self,
        pool: "httpcore2.AsyncConnectionPool",
        call: WireCall,
        decoder: Decoder,
        patience: "_Patience",
    ) -> None:
        headers = {"content-type": "application/json", "accept-encoding": "identity"}
        headers["accept"] = "text/event-stream" if call.stream else "application/json"
        headers["user-agent"] = "hermes"
        answer = pool.stream(
            "POST",
            call.url,
            headers=list((headers | call.headers).items()),
            content=call.body,
            extensions={"timeout": {"connect": patience.timeouts.connect}},
        )
        async with answer as response:
            patience.connected = True
            if response.status >= 300:
                raise await _http_fault(response)
            await _receive(response, decoder, patience)


def _new_pool(
    call: WireCall, proxy: str | None, *, secure: bool
) -> "httpcore2.AsyncConnectionPool":
    library = _library()
    from hermes.models.network import StreamBackend  # noqa: PLC0415 - imports the library

    pool: httpcore2.AsyncConnectionPool = library.AsyncConnectionPool(
        ssl_context=_ssl_context(call) if secure else None,
        proxy=_proxy(proxy) if proxy else None,
        max_connections=None,
        max_keepalive_connections=64,
        keepalive_expiry=60.0,
        network_backend=StreamBackend(),
    )
    return pool


def _ssl_context(call: WireCall) -> ssl.SSLContext:
    if not call.verify:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context
    if call.ca_file:
        return ssl.create_default_context(cafile=call.ca_file)
    found: ssl.SSLContext = _library().default_ssl_context()
    return found


def _proxy(url: str) -> "httpcore2.Proxy":
    parts = urlsplit(url)
    bare = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    auth = (unquote(parts.username), unquote(parts.password or "")) if parts.username else None
    proxy: httpcore2.Proxy = _library().Proxy(bare, auth=auth)
    return proxy


async def _receive(response: "httpcore2.Response", decoder: Decoder, patience: "_Patience") -> None:
    kind = _headers(response).get("content-type", "").partition(";")[0].strip().lower()
    stream = response.aiter_stream()
    if kind.endswith("json"):
        decoder.feed_document(await _document(stream, patience))
        return
    parser = SseParser()
    sniffing = kind != "text/event-stream"
    async for chunk in stream:
        if sniffing and chunk.strip():
            if chunk.lstrip().startswith(b"{"):
                decoder.feed_document(chunk + await _document(stream, patience))
                return
            sniffing = False
        patience.arrived()
        for data in parser.feed(chunk):
            decoder.feed(data)
        if decoder.done:
            patience.drain()
    for data in parser.close():
        decoder.feed(data)


async def _document(stream: AsyncIterator[bytes], patience: "_Patience") -> bytes:
    chunks: list[bytes] = []
    size = 0
    async for chunk in stream:
        patience.arrived()
        chunks.append(chunk)
        size += len(chunk)
        if size > _MAX_DOCUMENT:
            raise FrameTooLarge
    return b"".join(chunks)


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
        self.connected = False
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


def _library() -> "ModuleType":
    import httpcore2  # noqa: PLC0415 - takes 100 ms, and most commands call no model

    return httpcore2


def _http_errors() -> tuple[type[Exception], ...]:
    library = _library()
    return (
        library.TimeoutException,
        library.NetworkError,
        library.ProtocolError,
        library.ProxyError,
        library.UnsupportedProtocol,
        ssl.SSLError,
        OSError,
        ValueError,  # not a valid address
    )


def _connection_fault(error: Exception, patience: _Patience) -> WireFault:
    library = _library()
    if isinstance(error, library.TimeoutException):
        return WireFault("the connection could not be made in time", kind=FailureKind.TIMEOUT)
    chain: BaseException | None = error
    while chain is not None:
        if isinstance(chain, ssl.SSLError):
            return WireFault(_bounded(str(chain)), kind=FailureKind.TLS)
        chain = chain.__cause__ or chain.__context__
    text = _bounded(str(error)) or type(error).__name__
    if failed := re.search(r"\[Errno (\d+)\] Connect call failed", text):
        text = os.strerror(int(failed[1])).lower()
    if isinstance(error, library.UnsupportedProtocol | ValueError):
        return WireFault(f"the address is not usable: {text}", kind=FailureKind.BAD_REQUEST)
    if patience.received:
        return WireFault(f"the connection broke: {text}", kind=FailureKind.CONNECTION)
    refused = isinstance(error, library.ConnectError)
    return WireFault(text, kind=FailureKind.CONNECTION, connected=not refused)


def _headers(response: "httpcore2.Response") -> dict[str, str]:
    return {
        name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers
    }


async def _http_fault(response: "httpcore2.Response") -> WireFault:
    body = b""
    async for chunk in response.aiter_stream():
        body += chunk
        if len(body) >= _MAX_ERROR_BODY:
            break
    message, code = _error_text(body[:_MAX_ERROR_BODY])
    headers = _headers(response)
    if 300 <= response.status < 400 and "location" in headers:
        message = f"it redirects to {headers['location']}"
    return WireFault(_bounded(message), status=response.status, headers=headers, code=code)


def _error_text(body: bytes) -> tuple[str, str]:
    try:
        document = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
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
