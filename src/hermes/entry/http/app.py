"""The application: from an ASGI request to an `Answer`, and back.

    Host, Origin -> route -> key -> action -> headers, query, body -> handler -> answer

Nothing of a body is read before the key is known to be good. Whatever goes
wrong is answered in the error envelope: a `HermesError` with its own words,
anything else with a number under which the log has the details.
"""

import asyncio
import hashlib
import logging
import secrets
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import unquote

import msgspec

from hermes.control.runs.runs import Draining, redacted
from hermes.domain.errors import HermesError
from hermes.domain.keys import Caller
from hermes.entry.http.access import RUN_ID, narrowed
from hermes.entry.http.endpoint import (
    EVENT_STREAM,
    ON_EVERY_ANSWER,
    Call,
    Connection,
    Endpoint,
    HttpContext,
    JsonAnswer,
    StreamAnswer,
    TextAnswer,
)
from hermes.entry.http.errors import Problem, problem_of
from hermes.entry.http.guards import ANYBODY, FailureLimit, Guards, KeyRing, presented_key
from hermes.entry.http.names import check_names
from hermes.entry.http.openapi import with_description
from hermes.entry.http.request import (
    AsgiMessage,
    ClientGone,
    EndpointRoute,
    Headers,
    Receive,
    RouteMatch,
    RouteTable,
    Scope,
    Send,
    accepted_back,
    call_headers,
    read_body,
    read_headers,
)
from hermes.entry.http.room import BodyRoom
from hermes.entry.http.settings import HttpSettings
from hermes.entry.http.sse import close, send_stream
from hermes.entry.http.websocket import MAX_SOCKETS, Socket, rejecting, request_head

JSON = b"application/json"
ON_STREAMS: dict[bytes, bytes] = {
    **ON_EVERY_ANSWER,
    b"content-type": EVENT_STREAM.encode() + b"; charset=utf-8",
    b"cache-control": b"no-cache, no-store",
    b"x-accel-buffering": b"no",
}
_LARGE = 256 * 1024
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
log = logging.getLogger(__name__)


class _Exchange:
    __slots__ = (
        "_receive",
        "agent",
        "cors",
        "id",
        "left",
        "method",
        "route",
        "scope",
        "send",
        "started",
        "streams",
    )

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self._receive = receive
        self.send = send
        self.left = False
        """The client was gone before everything was sent."""
        self.id = f"req_{secrets.token_hex(12)}"
        self.method = scope["method"] if scope["method"] in _METHODS else "OTHER"
        """What clients make up must not become a label."""
        self.route = ""
        self.agent: str | None = None
        """The agent in the path: `/p/<agent>/...`."""
        self.cors: list[tuple[bytes, bytes]] = []
        self.started = False
        """Whether the head of the answer is on its way."""
        self.streams = False

    async def receive(self) -> AsgiMessage:
        message = await self._receive()
        self.left = self.left or message["type"] == "http.disconnect"
        return message

    async def gone(self) -> None:
        """Return when the client has closed the connection."""
        while (await self.receive())["type"] != "http.disconnect":
            pass

    def pairs(self, headers: Mapping[bytes, bytes]) -> list[tuple[bytes, bytes]]:
        return [*headers.items(), *self.cors, (b"x-request-id", self.id.encode())]

    async def answer(self, status: int, headers: Mapping[bytes, bytes], body: bytes = b"") -> int:
        pairs = self.pairs(headers)
        if status != 204:
            pairs.append((b"content-length", str(len(body)).encode()))
        self.started = True
        await self.send({"type": "http.response.start", "status": status, "headers": pairs})
        await self.send({"type": "http.response.body", "body": b"" if status == 204 else body})
        return status


