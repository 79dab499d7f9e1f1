"""HTTP to a Bot API server; the only module here that knows the HTTP library.

The token is part of every address. It is kept out of the request objects, which
the library logs and puts into its errors, and handed over as the bare request
target instead. The library is imported with the first call.
"""

import asyncio
import re
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from hermes.domain.ports.platform import FailureAction
from hermes.entry.chat.telegram.failures import (
    TOKEN_HINT,
    ApiFailure,
    Effect,
    answer_failure,
    transport_failure,
    unreadable,
)
from hermes.entry.chat.telegram.settings import TelegramSettings
from hermes.entry.chat.telegram.wire import Envelope

if TYPE_CHECKING:
    from types import ModuleType

    import httpx2

__all__ = ["Transport", "Upload"]

_CONNECT_SECONDS = 10.0
_MAX_ANSWER = 64 * 1024 * 1024
_CHUNK = 256 * 1024
_AT_ONCE = 32
"""Calls under way; more only make each other slower, and Telegram takes thirty a second."""
_KEPT = 8
"""Idle connections. The library looks at each of them with each call."""
_POLL = "getUpdates"
_TOKEN = re.compile(r"\d+:[A-Za-z0-9_-]+")
_LOOPBACK = re.compile(r"https?://(localhost|127\.[0-9.]+|\[::1\])(?=[:/]|$)")
_ENVELOPE = msgspec.json.Decoder(Envelope)
T = TypeVar("T")


class Upload(msgspec.Struct, frozen=True, kw_only=True):
    """A file on its way out."""

    field: str
    name: str
    content: bytes


class _TooLarge(Exception):
    """More bytes came than are wanted."""


