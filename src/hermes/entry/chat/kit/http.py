"""HTTP to a platform: calls with a bound, whose failures say whether anything happened.

`Effect` tells a call that may be repeated from one that may not. A failure before the request
was sent is always `RETRY`; after that a call that may not be repeated is `UNKNOWN`, never sent
again blindly. Addresses with a token in them are kept out of the request objects, which the
library logs and puts into its errors: `target` is handed over as the bare request target.
The library is imported with the first call.
"""

import asyncio
import re
import shutil
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Struct

from hermes.domain.ports.platform import FailureAction, PlatformFailure
from hermes.domain.wording import clean_text

if TYPE_CHECKING:
    from types import ModuleType

    import httpx2

_CONNECT_SECONDS = 10.0
_MAX_ANSWER = 64 * 1024 * 1024
_CHUNK = 256 * 1024
_AT_ONCE = 32
"""Calls under way; more only make each other slower."""
_KEPT = 8
"""Idle connections. The library looks at each of them with each call."""
_UPLOAD_BYTES_PER_SECOND = 100_000
_LOOPBACK = re.compile(r"(?:https?|wss?)://(localhost|127\.[0-9.]+|\[::1\])(?=[:/]|$)")
T = TypeVar("T")


def on_this_machine(url: str) -> bool:
    """Tell whether an address is on the loopback, where no proxy belongs."""
    return _LOOPBACK.match(url) is not None


class Effect(StrEnum):
    """Whether a call may be made twice."""

    REPEATABLE = "repeatable"
    """Reading, editing, deleting: a second time changes nothing."""
    ONCE = "once"
    """Sending: a second time shows a second message."""


class Upload(Struct, frozen=True, kw_only=True):
    field: str
    name: str
    content: bytes


class HttpRequest(Struct, frozen=True, kw_only=True):
    name: str
    """What failures call it."""
    url: str
    """Without secrets."""
    target: str = ""
    """Path and query as they are sent, if the address must not be shown; empty: as in `url`."""
    verb: str = "POST"
    headers: Mapping[str, str] = {}
    fields: Mapping[str, Any] = {}
    """Sent as JSON, or as a form along with `uploads`."""
    content: bytes = b""
    """Sent as it is, instead of `fields`."""
    uploads: Sequence[Upload] = ()
    effect: Effect = Effect.REPEATABLE
    timeout: float = 30.0
    pages: bool = True
    """False: a page where a file is wanted is a form to log in."""
    queued: bool = True
    """False: a long poll, which is always under way and waits for nobody."""


class HttpAnswer(Struct, frozen=True, kw_only=True):
    """The answer to a call, whatever its status."""

    status: int
    headers: Mapping[str, str]
    content: bytes


class _TooLarge(Exception):
    """More bytes came than are wanted."""


