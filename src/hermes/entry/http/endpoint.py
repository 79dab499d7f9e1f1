"""Endpoint: one operation of the API, described once.

The same description makes the route, checks and decodes the request, and is
written into the OpenAPI document; a handler sees a `Call` with typed values
and returns an `Answer`.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import UTC, tzinfo
from types import ModuleType, NoneType
from typing import Any, Generic, Protocol, TypeVar, get_args, get_type_hints

from msgspec import Struct

from hermes.control.admission.routing import Router
from hermes.control.approvals import ApprovalAnswers
from hermes.control.lanes.gateway import Gateway
from hermes.control.runs.runs import Runs
from hermes.domain.inbound import Attachment, RouteTerms
from hermes.domain.keys import Action, Caller
from hermes.domain.messages import Message
from hermes.domain.patterns import SafePattern
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.files import JobStore
from hermes.domain.ports.ledger import Ledger
from hermes.domain.ports.model import ModelInfo, ModelReply
from hermes.observability.metrics import Registry


class ServedAgent(Struct, frozen=True, kw_only=True):
    agent_id: str
    name: str
    """What it is called in the `model` field."""
    routed: bool = False
    """The name is that of the default agent, where no route says otherwise."""
    terms: RouteTerms | None = None
    """The name is an alias of `model_routes`, which says the model."""
    listed: bool = True


class Toolset(Struct, frozen=True, kw_only=True):
    """One toolset of an agent."""

    name: str
    enabled: bool
    tools: tuple[str, ...]


class SideCalls(Protocol):
    """Plain model calls: no agent, no tools, no session."""

    async def answer(
        self, agent_id: str, task: str, messages: tuple[Message, ...], max_tokens: int | None
    ) -> ModelReply:
        """Answer with the cheap model for side tasks; its use is on record under `task`."""
        ...

    async def summarise(self, agent_id: str, messages: Sequence[Message], focus: str) -> ModelReply:
        """Summarise a conversation, with special attention to `focus`."""
        ...


class PictureStore(Protocol):
    async def keep(self, data: bytes, media_type: str, name: str = "") -> Attachment:
        """Store a picture, or with a name any file."""
        ...

    async def fetch(self, url: str, name: str = "") -> Attachment:
        """Fetch a picture, or with a name any file, from the public network and store it.

        `UsageError` if that fails.
        """
        ...


class HttpContext(Struct, frozen=True, kw_only=True):
    ledger: Ledger
    gateway: Gateway
    answers: ApprovalAnswers
    runs: Runs
    clock: Clock
    agents: Callable[[], Mapping[str, ServedAgent]]
    """The agents that are offered now, by each of their names; the default agent first."""
    router: Router
    side_calls: SideCalls
    media: PictureStore
    jobs: Callable[[str], JobStore]
    """Agent id -> its jobs."""
    toolsets: Callable[[str], tuple[Toolset, ...]]
    """Agent id -> its toolsets at this door."""
    own_tools: Callable[[str, str | None, RouteTerms | None], Awaitable[Mapping[str, str]]]
    """Agent id, session id, how it is routed -> its tools there, and the toolset of each."""
    skills: Callable[[str], Awaitable[list[dict[str, Any]]]]
    """Agent id -> its skills: name, description, path below its home."""
    model: Callable[[str, str | None, RouteTerms | None], Awaitable[ModelInfo]]
    """Agent id, session id, how it is routed -> its model, and what may be asked of it."""
    prompt_tokens: Callable[[str, str | None, tuple[str, ...] | None], Awaitable[int]]
    """Agent id, session id, own tools that may be used -> about the tokens of prompt and tools."""
    answer_file: Callable[[str, str, str], Awaitable[bytes | None]]
    """Agent id, session id, path -> a file that an answer names; None if it cannot be shown."""
    metrics: Registry
    gateway_state: Callable[[], Mapping[str, Any]]
    """What `gateway_state.json` would say now."""
    ready: Callable[[], Mapping[str, bool]]
    """Check -> whether it is fulfilled; ready if all are."""
    redact: Callable[[str], str]
    version: str
    retry_grace: float = 5.0
    """Seconds in which an SDK comes back after a lost connection."""
    helper_patterns: tuple[SafePattern, ...] = ()
    """Regular expressions by which further helper calls of web interfaces are recognised."""
    zone: tzinfo = UTC
    """In which times without an offset are understood: the configured `timezone`."""


MAX_REMEMBERED = 32
"""Responses that one connection remembers."""
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
    tools: str | None = None
    retry_count: str | None = None
    """Which retry of a request it is, as the SDKs of OpenAI count them; `0` is the first try."""
    events: str | None = None
    """`X-Hermes-Events`: which of our own events the client understands."""
    progress: str | None = None
    chat_id: str | None = None
    """`X-Hermes-Chat-Id` and the next two: what routes are asked for, if no agent is named."""
    thread_id: str | None = None
    user_id: str | None = None


class Connection:
    """A WebSocket connection, as far as requests on it are concerned."""

    def __init__(self, gone: Callable[[], Awaitable[Any]]) -> None:
        self.gone = gone
        self.unstored: dict[str, Callable[[], Awaitable[None]]] = {}
        """Responses that only this connection knows, and what deletes them."""

    async def remember(self, response_id: str, forget: Callable[[], Awaitable[None]]) -> None:
        self.unstored[response_id] = forget
        if len(self.unstored) > MAX_REMEMBERED:
            await self.forget(next(iter(self.unstored)))

    async def forget(self, *ids: str) -> None:
        """Forget these responses; without ids all of them."""
        for response_id in ids or tuple(self.unstored):
            if forget := self.unstored.pop(response_id, None):
                await forget()


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
    agent: str | None = None
    """The agent in the path: `/p/<agent>/v1/...`; the caller reaches no other."""
    gone: Callable[[], Awaitable[Any]]
    """Returns when the client has closed the connection."""
    connection: Connection | None = None
    """The WebSocket that it came over."""


class JsonAnswer(Struct, frozen=True, kw_only=True):
    value: Any
    status: int = 200
    headers: Mapping[str, str] = {}


class TextAnswer(Struct, frozen=True, kw_only=True):
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


class Events(Struct, frozen=True):
    """A stream of server-sent events; the data of each has the shape of `kind`."""

    kind: Any


class Endpoint(Struct, frozen=True, kw_only=True):
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
    """Status -> struct, `Events`, or a media type as text; 200 may be a tuple of several. A value
    without a status goes out with the first. Errors that every endpoint can give need not be
    named."""
    problems: tuple[int, ...] = ()
    """Further error statuses it can answer with: 404, 409, 429, 502, 503, ..."""
    redacts: bool = False
    """Secrets are taken out of every text of the value."""
    socket: str = ""
    """The type of the messages that ask for it over a WebSocket at the same path."""


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