class Transport:
    """Connections to one server, made with the first call."""

    def __init__(self, settings: TelegramSettings) -> None:
        self._settings = settings
        self._client: httpx2.AsyncClient | None = None
        self._room = asyncio.Semaphore(_AT_ONCE)

    @property
    def crowded(self) -> bool:
        """True while calls wait for others."""
        return self._room.locked()

    async def prepare(self) -> None:
        """Load the library and the certificates beside the event loop."""
        if self._client is None:
            self._client = await asyncio.to_thread(_new_client, self._settings)

    async def call(
        self,
        method: str,
        fields: Mapping[str, Any],
        result: type[T],
        *,
        effect: Effect,
        uploads: Sequence[Upload],
        timeout: float,
    ) -> T:
        """Make one call and return its typed result."""
        body: dict[str, Any] = {"content": msgspec.json.encode(fields)}
        headers = {"content-type": "application/json"}
        if uploads:
            body = {
                "data": _form(fields),
                "files": [(u.field, (u.name, u.content)) for u in uploads],
            }
            headers = {}
        request = self._request("POST", self._settings.base_url, method, headers=headers, **body)

        async def exchange() -> tuple[int, bytes]:
            response = await self._open().send(request, stream=True)
            try:
                return response.status_code, await _content(response)
            finally:
                await response.aclose()

        # The poll is always under way and waits for nobody.
        async with nullcontext() if method == _POLL else self._room:
            status, content = await _guarded(method, effect, timeout, exchange)
        return _result(method, status, content, result, effect)

    async def download(self, file_path: str, target: Path, limit: int) -> int:
        """Stream a file to disk; nothing is left there when it fails."""
        path = quote(file_path.lstrip("/"), safe="/")
        request = self._request("GET", self._settings.base_file_url, path)
        part = target.with_name(f"{target.name}.part")

        async def exchange() -> int:
            response = await self._open().send(request, stream=True)
            try:
                return await _save(response, part, limit)
            finally:
                await response.aclose()

        try:
            patience = self._settings.download_timeout
            size = await _guarded("a file", Effect.REPEATABLE, patience, exchange)
            await asyncio.to_thread(part.replace, target)
        finally:
            await asyncio.to_thread(part.unlink, missing_ok=True)
        return size

    async def close(self) -> None:
        """Close all connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def _request(self, verb: str, root: str, rest: str, **body: Any) -> "httpx2.Request":
        """Build a request whose address shows no token, not even in errors and logs."""
        token = self._settings.token
        if _TOKEN.fullmatch(token) is None:
            raise ApiFailure(FailureAction.FATAL, "The Telegram token is not one.", hint=TOKEN_HINT)
        target = f"{urlsplit(root).path}/bot{token}/{rest}"
        return self._open().build_request(
            verb, f"{root}/bot/{rest}", extensions={"target": target.encode()}, **body
        )

    def _open(self) -> "httpx2.AsyncClient":
        if self._client is None:
            self._client = _new_client(self._settings)
        return self._client


def _new_client(settings: TelegramSettings) -> "httpx2.AsyncClient":
    library = _library()
    secure = settings.base_url.startswith("https:")
    direct = _LOOPBACK.match(settings.base_url) is not None
    # Telegram drops idle connections; one that is dropped while a message is being
    # written makes its fate unknown. So idle ones are not kept long.
    limits = library.Limits(
        max_connections=None, max_keepalive_connections=_KEPT, keepalive_expiry=15.0
    )
    try:
        client: httpx2.AsyncClient = library.AsyncClient(
            verify=secure,
            proxy=None if direct or not settings.proxy else settings.proxy,
            trust_env=not direct,
            timeout=library.Timeout(None, connect=_CONNECT_SECONDS),
            limits=limits,
        )
    except (ImportError, ValueError):
        # The library's words may contain the proxy's password.
        raise ApiFailure(
            FailureAction.FATAL,
            "The proxy for Telegram cannot be used.",
            hint="Set TELEGRAM_PROXY to an address like http://127.0.0.1:3128.",
        ) from None
    return client


async def _guarded(
    method: str, effect: Effect, seconds: float, exchange: Callable[[], Awaitable[T]]
) -> T:
    """Bound an exchange and translate what goes wrong on the way."""
    library = _library()
    try:
        async with asyncio.timeout(seconds):
            return await exchange()
    except TimeoutError:
        reason = f"no answer within {seconds:.0f} s"
        raise transport_failure(method, reason, sent=True, effect=effect) from None
    except _TooLarge:
        raise ApiFailure(FailureAction.GIVE_UP, f"The answer to {method} is too large.") from None
    except (library.HTTPError, library.StreamError, ssl.SSLError, OSError) as error:
        before = (library.ConnectError, library.ConnectTimeout, library.PoolTimeout)
        sent = not isinstance(error, (*before, library.ProxyError, library.UnsupportedProtocol))
        raise transport_failure(method, _why(error), sent=sent, effect=effect) from None


async def _content(response: "httpx2.Response") -> bytes:
    chunks: list[bytes] = []
    size = 0
    async for chunk in response.aiter_bytes():
        chunks.append(chunk)
        size += len(chunk)
        if size > _MAX_ANSWER:
            raise _TooLarge
    return b"".join(chunks)


async def _save(response: "httpx2.Response", part: Path, limit: int) -> int:
    if response.status_code != 200:
        raise ApiFailure(
            FailureAction.RETRY, f"The file could not be fetched (HTTP {response.status_code})."
        )
    size = 0
    file = await asyncio.to_thread(part.open, "wb")
    try:
        async for chunk in response.aiter_bytes(_CHUNK):
            size += len(chunk)
            if size > limit:
                raise _TooLarge
            await asyncio.to_thread(file.write, chunk)
    finally:
        await asyncio.to_thread(file.close)
    return size


def _result(method: str, status: int, content: bytes, result: type[T], effect: Effect) -> T:
    try:
        answer = _ENVELOPE.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise unreadable(method, status, effect) from None
    if not answer.ok:
        raise answer_failure(method, status, answer)
    try:
        return msgspec.json.decode(answer.result or b"null", type=result)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise unreadable(method, status, effect) from None


def _form(fields: Mapping[str, Any]) -> dict[str, str]:
    """Write fields as a form does: nested values as JSON."""
    return {
        name: value if isinstance(value, str) else msgspec.json.encode(value).decode()
        for name, value in fields.items()
    }


def _why(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text[:200] or type(error).__name__


def _library() -> "ModuleType":
    import httpx2  # noqa: PLC0415 - takes 100 ms, and most commands call no platform

    return httpx2