class HttpClient:
    """Connections to one platform, made with the first call."""

    def __init__(self, label: str, base_url: str, *, proxy: str = "", proxy_hint: str = "") -> None:
        self._label = label
        self._base_url = base_url
        self._proxy = proxy
        self._proxy_hint = proxy_hint
        self._client: httpx2.AsyncClient | None = None
        self._slots = asyncio.Semaphore(_AT_ONCE)

    @property
    def crowded(self) -> bool:
        """True while calls wait for others."""
        return self._slots.locked()

    async def prepare(self) -> None:
        """Load the library and the certificates beside the event loop."""
        if self._client is None:
            self._client = await asyncio.to_thread(self._new_client)

    async def call(self, wanted: HttpRequest) -> HttpAnswer:
        headers, body = dict(wanted.headers), dict[str, Any]()
        if wanted.uploads:
            files = [(u.field, (u.name, u.content)) for u in wanted.uploads]
            body = {"data": _form(wanted.fields), "files": files}
        elif wanted.content:
            body = {"content": wanted.content}
        elif wanted.verb != "GET":
            headers["content-type"] = "application/json"
            body = {"content": msgspec.json.encode(wanted.fields)}

        async def read(response: "httpx2.Response") -> HttpAnswer:
            content = await _content(response)
            headers = {name.lower(): value for name, value in response.headers.items()}
            return HttpAnswer(status=response.status_code, headers=headers, content=content)

        size = len(wanted.content) + sum(len(upload.content) for upload in wanted.uploads)
        seconds = wanted.timeout + size / _UPLOAD_BYTES_PER_SECOND
        async with self._slots if wanted.queued else nullcontext():
            return await self._exchange(wanted, seconds, read, headers=headers, **body)

    async def download(self, wanted: HttpRequest, path: Path, limit: int) -> int:
        """Stream a file to disk and return its size; nothing is left there when it fails."""
        part = path.with_name(f"{path.name}.part")
        read = partial(_save, part=part, limit=limit, pages=wanted.pages)
        get = msgspec.structs.replace(wanted, verb="GET")
        try:
            size = await self._exchange(get, wanted.timeout, read, headers=wanted.headers)
            await asyncio.to_thread(part.replace, path)
        finally:
            await asyncio.to_thread(part.unlink, missing_ok=True)
        return size

    def unreadable(
        self, name: str, answer: HttpAnswer, effect: Effect, hint: str
    ) -> PlatformFailure:
        """Explain an answer that is not from the platform itself, e.g. a proxy's error page."""
        status = answer.status
        if status == 413:
            message = f"The file is too large for {self._label}."
            return PlatformFailure(FailureAction.GIVE_UP, message, status=status)
        if status in {401, 404}:
            message = f"{self._label}'s server does not know this bot (HTTP {status})."
            # Not in the platform's own words: a proxy or a captive portal may have spoken.
            return PlatformFailure(FailureAction.RETRY, message, hint=hint, status=status)
        # 500, 502 and 503 pages come from in front of the platform; a good status with a
        # broken body and a gateway's timeout come after the request was passed on.
        passed_on = status < 500 or status == 504
        ambiguous = passed_on and effect is Effect.ONCE
        return PlatformFailure(
            FailureAction.UNKNOWN if ambiguous else FailureAction.RETRY,
            f"{self._label}'s answer to {name} could not be read (HTTP {status}).",
            status=status,
        )

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def _open(self) -> "httpx2.AsyncClient":
        if self._client is None:
            self._client = self._new_client()
        return self._client

    def _new_client(self) -> "httpx2.AsyncClient":
        library = _library()
        direct = on_this_machine(self._base_url)
        # Servers drop idle connections; one that is dropped while a message is being
        # written makes its fate unknown. So idle ones are not kept long.
        limits = library.Limits(
            max_connections=None, max_keepalive_connections=_KEPT, keepalive_expiry=15.0
        )
        try:
            client: httpx2.AsyncClient = library.AsyncClient(
                verify=self._base_url.startswith("https:"),
                proxy=None if direct or not self._proxy else self._proxy,
                trust_env=not direct,
                timeout=library.Timeout(None, connect=_CONNECT_SECONDS),
                limits=limits,
            )
        except (ImportError, ValueError):
            # The library's words may contain the proxy's password.
            raise PlatformFailure(
                FailureAction.FATAL,
                f"The proxy for {self._label} cannot be used.",
                hint=self._proxy_hint,
            ) from None
        return client

    async def _exchange(
        self,
        wanted: HttpRequest,
        seconds: float,
        read: "Callable[[httpx2.Response], Awaitable[T]]",
        **content: Any,
    ) -> T:
        """Send a request and read its answer, within a bound; translate what goes wrong."""
        library, client = _library(), self._open()
        name, effect = wanted.name, wanted.effect
        hidden = {"target": wanted.target.encode()} if wanted.target else None
        request = client.build_request(wanted.verb, wanted.url, extensions=hidden, **content)
        try:
            async with asyncio.timeout(seconds):
                response = await client.send(request, stream=True)
                try:
                    return await read(response)
                finally:
                    await response.aclose()
        except TimeoutError:
            reason = f"no answer within {seconds:.0f} s"
            raise broken(self._label, name, reason, sent=True, effect=effect) from None
        except _TooLarge:
            raise PlatformFailure(
                FailureAction.GIVE_UP, f"The answer to {name} is too large."
            ) from None
        except (library.HTTPError, library.StreamError, ssl.SSLError, OSError) as error:
            before = (library.ConnectError, library.ConnectTimeout, library.PoolTimeout)
            sent = not isinstance(error, (*before, library.ProxyError, library.UnsupportedProtocol))
            why = " ".join(str(error).split())[:200] or type(error).__name__
            raise broken(self._label, name, why, sent=sent, effect=effect) from None


