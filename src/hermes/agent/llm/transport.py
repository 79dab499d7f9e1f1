"""HTTP to models; the only module of the model wire that knows the HTTP library.

Every wait has a bound: connect, first byte, idle and total, kept by one
timeout scope that each arrival of bytes moves on. Leaving the exchange in any
way before the end, cancellation included, closes the connection. The library
is imported with the first call.
"""

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

import msgspec

from hermes.agent.llm.framing import FrameTooLarge, SseParser
from hermes.agent.llm.settings import Timeouts
from hermes.agent.llm.wire import Decoder, WireCall, WireFault
from hermes.domain.ports.model import FailureKind

if TYPE_CHECKING:
    from types import ModuleType

    import httpx2

__all__ = ["Transport"]

_MAX_DOCUMENT = 64 * 1024 * 1024
_MAX_ERROR_BODY = 16 * 1024
_MAX_ERROR_TEXT = 600
_DRAIN_SECONDS = 0.25
_LOOPBACK = re.compile(r"https?://(localhost|127\.[0-9.]+|\[::1\])[:/]")
"""Proxies are for the world outside: a model on this machine is reached directly."""
Waiting = Callable[[float], None]


class Transport:
    """Connections to providers, shared by all model clients of a process."""

    def __init__(self, *, proxy: str | None = None, trust_env: bool = True) -> None:
        self._proxy = proxy
        self._trust_env = trust_env
        self._clients: dict[tuple[object, ...], httpx2.AsyncClient] = {}

    async def exchange(
        self, call: WireCall, decoder: Decoder, timeouts: Timeouts, waiting: Waiting
    ) -> None:
        """Send `call` and feed the answer to `decoder`; raise `WireFault` on anything else."""
        client = self._client(call)
        patience = _Patience(timeouts, waiting)
        try:
            async with asyncio.timeout_at(patience.first_deadline()) as scope:
                patience.watch(scope)
                await self._exchange(client, call, decoder, patience)
        except TimeoutError as error:
            if decoder.done:
                return
            raise WireFault(patience.complaint(), kind=FailureKind.TIMEOUT) from error
        except FrameTooLarge as error:
            raise WireFault("One event is too large.", kind=FailureKind.MALFORMED) from error
        except _http_errors() as error:
            if decoder.done:
                return
            raise _connection_fault(error, patience) from error
        finally:
            patience.stop()

    async def warm(self, call_url: str) -> None:
        """Import the library and prepare a client, so that the first call need not."""
        await asyncio.to_thread(_library)
        self._client(WireCall(url=call_url, headers={}, body=b"", stream=False))

    async def close(self) -> None:
        """Close all connections."""
        clients, self._clients = self._clients, {}
        for client in clients.values():
            await client.aclose()

    def _client(self, call: WireCall) -> "httpx2.AsyncClient":
        # Loading certificates takes as long as a whole local call: only for TLS.
        secure = call.url.startswith("https:")
        direct = _LOOPBACK.match(call.url) is not None
        key = (asyncio.get_running_loop(), secure, direct, call.verify, call.ca_file)
        client = self._clients.get(key)
        if client is None:
            client = self._clients[key] = self._new_client(call, secure=secure, direct=direct)
        return client

    def _new_client(self, call: WireCall, *, secure: bool, direct: bool) -> "httpx2.AsyncClient":
        library = _library()
        verify: ssl.SSLContext | bool = secure and call.verify
        if verify and call.ca_file:
            verify = ssl.create_default_context(cafile=call.ca_file)
        client: httpx2.AsyncClient = library.AsyncClient(
            verify=verify,
            proxy=None if direct else self._proxy,
            trust_env=self._trust_env and not direct,
            timeout=None,
            limits=library.Limits(
                max_connections=None, max_keepalive_connections=64, keepalive_expiry=60.0
            ),
        )
        return client

    async def _exchange(
        self, client: "httpx2.AsyncClient", call: WireCall, decoder: Decoder, patience: "_Patience"
    ) -> None:
        headers = {"content-type": "application/json", "accept-encoding": "identity"}
        headers["accept"] = "text/event-stream" if call.stream else "application/json"
        request = client.build_request(
            "POST",
            call.url,
            headers=headers | call.headers,
            content=call.body,
            timeout=patience.connect_only(),
        )
        response = await client.send(request, stream=True)
        try:
            patience.connected = True
            if response.status_code >= 300:
                raise await _http_fault(response)
            await _receive(response, decoder, patience)
        finally:
            await response.aclose()


