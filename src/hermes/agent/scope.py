"""The services of the core, and the scope of one turn while it runs."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from hermes.agent.attachments import ReadAttachment
from hermes.config.secrets import RedactedStream, Redactor, Secrets
from hermes.domain.events import TurnJob
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.execution import Environments
from hermes.domain.ports.files import Identity
from hermes.domain.ports.ledger import Ledger
from hermes.domain.ports.model import Model, ModelReply, ModelRequest
from hermes.domain.profile import AgentProfile
from hermes.domain.session import Session
from hermes.domain.settings.live import LiveSettings
from hermes.domain.tools import ToolCapabilities, ToolRunner, TurnTools
from hermes.domain.usage import TurnUsage, UsageRecord

T = TypeVar("T")


async def durable(commit: Coroutine[Any, Any, T]) -> T:
    """Await `commit` to its end even if this task is cancelled meanwhile.

    Cancelling a task while it awaits a commit would leave it not knowing
    whether the commit happened. The cancellation is let through only after the
    answer, so an interrupted turn knows exactly what is in the ledger.
    """
    task = asyncio.ensure_future(commit)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        task.exception()
        raise cancelled
    return task.result()


def usage_record(
    reply: ModelReply,
    task: str,
    agent_id: str,
    session_id: str | None,
    turn_id: str | None = None,
    *,
    at: float,
) -> UsageRecord:
    return UsageRecord(
        session_id=session_id,
        turn_id=turn_id,
        agent_id=agent_id,
        provider=reply.provider,
        model=reply.model,
        task=task,
        usage=reply.usage,
        cost_usd=reply.cost_usd,
        at=at,
    )


async def side_call(
    ledger: Ledger,
    clock: Clock,
    model: Model,
    request: ModelRequest,
    owner: tuple[str, str | None, str | None],
) -> ModelReply:
    """Make a side call and record its usage for (agent, session, turn) under its task."""
    reply = await model.complete(request)
    await ledger.record_usage(usage_record(reply, request.task, *owner, at=clock.now()))
    return reply


async def no_attachment(_path: str, _limit: int) -> bytes | None:
    return None


class Models(Protocol):
    """Opens models; clients are shared and kept open."""

    def main(self, profile: AgentProfile, session: Session | None) -> Model:
        """Return the model that answers turns of `session`, or of a new one."""
        ...

    def auxiliary(self, task: str, profile: AgentProfile, session: Session) -> Model:
        """Return the model for a side task such as `title_generation`."""
        ...


class AgentServices(Struct, frozen=True, kw_only=True):
    """Everything the core uses; built once by the composition root."""

    ledger: Ledger
    environments: Environments
    models: Models
    tools: Callable[[TurnJob, Session], Awaitable[TurnTools]]
    """Returns the tools of one turn."""
    identity: Identity
    clock: Clock
    settings: LiveSettings
    redact: Callable[[str], str]
    """Removes secrets by value; applied to everything that is stored or shown."""
    redacting: Callable[[], RedactedStream] = lambda: RedactedStream(Redactor(Secrets({})))
    """Makes a filter that removes secrets from text while it is streamed."""
    read_attachment: ReadAttachment = no_attachment
    load_context_files: bool = True
    """False leaves out project files, memory and skills (`--ignore-rules`)."""
    private_workspace: Callable[[Session], bool] = lambda _: False
    """Whether a session starts in an empty workspace: there is no project to read."""


class TurnScope(Struct, frozen=True, kw_only=True):
    """One turn while it runs: its job, and what it works with."""

    job: TurnJob
    session: Session
    """With its system prompt."""
    new_prompt: bool = False
    """The session keeps it from the first reply on."""
    model: Model
    tools: ToolRunner
    callable: ToolRunner | None = None
    """Our tools without a search in front, for tools that call tools."""
    capabilities: ToolCapabilities = ToolCapabilities()
    used: TurnUsage = TurnUsage()
    """What an earlier attempt at the turn has used."""