def broken(label: str, name: str, reason: str, *, sent: bool, effect: Effect) -> PlatformFailure:
    """Say what a call means whose connection broke, before or after it was `sent`."""
    if sent and effect is Effect.ONCE:
        return PlatformFailure(
            FailureAction.UNKNOWN,
            f"The connection broke during {name}; it may have been carried out ({reason}).",
        )
    message = f"{label} cannot be reached for {name} ({reason})."
    return PlatformFailure(FailureAction.RETRY, message)


def pause_wanted(headers: Mapping[str, str], usual: float) -> float:
    """Return the seconds that `Retry-After` asks for."""
    seconds = str(headers.get("Retry-After", ""))
    return float(seconds) if seconds.replace(".", "", 1).isdecimal() else usual


def _form(fields: Mapping[str, Any]) -> dict[str, str]:
    return {
        name: value if isinstance(value, str) else msgspec.json.encode(value).decode()
        for name, value in fields.items()
    }


async def _content(response: "httpx2.Response") -> bytes:
    chunks: list[bytes] = []
    size = 0
    async for chunk in response.aiter_bytes():
        chunks.append(chunk)
        size += len(chunk)
        if size > _MAX_ANSWER:
            raise _TooLarge
    return b"".join(chunks)


async def _save(response: "httpx2.Response", part: Path, limit: int, *, pages: bool) -> int:
    if response.status_code != 200:
        message = f"The file could not be fetched (HTTP {response.status_code})."
        raise PlatformFailure(FailureAction.RETRY, message)
    if not pages and response.headers.get("content-type", "").startswith("text/html"):
        message = "A page came instead of the file: the app may not read files."
        raise PlatformFailure(FailureAction.GIVE_UP, message)
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


def _library() -> "ModuleType":
    import httpx2  # noqa: PLC0415 - takes 100 ms, and most commands call no platform

    return httpx2


def check_size(size: int, limit: int) -> None:
    """Raise `OSError` with a text for people if a file is too large."""
    if size > limit:
        raise OSError(f"it is larger than {limit // 1_000_000} MB")


async def read_upload(file: str | None, limit: int, field: str = "") -> Upload:
    """Return a file that is to be sent; `PlatformFailure` if it cannot be."""
    path = Path(file or "")

    def read() -> bytes:
        size = path.stat().st_size
        check_size(size, limit)
        if size == 0:
            raise OSError("it is empty")
        return path.read_bytes()

    try:
        content = await asyncio.to_thread(read)
    except OSError as error:
        message = f"{path.name} cannot be sent: {error.strerror or error}."
        raise PlatformFailure(FailureAction.GIVE_UP, message) from None
    return Upload(field=field, name=clean_text(path.name), content=content)


async def copy_file(source: Path, target: Path, limit: int) -> int:
    """Copy a file that the platform's server has on this machine; return its size."""

    def copy() -> int:
        size = source.stat().st_size
        check_size(size, limit)
        part = target.with_name(f"{target.name}.part")
        shutil.copyfile(source, part)
        part.replace(target)
        return size

    return await asyncio.to_thread(copy)
