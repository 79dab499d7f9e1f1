"""The agent core on a real ledger, with a scripted model and scripted tools."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from hermes.agent.attachments import read_attachment
from hermes.agent.scope import AgentServices
from hermes.agent.tools.wrappers import Guarded, Journaled
from hermes.agent.turn_runner import TurnRunner
from hermes.config.paths import HermesHome
from hermes.control.lanes.gateway import Gateway, GatewayParts
from hermes.control.lanes.lane import TurnRunnerPort
from hermes.domain.events import TurnEvent, TurnFinished, TurnJob, TurnStream
from hermes.domain.ids import new_id
from hermes.domain.inbound import Chat, ChatKind, InboundMessage, InboxEntry, Sender
from hermes.domain.messages import Message, ToolCall
from hermes.domain.ports.files import IdentitySnapshot
from hermes.domain.ports.ledger import Ledger
from hermes.domain.ports.model import Model
from hermes.domain.profile import AgentProfile
from hermes.domain.session import Session
from hermes.domain.settings import Settings
from hermes.domain.settings.live import LiveSettings
from hermes.domain.settings.models import Auxiliary, TitleGeneration
from hermes.domain.tools import (
    Parallel,
    ToolContext,
    ToolResult,
    ToolSpec,
    TurnTools,
)
from hermes.domain.turn import Turn, TurnControl, TurnState
from hermes.execution.backend import EnvironmentSettings
from hermes.execution.clock import SystemClock
from hermes.execution.pool import EnvironmentPool
from hermes.state.sqlite.ledger import SqliteLedger

Handler = Callable[[dict[str, Any], ToolContext], Awaitable[ToolResult]]


class ScriptedTools:
    """Tools made of plain functions; remembers what was run."""

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}
        self._specs: dict[str, ToolSpec] = {}
        self.ran: list[tuple[str, str]] = []

    def add(
        self,
        name: str,
        handler: Handler,
        *,
        replay_safe: bool = False,
        parallel: Parallel = Parallel.ALWAYS,
    ) -> None:
        self._handlers[name] = handler
        self._specs[name] = ToolSpec(
            name=name,
            description=name,
            parameters={"type": "object", "properties": {}},
            toolset="test",
            replay_safe=replay_safe,
            parallel=parallel,
        )

    def specs(self) -> tuple[ToolSpec, ...]:
        return tuple(self._specs[name] for name in sorted(self._specs))

    def spec(self, name: str) -> ToolSpec | None:
        return self._specs.get(name)

    async def run(self, call: ToolCall, context: ToolContext) -> ToolResult:
        self.ran.append((call.name, call.id))
        return await self._handlers[call.name](msgspec.json.decode(call.arguments), context)


class OneModel:
    """The same model for everything, or another one for side tasks."""

    def __init__(self, main: Model, side: Model | None = None) -> None:
        self._main = main
        self._side = side or main

    def main(self, profile: AgentProfile, session: Session | None) -> Model:
        return self._main

    def auxiliary(self, task: str, profile: AgentProfile, session: Session) -> Model:
        return self._side


class FixedIdentity:
    def __init__(self, snapshot: IdentitySnapshot | None = None) -> None:
        self.value = snapshot or IdentitySnapshot()

    async def snapshot(self, profile: AgentProfile) -> IdentitySnapshot:
        return self.value


class Core:
    """A running gateway with everything around it in reach of the test."""

    def __init__(self, ledger: Ledger, gateway: Gateway, tools: ScriptedTools, session: Session):
        self.ledger = ledger
        self.gateway = gateway
        self.tools = tools
        self.session = session

    async def say(self, text: str) -> TurnStream:
        """Submit a message and return the stream of the turn that takes it."""
        ticket = await self.gateway.submit(
            "main", message(text, self.session.id), session_id=self.session.id
        )
        return await ticket.stream()

    async def ask(self, text: str) -> TurnFinished:
        """Submit a message and wait for the end of its turn."""
        return await (await self.say(text)).wait()

    async def steer(self, text: str) -> None:
        """Submit a message and offer it to the running turn."""
        ticket = await self.gateway.submit(
            "main", message(text, self.session.id), session_id=self.session.id
        )
        assert self.gateway.steer(ticket)

    async def idle(self) -> None:
        """Wait until the session's lane is gone."""
        await self.gateway.idle(self.session.id)

    async def messages(self) -> list[Message]:
        return [stored.message for stored in await self.ledger.history(self.session.id)]


