"""Dependencies of the HTTP door, put together by the composition root."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, tzinfo
from typing import Any, Protocol

from msgspec import Struct

from hermes.control.approvals import ApprovalAnswers
from hermes.control.lanes.gateway import Gateway
from hermes.control.runs.runs import Runs
from hermes.domain.inbound import Attachment
from hermes.domain.messages import Message
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.files import JobStore
from hermes.domain.ports.ledger import Ledger
from hermes.domain.ports.model import ModelReply
from hermes.observability.metrics import Registry


class ServedAgent(Struct, frozen=True, kw_only=True):
    """One agent that can be reached."""

    agent_id: str
    name: str
    """What it is called in the `model` field; the default agent is `hermes`."""
    aliases: tuple[str, ...] = ()
    """Other names that are accepted for it."""
    model: str = ""
    """The language model behind it."""
    provider: str = ""


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


class PictureStore(Protocol):
    """Keeps pictures that come with requests."""

    async def keep(self, data: bytes, media_type: str) -> Attachment:
        """Store a picture and return where it is."""
        ...

    async def fetch(self, url: str) -> Attachment:
        """Fetch a picture from the public network and store it; `UsageError` if that fails."""
        ...


class HttpContext(Struct, frozen=True, kw_only=True):
    """Everything a handler may use."""

    ledger: Ledger
    gateway: Gateway
    desk: ApprovalAnswers
    runs: Runs
    clock: Clock
    agents: tuple[ServedAgent, ...]
    """The default agent first."""
    side_calls: SideCalls
    media: PictureStore
    jobs: Callable[[str], JobStore]
    """Agent id -> its jobs."""
    toolsets: Callable[[str], tuple[Toolset, ...]]
    """Agent id -> its toolsets at this door."""
    skills: Callable[[str], Awaitable[list[dict[str, Any]]]]
    """Agent id -> its skills: name, description, path below its home."""
    metrics: Registry
    gateway_state: Callable[[], Mapping[str, Any]]
    """What `gateway_state.json` would say now."""
    ready: Callable[[], Mapping[str, bool]]
    """Check -> whether it is fulfilled; ready if all are."""
    redact: Callable[[str], str]
    version: str
    helper_patterns: tuple[str, ...] = ()
    """Regular expressions by which further helper calls of web interfaces are recognised."""
    zone: tzinfo = UTC
    """In which times without an offset are understood: the configured `timezone`."""
