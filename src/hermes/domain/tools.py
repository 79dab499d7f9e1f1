"""Tools: what the model may call.

A tool is a typed argument struct, an async function and a `ToolSpec`. A
`ToolRunner` is anything that lists specs and runs calls: the registry is one,
and policy is added by wrapping it (`Approved(Budgeted(Filtered(registry)))`).

A running tool reaches the world through its `ToolContext` and nothing else.
Every tool has the session's environment, its small facts and a clock. What
goes further is a capability: asking a person, searching earlier sessions,
sending a message, running a child turn, fetching from the network. A tool
names in its spec the capabilities it `needs`; composition grants them by
agent and door (nobody can be asked in a cron run), and a tool whose needs are
not granted is not offered to the model.
"""

from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import Any, Protocol, TypeVar
from urllib.parse import unquote

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hermes.domain.errors import ToolRefused
from hermes.domain.messages import Content, ImagePart, ToolCall, ToolOutcome
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.execution import Environment
from hermes.domain.session import SearchHit
from hermes.domain.settings import Settings
from hermes.domain.usage import Spent

T = TypeVar("T")


class Parallel(StrEnum):
    """When calls of one batch may overlap."""

    ALWAYS = "always"
    """Reads only: may run beside anything."""
    BY_PATH = "by_path"
    """May run beside calls that touch other paths."""
    NEVER = "never"
    """Runs alone, in its place in the order."""


class Need(StrEnum):
    """A capability beyond the session's own environment and facts."""

    ASK = "ask"
    """Put a question to the person; durable like an approval."""
    SEARCH = "search"
    """Search earlier sessions of this agent."""
    SEND = "send"
    """Send a message to a chat; durable, never twice for one call."""
    SPAWN = "spawn"
    """Have an agent do something in a session of its own and wait for the answer."""
    FETCH = "fetch"
    """Fetch from the public network; private addresses are refused."""
    BROWSE = "browse"
    """Use a browser, under the same rules."""


class Intent(Struct, frozen=True, kw_only=True):
    """What a call is about to do, in the terms that policy judges."""

    command: str = ""
    """A shell command it would run."""
    workdir: str | None = None
    """Where that command would run, if not in the session's directory."""
    writes: tuple[str, ...] = ()
    """Files it would create, change or delete."""
    reads: tuple[str, ...] = ()
    """Files it would show."""
    code: str = ""
    """Program text it would run, other than shell."""
    escalate: str = ""
    """Why the command has to run outside the walls of its environment."""
    process: str = ""
    """The background process that `command` is typed into, if it is not run itself."""


MAX_RESULT_CHARS = 100_000


class ToolSpec(Struct, frozen=True, kw_only=True):
    name: str
    toolset: str
    description: str = ""
    parameters: dict[str, Any] = {}
    """JSON Schema of the arguments; sorted and stable."""
    strict: bool | None = None
    """Whether the provider has to keep the arguments to the schema; None: as it likes."""
    emoji: str = "🔧"
    verb: str = ""
    """What a tool line says it is doing, e.g. `read`."""
    label_field: str = ""
    """The argument that tells calls apart at a glance, e.g. `path`."""
    parallel: Parallel = Parallel.NEVER
    path_fields: tuple[str, ...] = ()
    """Arguments that hold paths, for `Parallel.BY_PATH`."""
    replay_safe: bool = False
    """Running it twice is as good as once: it is run again after a crash."""
    destructive: bool = False
    """Always needs an approval, whatever its arguments."""
    intent: Callable[[dict[str, Any]], Intent] | None = None
    """Tells policy what a call with these arguments would do; None: nothing to judge."""
    max_result_chars: int = MAX_RESULT_CHARS
    needs: frozenset[Need] = frozenset()
    """Capabilities without which it is not offered."""
    own_time: bool = False
    """It bounds its time itself: it waits for a person, or for other turns."""
    client: bool = False
    """Carried out by the program that asked, not here."""


class Offer(Struct, frozen=True, kw_only=True):
    """A way for a call that has failed: to be made once more, if a person allows it."""

    arguments: dict[str, Any]
    """What it is made with in addition."""
    reason: str
    """Why it has failed."""
    said: str = ""
    """What it printed about that."""


class ToolResult(Struct, frozen=True, kw_only=True):
    content: Content
    outcome: ToolOutcome = ToolOutcome.OK
    diff: str | None = None
    failure: str = ""
    """As in `ToolFinished`."""
    offer: Offer | None = None
    """How the failed call could go through, if a person allows it."""


