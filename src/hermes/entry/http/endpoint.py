"""Endpoint: one operation of the API, described once.

The same description makes the route, checks and decodes the request, and is
written into the OpenAPI document; a handler sees a `Call` with typed values
and returns an `Answer`.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from types import ModuleType, NoneType
from typing import Any, Generic, TypeVar, get_args, get_type_hints

from msgspec import Struct

from hermes.domain.keys import Action, Caller
from hermes.entry.http.context import HttpContext

EVENT_STREAM = "text/event-stream"
STARTS_RUN = (404, 409, 429, 503)
"""Statuses with which whatever starts a run can refuse."""
ON_EVERY_ANSWER: dict[bytes, bytes] = {
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-resource-policy": b"same-origin",
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'",
    b"cache-control": b"no-store",
}

Body = TypeVar("Body")
Query = TypeVar("Query")


class CallHeaders(Struct, frozen=True, kw_only=True):
    """Headers that mean something to handlers; checked for length and control characters."""

    session_id: str | None = None
    session_key: str | None = None
    idempotency_key: str | None = None
    last_event_id: str | None = None
    task: str | None = None
    """`X-Hermes-Task`: the client says that this is a helper call, and which."""


class Call(Struct, Generic[Body, Query], frozen=True, kw_only=True):
    """A request that was let in and understood."""

    context: HttpContext
    caller: Caller
    path: Mapping[str, str]
    """The parameters in the path."""
    body: Body
    query: Query
    headers: CallHeaders
    fingerprint: str
    """Of method, path and body: what makes two requests the same."""
    gone: Callable[[], Awaitable[None]]
    """Returns when the client has closed the connection."""


class JsonAnswer(Struct, frozen=True, kw_only=True):
    """A value, sent as JSON."""

    value: Any
    status: int = 200
    headers: Mapping[str, str] = {}


class TextAnswer(Struct, frozen=True, kw_only=True):
    """Text of some media type."""

    text: str
    media_type: str = "text/plain; charset=utf-8"
    status: int = 200
    headers: Mapping[str, str] = {}


class StreamAnswer(Struct, frozen=True, kw_only=True):
    """Server-sent events, framed already.

    Comments keep the connection alive while nothing comes. If the client
    leaves, the iteration is cancelled and `left` is called.
    """

    chunks: AsyncIterator[bytes]
    headers: Mapping[str, str] = {}
    left: Callable[[], Awaitable[None]] | None = None


Answer = JsonAnswer | TextAnswer | StreamAnswer
Handler = Callable[[Call[Any, Any]], Awaitable[Any]]
"""Returns an `Answer`, or just the value that is sent as JSON."""


class Endpoint(Struct, frozen=True, kw_only=True):
    """One operation."""

    name: str
    """The `operationId`."""
    method: str
    path: str
    """With parameters in braces: `/v1/runs/{run_id}`."""
    summary: str
    tag: str
    handler: Handler
    action: Action | None = None
    """What the key must allow; None: any good key will do."""
    public: bool = False
    """Needs no key at all."""
    body: Any = None
    """The struct the body is checked against; None: there is no body."""
    query: Any = None
    """The struct that query parameters are checked against."""
    answers: Mapping[int, Any] = {}
    """Status -> struct, or a media type as text, e.g. `EVENT_STREAM`; 200 may be a tuple of
    several. A value without a status goes out with the first. Errors that every endpoint can give
    need not be named."""
    problems: tuple[int, ...] = ()
    """Further error statuses it can answer with: 404, 409, 429, 502, 503, ..."""
    redacts: bool = False
    """Secrets are taken out of every text of the value."""


class Operations:
    """Makes endpoints of the handlers of one subject.

        operation = Operations("runs", Action.RUN)

        @operation("GET /v1/runs/{run_id}", 404)
        async def get_run(call: Call[None, RunQuery]) -> RunView:
            ...

    The handler's name is the `operationId`, its docstring the summary; its types are those of the
    body, the query and the answer (`answers` says more where there are several). The numbers are
    the error statuses it can answer with.
    """

    def __init__(self, tag: str, action: Action | None = None, *, redacts: bool = False) -> None:
        self._shared = {"tag": tag, "action": action, "redacts": redacts}

    def __call__(
        self, route: str, *problems: int, status: int = 200, **more: Any
    ) -> Callable[[Handler], Endpoint]:
        method, _, path = route.partition(" ")

        def describe(handler: Handler) -> Endpoint:
            first, *rest = handler.__name__.split("_")
            types = get_type_hints(handler)
            body, query = (
                None if kind is NoneType else kind for kind in get_args(next(iter(types.values())))
            )
            fields = {"answers": {status: types["return"]}, **self._shared, **more}
            return Endpoint(
                name=first + "".join(word.title() for word in rest),
                method=method,
                path=path,
                summary=(handler.__doc__ or "").strip().rstrip("."),
                handler=handler,
                body=body,
                query=query,
                problems=problems,
                **fields,
            )

        return describe


def operations(module: ModuleType) -> tuple[Endpoint, ...]:
    """Return the endpoints of a module in the order in which they are written."""
    return tuple(each for each in vars(module).values() if isinstance(each, Endpoint))