class HttpApp:
    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        context: HttpContext,
        settings: HttpSettings,
        keys: KeyRing,
    ) -> None:
        self._context = context
        self._settings = settings
        self._keys = keys
        self._guards = Guards(settings)
        self._failures = FailureLimit(settings.max_auth_failures, context.clock)
        self.room = BodyRoom(settings.max_body_bytes)
        self._sockets = Counter[str]()
        """By key, those that are open."""
        self._routes = RouteTable(with_description(endpoints))
        self._requests = context.metrics.counter(
            "hermes_http_requests_total", "Requests by route, method and status."
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            # A socket asks for what `POST` does at the same path.
            scope, send = {**scope, "method": "POST"}, rejecting(send)
        exchange, began = _Exchange(scope, receive, send), time.perf_counter()
        try:
            status = await self._respond(exchange)
        except ClientGone:
            status = 499
        except asyncio.CancelledError:
            # The task belongs to the server, which cancels it only when it stops.
            status = await self._cut_off(exchange)
        except HermesError as error:
            status = await self._refuse(exchange, problem_of(error))
        except Exception:  # the boundary of a request: a bug is logged, and answered with 500
            log.exception("request %s could not be answered", exchange.id)
            status = await self._refuse(exchange, _unexpected(exchange.id))
        self._requests.add(method=exchange.method, route=exchange.route, status=str(status))
        if log.isEnabledFor(logging.DEBUG):
            took = (time.perf_counter() - began) * 1000
            log.debug("%s %s -> %d in %.1f ms", exchange.method, exchange.route, status, took)

    # -- from the request to the answer ----------------------------------------

    async def _respond(self, exchange: _Exchange) -> int:
        scope = exchange.scope
        heads = read_headers(scope)
        exchange.cors = self._guards.cors(heads)
        self._guards.check(heads, scope["http_version"])
        exchange.agent, path = _addressed(scope["raw_path"])
        found = self._routes.find(path)
        if scope["method"] == "OPTIONS":
            pairs = dict(self._guards.preflight(heads, found.allowed()))
            return await exchange.answer(204, ON_EVERY_ANSWER | pairs)
        route = found.route(scope["method"])
        exchange.route = route.endpoint.path
        caller = await self._let_in(route.endpoint, heads, exchange)
        if scope["type"] == "websocket":
            return await self._converse(exchange, heads, route, caller)
        call = await self._understood(exchange, heads, found, route, caller)
        answer = await route.endpoint.handler(call)
        if isinstance(answer, StreamAnswer):
            status = await self._stream(exchange, answer)
        else:
            status = await self._answer(exchange, route.endpoint, answer)
        if call.headers.retry_count is not None and status < 400 and not exchange.left:
            self._note_delivery(answer)
        return status

    def _note_delivery(self, answer: Any) -> None:
        if isinstance(answer, JsonAnswer | StreamAnswer) and RUN_ID in answer.headers:
            self._context.runs.delivered(answer.headers[RUN_ID])

    async def _let_in(self, endpoint: Endpoint, heads: Headers, exchange: _Exchange) -> Caller:
        if endpoint.public:
            return ANYBODY
        caller = await self._keys.caller(presented_key(heads))
        if caller is None:
            client = exchange.scope.get("client")
            raise self._failures.refusal(client[0] if client else "")
        if endpoint.action is not None and not caller.may(endpoint.action):
            message = f"This key does not allow `{endpoint.action}`."
            raise Problem(403, message, code="action_not_allowed")
        if exchange.agent is not None:
            exchange.agent, caller = narrowed(self._context.agents(), exchange.agent, caller)
        return caller

    async def _understood(
        self,
        exchange: _Exchange,
        heads: Headers,
        found: RouteMatch,
        route: EndpointRoute,
        caller: Caller,
    ) -> Call[Any, Any]:
        scope, settings = exchange.scope, self._settings
        headers = call_headers(heads)
        query = route.query.decode(scope["query_string"])
        raw = b""
        if route.body.wanted:
            raw = await read_body(exchange.receive, heads, self.room, settings.body_seconds)
            if raw or not route.body.optional:
                route.body.check_type(heads)
        body = await _decoded(route, raw)
        await check_names(headers, body, self._context.redact)
        return Call(
            context=self._context,
            caller=caller,
            agent=exchange.agent,
            path=found.parameters,
            body=body,
            query=query,
            headers=headers,
            fingerprint=_fingerprint(scope, raw),
            gone=exchange.gone,
        )

    async def _converse(
        self, exchange: _Exchange, heads: Headers, route: EndpointRoute, caller: Caller
    ) -> int:
        """Answer the requests that come over a WebSocket."""
        endpoint, headers = route.endpoint, call_headers(heads)
        if not endpoint.socket:
            raise Problem(404, "There is no WebSocket at this path.", code="not_found")
        headers = msgspec.structs.replace(headers, idempotency_key=None, retry_count=None)

        async def answer(raw: bytes, connection: Connection) -> StreamAnswer:
            before = request_head(raw, endpoint.socket)
            try:
                body = await _decoded(route, raw)
                await check_names(headers, body, self._context.redact)
                call = Call(
                    context=self._context,
                    caller=await self._let_in(endpoint, heads, exchange),
                    agent=exchange.agent,
                    path={},
                    body=msgspec.structs.replace(body, stream=True),
                    query=None,
                    headers=headers,
                    fingerprint=_fingerprint(exchange.scope, raw),
                    gone=connection.gone,
                    connection=connection,
                )
                answer = await endpoint.handler(call)
            except HermesError:
                if before:
                    await connection.forget(before)
                raise
            assert isinstance(answer, StreamAnswer)
            return answer

        socket = Socket(exchange.receive, exchange.send, answer, self._context.redact, self.room)
        with self._socket_of(caller), suppress(asyncio.CancelledError):  # by the server, that stops
            exchange.started = True
            await socket.run(exchange.pairs({}), self._settings.socket_seconds)
        return 101

    @contextmanager
    def _socket_of(self, caller: Caller) -> Iterator[None]:
        """Count a socket of a key as long as it is open; refuse one too many."""
        if self._sockets[caller.key_id] >= MAX_SOCKETS:
            text = f"This key has {MAX_SOCKETS} WebSockets open; close one of them."
            raise Problem(429, text, code="too_many_sockets", headers={"retry-after": "5"})
        self._sockets[caller.key_id] += 1
        try:
            yield
        finally:
            self._sockets[caller.key_id] -= 1
            self._sockets += Counter()  # forgets keys that have none

    # -- from the answer to the client -----------------------------------------

    async def _stream(self, exchange: _Exchange, answer: StreamAnswer) -> int:
        headers = exchange.pairs(ON_STREAMS | _encoded(answer.headers))
        if exchange.scope["method"] == "HEAD":
            await close(answer)
            await exchange.send({"type": "http.response.start", "status": 200, "headers": headers})
            await exchange.send({"type": "http.response.body", "body": b""})
            return 200
        exchange.started = exchange.streams = True
        try:
            await send_stream(
                answer, exchange.receive, exchange.send, headers, self._settings.keepalive_seconds
            )
        except HermesError as error:
            await self._break_off(exchange, problem_of(error))
        except Exception:  # the boundary of a request: its answer is on its way
            log.exception("the stream of request %s broke off", exchange.id)
            await self._break_off(exchange, _unexpected(exchange.id))
        return 200

    async def _cut_off(self, exchange: _Exchange) -> int:
        """Tell a client that the server stops, as far as that is possible now."""
        problem = problem_of(Draining("Hermes is stopping; try again in a moment."))
        if not exchange.started:
            return await self._refuse(exchange, problem)
        if not exchange.streams:
            raise asyncio.CancelledError
        await self._break_off(exchange, problem)
        return 200

    async def _break_off(self, exchange: _Exchange, problem: Problem) -> None:
        """End a stream that cannot go on with an event that clients take for an error."""
        body = b"event: error\ndata: " + self._error(problem) + b"\n\n"
        await exchange.send({"type": "http.response.body", "body": body})

    async def _answer(self, exchange: _Exchange, endpoint: Endpoint, answer: Any) -> int:
        if not isinstance(answer, JsonAnswer | TextAnswer):
            answer = JsonAnswer(value=answer, status=next(iter(endpoint.answers), 200))
        if isinstance(answer, TextAnswer):
            body, kind = answer.text.encode(), answer.media_type.encode()
        else:
            value = answer.value
            if endpoint.redacts:
                value = redacted(msgspec.to_builtins(value), self._context.redact)
            body, kind = accepted_back(msgspec.json.encode(value)), JSON
        headers = ON_EVERY_ANSWER | {b"content-type": kind} | _encoded(answer.headers)
        return await exchange.answer(answer.status, headers, body)

    async def _refuse(self, exchange: _Exchange, problem: Problem) -> int:
        headers = ON_EVERY_ANSWER | {b"content-type": JSON} | _encoded(problem.headers)
        return await exchange.answer(problem.status, headers, self._error(problem))

    def _error(self, problem: Problem) -> bytes:
        return msgspec.json.encode(problem.body(self._context.redact(problem.message)))


async def _decoded(route: EndpointRoute, raw: bytes) -> Any:
    """Return what a body says; a large one is read beside the loop, so that others go on."""
    decode = route.body.decode
    return decode(raw) if len(raw) < _LARGE else await asyncio.to_thread(decode, raw)


def _addressed(raw_path: bytes) -> tuple[str | None, bytes]:
    """Split `/p/<agent>/v1/...` into the agent and the path of the endpoint."""
    if not raw_path.startswith(b"/p/"):
        return None, raw_path
    agent, _, rest = raw_path[3:].partition(b"/")
    return unquote(agent.decode("latin-1")), b"/" + rest


def _encoded(headers: Mapping[str, str]) -> dict[bytes, bytes]:
    """Return headers as bytes; a value can hold nothing that would end its line."""
    return {name.lower().encode(): _one_line(value).encode() for name, value in headers.items()}


def _one_line(value: str) -> str:
    if value.isprintable():
        return value
    return "".join(c if c.isprintable() else " " for c in value)


def _fingerprint(scope: Scope, body: bytes) -> str:
    digest = hashlib.sha256(f"{scope['method']} ".encode() + scope["raw_path"] + b"\n")
    digest.update(body)
    return digest.hexdigest()[:32]


def _unexpected(request_id: str) -> Problem:
    message = f"Something unexpected went wrong here; the log has the details under {request_id}."
    return Problem(500, message, code="internal_error")