class ChildTask(Struct, frozen=True, kw_only=True):
    """What a child turn is to do, and what it may use for that."""

    agent_id: str
    task: str
    name: str = ""
    """Tells the tasks of one call apart."""
    tools: tuple[str, ...] | None = None
    """Tools and toolsets that it may use; None: those of its agent."""
    max_model_calls: int | None = None
    orchestrator: bool = False
    """It may have children itself, as far down as the settings allow."""
    depth: int | None = None
    """How many generations there may be from here; None: `delegation.max_spawn_depth`."""
    background: bool = False
    """Nobody waits: the conversation that asked is told when it has ended."""
    seconds: float = 0.0
    """It is stopped after so long; 0: never."""


class Spawned(Struct, frozen=True, kw_only=True):
    session_id: str
    text: str
    failed: bool = False
    running: bool = False
    """It works in the background."""
    spent: Spent = Spent()


class WebRequest(Struct, frozen=True, kw_only=True):
    """A request to the network that a tool makes."""

    url: str
    limit: int = 2_000_000
    """Bytes of the answer that are read."""
    method: str = "GET"
    headers: dict[str, str] = {}
    """Sent to the host of `url` only, not to where it redirects."""
    body: bytes = b""
    timeout: float = 20.0
    """Seconds until the answer is there in full."""
    by_operator: bool = False
    """The address is from the configuration, so it may be private."""


class WebAnswer(Struct, frozen=True, kw_only=True):
    url: str
    """Where the redirects ended."""
    status: int
    kind: str
    """Media type with parameters, as the server named it."""
    body: bytes
    cut: bool = False
    """Whether there was more than the limit."""


async def _nothing_hidden(_context: "ToolContext", _paths: Sequence[str]) -> frozenset[str]:
    return frozenset()


class BrowserPage(Protocol):
    """The page that a session has open in its browser."""

    async def navigate(self, url: str) -> str:
        """Go to an address; return where that led, with what is on the page."""

    async def back(self) -> str: ...

    async def snapshot(self, *, full: bool = False) -> str:
        """Return the page as people with a screen reader have it; `@e3` are things to act on."""

    async def click(self, ref: str) -> str: ...

    async def type(self, ref: str, text: str) -> str:
        """Replace what is in a field."""

    async def press(self, key: str) -> str: ...

    async def scroll(self, direction: str) -> str: ...

    async def images(self) -> str:
        """List the pictures of the page."""

    async def screenshot(self) -> bytes: ...

    async def console(self, expression: str | None, *, clear: bool = False) -> str:
        """Return what the page said to the console, or evaluate an expression."""

    async def dialog(self, action: str, text: str) -> str:
        """Answer the dialog that is open."""


class ToolCapabilities(Struct, frozen=True, kw_only=True):
    """What composition grants to the tools of a turn; None is not granted."""

    ask: Callable[["ToolContext", str, Sequence[str]], Awaitable[str]] | None = None
    """(context, question, choices) -> the answer; `ToolRefused` if nobody answers in time."""
    search: Callable[["ToolContext", str, int], Awaitable[list[SearchHit]]] | None = None
    """(context, text, limit) -> matches in earlier sessions."""
    send: Callable[["ToolContext", str, str], Awaitable[None]] | None = None
    """(context, `platform[:chat[:thread]]`, text); raises if it cannot be delivered."""
    spawn: Callable[["ToolContext", ChildTask], Awaitable[Spawned]] | None = None
    """(context, task) -> the outcome of a child turn."""
    fetch: Callable[[WebRequest], Awaitable[WebAnswer]] | None = None
    """Fetch from the network; `UsageError` for what may not be reached."""
    browse: Callable[[str], Awaitable[BrowserPage]] | None = None
    """(session) -> its page in the browser."""
    redact: Callable[[str], str] = str
    """Replaces secrets in a text."""
    hidden: Callable[["ToolContext", Sequence[str]], Awaitable[frozenset[str]]] = _nothing_hidden
    """(context, files) -> those that may be shown only after an approval."""
    look: Callable[[str, ImagePart], Awaitable[Content]] | None = None
    """(question, picture) -> what the model is to see: the picture, or what another model saw."""
    settings: Callable[[], Settings] = Settings
    """The settings that count for this agent now."""
    variable: Callable[[str], str | None] = lambda _name: None
    """The value of a variable of this agent's `.env`: a key, an address."""

    @property
    def granted(self) -> frozenset[Need]:
        return frozenset(need for need in Need if getattr(self, need.value) is not None)