def message(text: str, chat_id: str, native_id: str = "") -> InboundMessage:
    return InboundMessage(
        platform="cli",
        account="local",
        native_id=native_id or new_id("test"),
        chat=Chat(kind=ChatKind.PRIVATE, id=chat_id),
        sender=Sender(id="ann"),
        text=text,
        sent_at=0.0,
    )


def job_of(stream: TurnStream, entry: InboxEntry | None = None) -> TurnJob:
    """Return a job whose events go into `stream`."""
    here = Path()
    return TurnJob(
        profile=AgentProfile(
            id="main", home=here, workspace=here, provider="p", model="m", toolsets=()
        ),
        turn=Turn(
            id=stream.turn_id,
            session_id=stream.session_id,
            agent_id="main",
            owner="owner-a",
            state=TurnState.RUNNING,
            started_at=0.0,
            updated_at=0.0,
        ),
        stream=stream,
        control=TurnControl(),
        entry=entry,
    )


async def events(stream: TurnStream) -> list[TurnEvent]:
    return [event async for event in stream.follow()]


async def _tools(job: TurnJob, tools: ScriptedTools, ledger: Ledger) -> TurnTools:
    runner = Guarded(Journaled(tools, ledger, SystemClock(), 30.0))
    return TurnTools(runner=runner, capabilities=job.capabilities)


def untitled(**sections: Any) -> Settings:
    """Return settings by which sessions stay without a title: a script is not asked for one."""
    tasks = Auxiliary(title_generation=TitleGeneration(enabled=False))
    return Settings(auxiliary=tasks, **sections)


@asynccontextmanager
async def running_core(
    folder: Path,
    model: Model,
    *,
    tools: ScriptedTools | None = None,
    settings: Settings | None = None,
    side: Model | None = None,
    identity: IdentitySnapshot | None = None,
    redact: Callable[[str], str] = lambda text: text,
    owner: str = "owner-a",
    alive: Callable[[str], bool] = lambda owner: False,
    session_id: str | None = None,
    ledger: Ledger | None = None,
    runner: Callable[[TurnRunnerPort], TurnRunnerPort] = lambda inner: inner,
) -> AsyncIterator[Core]:
    """Run a core whose ledger is `folder/state.db`."""
    workspace = folder / "workspace"
    workspace.mkdir(exist_ok=True)
    profile = AgentProfile(
        id="main",
        home=folder,
        workspace=workspace,
        provider="scripted",
        model="scripted-1",
        toolsets=("test",),
    )
    clock = SystemClock()
    own = ledger or await SqliteLedger.open(folder / "state.db", backups=folder / "backups")
    environments = EnvironmentPool(
        lambda _: EnvironmentSettings(
            home=HermesHome(root=folder),
            default_cwd=str(workspace),
            base_env={"PATH": "/usr/bin:/bin"},
        ),
        clock,
    )
    scripted = tools or ScriptedTools()
    services = AgentServices(
        ledger=own,
        environments=environments,
        models=OneModel(model, side),
        tools=lambda job, _session: _tools(job, scripted, own),
        identity=FixedIdentity(identity),
        clock=clock,
        settings=LiveSettings(settings or untitled()),
        redact=redact,
        read_attachment=read_attachment,
    )
    gateway = Gateway(
        GatewayParts(
            ledger=own,
            runner=runner(TurnRunner(services)),
            clock=clock,
            profiles={"main": profile},
            owner=owner,
            owner_alive=alive,
        )
    )
    try:
        async with gateway.running():
            if session_id is None:
                session = await gateway.open_session("main", "cli", "ann")
            else:
                found = await own.session(session_id)
                assert found is not None
                session = found
            yield Core(own, gateway, scripted, session)
    finally:
        await environments.close()
        if ledger is None:
            await own.close()


def returns(text: str) -> Handler:
    """A tool that answers `text`."""

    async def handler(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        return ToolResult(content=text)

    return handler


def waits(started: asyncio.Event, go: asyncio.Event, text: str = "done") -> Handler:
    """A tool that says when it has started and ends when it is told to."""

    async def handler(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        started.set()
        await go.wait()
        return ToolResult(content=text)

    return handler


__all__ = [
    "Core",
    "ScriptedTools",
    "events",
    "message",
    "returns",
    "running_core",
    "waits",
]
