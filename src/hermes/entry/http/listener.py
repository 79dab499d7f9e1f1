"""Raw requests that services send: calls of chat platforms and webhook deliveries.

A handler gets the body as it came, read within the same bounds as the API's: signatures are made
over bytes. They, or a secret, say who sends it. The webhook receiver refuses by its headers what it
can: hosts and pages as the API does (`guards`), and whatever brings no signature at all.

`SharedListener` is where chat platforms are called. Those that listen on the same host and port
share a server; it is opened with the first path and closed with the last.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from urllib.parse import parse_qsl

import msgspec

from hermes.control.webhooks.intake import HookRefused, unsigned
from hermes.control.webhooks.receiver import WebhookReceiver
from hermes.control.webhooks.signatures import NO_AUTH, carries_signature
from hermes.domain.errors import ConfigError, HermesError
from hermes.domain.ports.platform import ListenerCall, ListenerHandler, ListenerReply
from hermes.entry.http.endpoint import ON_EVERY_ANSWER
from hermes.entry.http.errors import Problem
from hermes.entry.http.guards import Guards, local_program
from hermes.entry.http.request import (
    AsgiApp,
    ClientGone,
    Headers,
    Receive,
    Scope,
    Send,
    read_body,
    read_headers,
)
from hermes.entry.http.room import BodyRoom
from hermes.entry.http.settings import WebhookSettings

log = logging.getLogger(__name__)
_MAX_BODY = 1024 * 1024
"""Of an update of a chat platform, in which files are named and not sent."""
_READ_SECONDS = 30.0
_MAX_HEADERS = 100
_MAX_HEADER_CHARS = 8192


def receiver_app(
    find: Callable[[Scope, Headers], Awaitable[ListenerHandler]],
    refusal: Callable[[HermesError | None], ListenerReply],
    max_body: int = _MAX_BODY,
) -> AsgiApp:
    """Return an application that hands whole requests to handlers.

    `find` names the handler of a request before its body is read; `refusal` answers what goes
    wrong (None: a bug).
    """
    room = BodyRoom(max_body)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            headers, heads = _headers(scope), read_headers(scope)
            handler = await find(scope, heads)
            body = await read_body(receive, heads, room, _READ_SECONDS)
            query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
            call = ListenerCall(
                method=scope["method"],
                path=scope["path"],
                query=dict(query),
                headers=headers,
                body=body,
            )
            reply = await handler(call)
        except ClientGone:
            return
        except HermesError as error:
            reply = refusal(error)
        except Exception:  # the boundary of a request: a bug is logged, and answered with 500
            log.exception("a request could not be handled")
            reply = refusal(None)
        sent = {
            **ON_EVERY_ANSWER,
            b"content-type": reply.media_type.encode("latin-1"),
            b"content-length": str(len(reply.body)).encode(),
            **{name.encode(): value.encode("latin-1") for name, value in reply.headers.items()},
        }
        head = {"type": "http.response.start", "status": reply.status, "headers": [*sent.items()]}
        await send(head)
        await send({"type": "http.response.body", "body": reply.body})

    return app


def _headers(scope: Scope) -> dict[str, str]:
    """Return headers by name; one that comes twice is both values, as HTTP says."""
    headers: dict[str, str] = {}
    for count, (name, value) in enumerate(scope["headers"]):
        if count >= _MAX_HEADERS or len(value) > _MAX_HEADER_CHARS:
            raise Problem(431, "The headers are too large.", code="headers_too_large")
        key, text = name.decode("latin-1"), value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


class SharedListener:
    """Implements `HttpListener`."""

    def __init__(self) -> None:
        self._sites: dict[tuple[str, int], _Site] = {}
        self._opening = asyncio.Lock()

    @asynccontextmanager
    async def serve(
        self, host: str, port: int, path: str, handler: ListenerHandler
    ) -> AsyncIterator[int]:
        """Answer calls to `path` for the length of the body; the port it listens on."""
        async with self._opening:
            site = self._sites.get((host, port))
            if site is None:
                site = _Site(host, port)
                await site.server.start()
                self._sites[host, port] = site
        if path in site.handlers:
            raise ConfigError(
                f"Two platforms are called at {path} on {host}:{port}.",
                hint="Give each webhook a path of its own.",
            )
        site.handlers[path] = handler
        try:
            yield site.server.port
        finally:
            del site.handlers[path]
            if not site.handlers:
                del self._sites[host, port]
                await site.server.stop()


class _Site:
    def __init__(self, host: str, port: int) -> None:
        from hermes.entry.http.server import HttpServer  # noqa: PLC0415 - uvicorn, with use

        self.handlers: dict[str, ListenerHandler] = {}
        app = receiver_app(self._find, _status)
        self.server = HttpServer(app, host, port, port_key="the port of the webhook")

    async def _find(self, scope: Scope, _heads: Headers) -> ListenerHandler:
        if scope["path"] not in self.handlers:
            raise Problem(404, "There is nothing at this path.", code="not_found")
        return self.handlers[scope["path"]]


def _status(error: HermesError | None) -> ListenerReply:
    if error is not None and not isinstance(error, Problem):
        log.error("a call of a platform could not be handled: %s", error.message)
    return ListenerReply(status=error.status if isinstance(error, Problem) else 500)


# -- webhooks ---------------------------------------------------------------------


def webhook_app(receiver: WebhookReceiver, settings: WebhookSettings) -> AsgiApp:
    guards = Guards(settings)

    async def find(scope: Scope, heads: Headers) -> ListenerHandler:
        guards.check(heads, scope["http_version"])
        if scope["path"] == "/health":
            if scope["method"] not in {"GET", "HEAD"}:
                raise HookRefused(405, "Use GET.")
            return health
        route = await receiver.route(*_route_name(scope["path"]))
        if scope["method"] != "POST":
            raise HookRefused(405, "Use POST.")
        if route.secret == NO_AUTH and not (settings.loopback and local_program(heads)):
            raise HookRefused(
                403,
                f"A route with {NO_AUTH} takes JSON from programs on this machine only, with "
                "Content-Type: application/json and under a loopback name.",
            )
        if not carries_signature(route.secret, heads, route.scheme):
            raise unsigned()

        async def take(call: ListenerCall) -> ListenerReply:
            return _reply(*await receiver.receive(route, call))

        return take

    async def health(_call: ListenerCall) -> ListenerReply:
        return _reply(200, {"status": "ok", "platform": "webhook"})

    return receiver_app(find, _refusal, settings.max_body_bytes)


def _route_name(path: str) -> tuple[str, str | None]:
    """Return the route that a path names, and the agent if it names one."""
    match path.split("/"):
        case ["", "webhooks", name] if name:
            return name, None
        case ["", "p", agent, "webhooks", name] if name:
            return name, agent
    raise HookRefused(404, "There is no such route.")


def _refusal(error: HermesError | None) -> ListenerReply:
    if isinstance(error, Problem):
        error = HookRefused(error.status, error.message)
    elif error is None:
        error = HookRefused(500, "Something unexpected happened.")
    elif not isinstance(error, HookRefused):
        log.error("a webhook delivery was not taken: %s", error.message)
        error = HookRefused(503, "Not now; send it again.", retry_after=30)
    told = {"status": "error", "error": error.message}
    return _reply(error.status, told, retry_after=error.retry_after)


def _reply(status: int, body: dict[str, str], retry_after: int | None = None) -> ListenerReply:
    return ListenerReply(
        status=status,
        body=msgspec.json.encode(body),
        media_type="application/json",
        headers={} if retry_after is None else {"retry-after": str(retry_after)},
    )