class ToolContext(Struct, frozen=True, kw_only=True):
    """What a running tool may use. Nothing else is reachable from a tool."""

    agent_id: str
    session_id: str
    turn_id: str
    call_id: str
    environment: Environment
    clock: Clock
    progress: Callable[[str], None]
    """Show something while the call is still running."""
    recall: Callable[[str], Awaitable[Any]]
    """Read a small durable fact of this session."""
    remember: Callable[[str, Any], Awaitable[None]]
    """Keep a small durable fact with this session (JSON-able)."""
    capabilities: ToolCapabilities = ToolCapabilities()
    max_result_chars: int = MAX_RESULT_CHARS
    """Longer results go to a file: what the model's window can take of one result."""
    again: Offer | None = None
    """The call was started before, and a person is to allow it in this way."""
    tools: "ToolRunner | None" = None
    """The tools of this turn with policy around them, for a tool that calls tools."""
    owner: str = ""
    """The process that runs the turn, as the ledger names it."""
    within: str = ""
    """The call that makes this one, which is not the model's then."""

    @property
    def settings(self) -> Settings:
        return self.capabilities.settings()

    async def call(self, name: str, arguments: dict[str, Any], number: int) -> "ToolResult":
        """Have another tool of this turn do something, under the same policy."""
        if self.tools is None:
            raise ToolRefused("This tool may not call others here.")
        call = ToolCall(
            id=f"{self.call_id}:{number}",
            name=name,
            arguments=msgspec.json.encode(arguments).decode(),
        )
        inner = replace(
            self, call_id=call.id, within=self.call_id, max_result_chars=MAX_RESULT_CHARS
        )
        return await self.tools.run(call, inner)

    async def ask(self, question: str, choices: Sequence[str] = ()) -> str:
        return await _granted(self.capabilities.ask, Need.ASK)(self, question, choices)

    async def search(self, text: str, limit: int = 10) -> list[SearchHit]:
        """Search the messages of earlier sessions, best match first."""
        return await _granted(self.capabilities.search, Need.SEARCH)(self, text, limit)

    async def send(self, target: str, text: str) -> None:
        """Send a message to `platform[:chat[:thread]]`; without a chat, to its home channel."""
        await _granted(self.capabilities.send, Need.SEND)(self, target, text)

    async def spawn(self, agent_id: str, task: str, **more: Any) -> Spawned:
        """Have an agent carry out `task` in a session of its own; `more` as in `ChildTask`."""
        child = ChildTask(agent_id=agent_id, task=task, **more)
        return await _granted(self.capabilities.spawn, Need.SPAWN)(self, child)

    async def browse(self) -> BrowserPage:
        return await _granted(self.capabilities.browse, Need.BROWSE)(self.session_id)

    def unsecret(self, text: str) -> None:
        """Refuse to send a text out that contains a secret."""
        if tells_secret(text, self.capabilities.redact):
            raise ToolRefused("The text contains a secret. Nothing was sent.")

    async def fetch(self, request: WebRequest) -> WebAnswer:
        return await _granted(self.capabilities.fetch, Need.FETCH)(request)


LOOKED_INTO = 100_000
"""Longer texts are searched for secrets as they are."""


def tells_secret(text: str, redact: Callable[[str], str]) -> bool:
    """Tell whether a text holds a secret, also percent-encoded or with something in between."""
    ways = {text}
    if len(text) <= LOOKED_INTO:
        plain = unquote(unquote(text))
        ways |= {plain, "".join(filter(str.isalnum, plain))}
    return any(redact(each) != each for each in ways)


def _granted(capability: T | None, need: Need) -> T:
    if capability is None:
        raise ToolRefused(f"This tool may not {need.value} here.")
    return capability


class ToolRunner(Protocol):
    def specs(self) -> tuple[ToolSpec, ...]:
        """Return the available tools, sorted by name."""

    def spec(self, name: str) -> ToolSpec | None:
        """Return the spec of one tool, if it is available."""

    async def run(self, call: ToolCall, context: ToolContext) -> ToolResult:
        """Carry out `call`. Failures are results; only bugs raise."""


class TurnTools(Struct, frozen=True, kw_only=True):
    runner: ToolRunner
    capabilities: ToolCapabilities = ToolCapabilities()
