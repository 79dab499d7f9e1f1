"""The receiver as an ASGI application.

    POST /webhooks/<route>   POST /p/<agent>/webhooks/<route>   GET /health

It reads the request within bounds and hands it to the `WebhookReceiver`; the
answer is JSON. Deliveries are signed, so neither the Host nor the Origin says
anything about who sends them, and browsers are not invited.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from hermes.config.environment import is_loopback
from hermes.control.webhooks.intake import HookAnswer, HookRefused, HookRequest
from hermes.control.webhooks.receiver import WebhookReceiver
from hermes.domain.errors import ConfigError, HermesError
from hermes.entry.http.request import AsgiApp, Receive, Scope, Send


class WebhookSettings(Struct, frozen=True, kw_only=True):
    """Where the receiver listens and what it takes."""

    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 8644
    secret: str = ""
    """For routes that have none of their own."""
    rate_limit: Annotated[int, Meta(ge=0)] = 30
    """Deliveries a minute and route; 0: no limit."""
    max_body_bytes: Annotated[int, Meta(ge=1)] = 1_048_576
    script_timeout_seconds: Annotated[float, Meta(gt=0, le=3600)] = 30.0
    routes: dict[str, Any] = {}

    @property
    def loopback(self) -> bool:
        """Whether only this machine reaches the receiver."""
        return is_loopback(self.host)

    @property
    def base_url(self) -> str:
        """The address by which this machine reaches the receiver."""
        host = "127.0.0.1" if self.host in {"", "0.0.0.0", "::"} else self.host  # noqa: S104
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"


def webhook_settings(section: Mapping[str, Any]) -> WebhookSettings:
    """Read the section; everything that belongs to other parts of the gateway is left alone."""
    known = {name: section[name] for name in WebhookSettings.__struct_fields__ if name in section}
    try:
        return msgspec.convert(
            {name: value for name, value in known.items() if value is not None},
            WebhookSettings,
            strict=False,
        )
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"platforms.webhook cannot be used: {error}.",
            hint="Correct it in config.yaml; see docs/how-to/webhooks.md.",
        ) from None


log = logging.getLogger(__name__)

READ_SECONDS = 30.0
DISCARD_SECONDS = 5.0
MAX_DISCARDED = 16 * 1024 * 1024
MAX_HEADERS = 100
MAX_HEADER_CHARS = 8192

_HEADERS = (
    (b"content-type", b"application/json"),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'"),
)


class _Gone(Exception):
    """The sender has left; there is nobody to answer."""


def webhook_app(receiver: WebhookReceiver, settings: WebhookSettings) -> AsgiApp:
    """Return the application."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            answer = await _answer(receiver, settings, scope, receive)
        except _Gone:
            return
        except HookRefused as refused:
            answer = refused.answer()
        except HermesError as error:
            log.error("a webhook delivery was not taken: %s", error.message)
            answer = HookRefused(503, "Not now; send it again.", retry_after=30).answer()
        except Exception:
            log.exception("a webhook delivery was not taken")
            answer = HookRefused(500, "Something unexpected happened.").answer()
        await _send(send, answer, scope["method"])

    return app


async def _answer(
    receiver: WebhookReceiver, settings: WebhookSettings, scope: Scope, receive: Receive
) -> HookAnswer:
    method, path = scope["method"], scope["path"]
    if path == "/health":
        if method not in {"GET", "HEAD"}:
            raise HookRefused(405, "Use GET.")
        return HookAnswer(status=200, body={"status": "ok", "platform": "webhook"})
    route = await receiver.route(_route_name(path, receiver.agent_id))
    if method != "POST":
        raise HookRefused(405, "Use POST.")
    headers = _headers(scope["headers"])
    body = await _body(headers, receive, settings.max_body_bytes)
    return await receiver.receive(route, HookRequest(headers=headers, body=body))


def _route_name(path: str, agent_id: str) -> str:
    match path.split("/"):
        case ["", "webhooks", name] if name:
            return name
        case ["", "p", agent, "webhooks", name] if name and agent == agent_id:
            return name
    raise HookRefused(404, "There is no such route.")


def _headers(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return headers by name; one that comes twice is both values, as HTTP says."""
    headers: dict[str, str] = {}
    for count, (name, value) in enumerate(raw):
        if count >= MAX_HEADERS or len(value) > MAX_HEADER_CHARS:
            raise HookRefused(431, "The headers are too large.")
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


async def _body(headers: dict[str, str], receive: Receive, limit: int) -> bytes:
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdecimal()):
        raise HookRefused(400, "The content length is not a number.")
    if len(length) > 15 or int(length) > limit:
        await _discard(receive, more=True)
        raise _too_large(limit)
    try:
        async with asyncio.timeout(READ_SECONDS):
            return await _read(receive, limit)
    except TimeoutError:
        raise HookRefused(408, "The body did not arrive in time.") from None


async def _read(receive: Receive, limit: int) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _Gone
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > limit:
            await _discard(receive, more=more)
            raise _too_large(limit)
        if not more:
            return bytes(body)


async def _discard(receive: Receive, *, more: bool) -> None:
    """Read on for a while: a sender that is cut off while it writes does not see the answer."""
    left = MAX_DISCARDED
    try:
        async with asyncio.timeout(DISCARD_SECONDS):
            while more and left > 0:
                message = await receive()
                left -= len(message.get("body", b""))
                more = message.get("more_body", False)
    except TimeoutError:
        return


def _too_large(limit: int) -> HookRefused:
    return HookRefused(413, f"The body has more than {limit} bytes.")


async def _send(send: Send, answer: HookAnswer, method: str) -> None:
    body = msgspec.json.encode(answer.body)
    headers = [*_HEADERS, (b"content-length", str(len(body)).encode())]
    if answer.retry_after is not None:
        headers.append((b"retry-after", str(answer.retry_after).encode()))
    if answer.status in {408, 413, 431}:
        # What is left of the body is not read: the connection cannot be used again.
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if method == "HEAD" else body})