async def _receive(response: "httpx2.Response", decoder: Decoder, patience: "_Patience") -> None:
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    stream = response.aiter_raw()
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
        for event in parser.feed(chunk):
            decoder.feed(event.data)
        if decoder.done:
            patience.drain()
    for event in parser.close():
        decoder.feed(event.data)


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
    """How long this exchange may still take, and who is told meanwhile."""

    def __init__(self, timeouts: Timeouts, waiting: Waiting) -> None:
        self._timeouts = timeouts
        self._waiting = waiting
        self._loop = asyncio.get_running_loop()
        self._started = self._loop.time()
        self._end = self._started + timeouts.total
        self._scope: asyncio.Timeout | None = None
        self._last = self._started
        self._idle_timer: asyncio.TimerHandle | None = None
        self._draining = False
        self._next_notice = timeouts.notice
        self._timer: asyncio.TimerHandle | None = None
        self.connected = False
        self.received = False

    def first_deadline(self) -> float:
        return min(self._end, self._started + self._timeouts.first_byte)

    def connect_only(self) -> Any:
        return _library().Timeout(None, connect=self._timeouts.connect)

    def watch(self, scope: asyncio.Timeout) -> None:
        self._scope = scope
        self._arm()

    def arrived(self) -> None:
        """Bytes came: the idle time begins anew.

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
        """The reply is complete: allow a moment for the end of the body."""
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
            return f"nothing more came for {self._timeouts.idle:g} s"
        return f"nothing came within {self._timeouts.first_byte:g} s"

    def _move(self, deadline: float) -> None:
        scope = self._scope
        if scope is not None and not scope.expired():
            scope.reschedule(deadline)

    def _watch_idle(self) -> None:
        over = self._last + self._timeouts.idle
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
    import httpx2  # noqa: PLC0415 - takes 100 ms, and most commands call no model

    return httpx2


def _http_errors() -> tuple[type[Exception], ...]:
    httpx2 = _library()
    return (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, ssl.SSLError, OSError)


def _connection_fault(error: Exception, patience: _Patience) -> WireFault:
    httpx2 = _library()
    if isinstance(error, httpx2.TimeoutException):
        return WireFault("the connection could not be made in time", kind=FailureKind.TIMEOUT)
    chain: BaseException | None = error
    while chain is not None:
        if isinstance(chain, ssl.SSLError):
            return WireFault(_bounded(str(chain)), kind=FailureKind.TLS)
        chain = chain.__cause__ or chain.__context__
    text = _bounded(str(error)) or type(error).__name__
    if isinstance(error, httpx2.InvalidURL | httpx2.UnsupportedProtocol):
        return WireFault(f"the address is not usable: {text}", kind=FailureKind.BAD_REQUEST)
    if patience.received:
        return WireFault(f"the connection broke: {text}", kind=FailureKind.CONNECTION)
    return WireFault(text, kind=FailureKind.CONNECTION)


async def _http_fault(response: "httpx2.Response") -> WireFault:
    """Read a bounded part of an error answer and find what it says."""
    body = b""
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) >= _MAX_ERROR_BODY:
            break
    message, code = _error_text(body[:_MAX_ERROR_BODY])
    if response.is_redirect:
        message = f"it redirects to {response.headers.get('location', 'elsewhere')}"
    return WireFault(
        _bounded(message), status=response.status_code, headers=dict(response.headers), code=code
    )


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
    flat = " ".join(text.split())
    return flat if len(flat) <= _MAX_ERROR_TEXT else flat[:_MAX_ERROR_TEXT] + "…"
