"""The HTTP server that chat platforms are called at: path -> handler, one server per address.

Platforms that listen on the same host and port share the server; it is opened with the first
path and closed with the last. Bodies are bounded and handed over as they came.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import parse_qsl

from hermes.domain.errors import ConfigError
from hermes.domain.ports.platform import ListenerCall, ListenerHandler, ListenerReply
from hermes.entry.http.errors import Problem
from hermes.entry.http.request import ClientGone, Receive, Scope, Send, read_body, read_headers

log = logging.getLogger(__name__)
_MAX_BODY = 16 * 1024 * 1024
_READ_SECONDS = 20.0


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
    """One address and what is answered there."""

    def __init__(self, host: str, port: int) -> None:
        self.handlers: dict[str, ListenerHandler] = {}
        from hermes.entry.http.server import HttpServer  # noqa: PLC0415 - uvicorn, with use

        self.server = HttpServer(self._app, host, port, port_key="the port of the webhook")

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            reply = await self._reply(scope, receive)
        except ClientGone:
            return
        except Problem as problem:
            reply = ListenerReply(status=problem.status)
        except Exception:
            log.exception("a call of a platform could not be handled")
            reply = ListenerReply(status=500)
        headers = [
            (b"content-type", reply.media_type.encode("latin-1")),
            (b"content-length", str(len(reply.body)).encode()),
        ]
        self.server.set_date()
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await send({"type": "http.response.body", "body": reply.body})

    async def _reply(self, scope: Scope, receive: Receive) -> ListenerReply:
        handler = self.handlers.get(scope["path"])
        if handler is None:
            return ListenerReply(status=404)
        heads = read_headers(scope)
        body = await read_body(receive, heads, _MAX_BODY, _READ_SECONDS)
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        call = ListenerCall(
            method=scope["method"],
            path=scope["path"],
            query=dict(query),
            headers={name.decode("latin-1"): v.decode("latin-1") for name, v in heads.items()},
            body=body,
        )
        return await handler(call)
