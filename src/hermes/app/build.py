"""Putting a Hermes together: from options to a running gateway."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from hermes import __version__
from hermes.agent.attachments import read_attachment
from hermes.agent.scope import AgentServices, durable
from hermes.agent.turn_runner import TurnRunner
from hermes.app.agents import AgentRegistry
from hermes.app.options import AppOptions
from hermes.app.settings import (
    UNATTENDED,
    backend_name,
    backend_warnings,
    budget_warnings,
    environment_settings,
    has_private_workspace,
    in_force,
)
from hermes.app.tools import AgentTools, ToolSources
from hermes.config.loader import LoadedConfig, with_private_files
from hermes.config.secrets import AgentRedactor, RedactedStream, Redactor
from hermes.control.approvals import ApprovalAnswers
from hermes.control.child_turns import ChildTurns
from hermes.control.commands.context import CommandHost
from hermes.control.commands.controls import CoreControls
from hermes.control.lanes.gateway import Gateway, GatewayParts
from hermes.control.lanes.notices import pass_on_notices
from hermes.control.supervision.services import keep_running
from hermes.domain.events import TurnJob
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.ledger import Ledger
from hermes.domain.profile import DEFAULT_AGENT, AgentProfile, current_profile
from hermes.domain.session import KeyScope, Session
from hermes.domain.settings.live import LiveSettings
from hermes.execution.backend import EnvironmentSettings
from hermes.execution.browser.browsers import Browsers
from hermes.execution.clock import SystemClock
from hermes.execution.pool import EnvironmentPool
from hermes.models.offers import detect_servers, offers
from hermes.models.registry import ModelRegistry
from hermes.models.routes import ModelSources
from hermes.observability.logs import configure_logging
from hermes.state.agent_files import FileIdentity
from hermes.state.ownership import Owner, blocked_by, new_stalls, owner_alive
from hermes.state.sqlite.database import not_imported
from hermes.state.sqlite.ledger import open_ledger
from hermes.state.transcripts import TranscriptMirror

MIRRORED = "mirrored_message_id"
"""Where a session remembers how far its mirror goes."""


log = logging.getLogger(__name__)


class MirroredRunner:
    def __init__(self, inner: TurnRunner, ledger: Ledger, mirror: TranscriptMirror) -> None:
        self._inner = inner
        self._ledger = ledger
        self._mirror = mirror

    async def run(self, job: TurnJob) -> None:
        await self._inner.run(job)

    async def after_turn(self, profile: AgentProfile, session_id: str) -> None:
        """Write what the mirror does not have yet, then do the rest."""
        await durable(self._mirrored(session_id))
        await self._inner.after_turn(profile, session_id)

    async def _mirrored(self, session_id: str) -> None:
        done = await self._ledger.recall(session_id, MIRRORED) or 0
        new = [s for s in await self._ledger.transcript(session_id) if s.id > done]
        if new:
            await self._mirror.append(session_id, new)
            await self._ledger.remember(session_id, MIRRORED, max(stored.id for stored in new))


class App(Struct, kw_only=True):
    """A Hermes, ready to take messages."""

    options: AppOptions
    loaded: LoadedConfig
    profiles: AgentRegistry
    """The agents that are served, by id."""
    ledger: Ledger
    gateway: Gateway
    answers: ApprovalAnswers
    models: ModelRegistry
    tools: AgentTools
    environments: EnvironmentPool
    services: AgentServices
    owner: Owner
    clock: Clock
    settings: LiveSettings
    redactor: Redactor

    def agent(self, agent_id: str) -> AgentProfile:
        """Return a served agent; `NotFound` names those there are."""
        return self.gateway.profile(agent_id)

    def variable(self, name: str) -> str | None:
        """Return a variable as the agent of the running turn has it; else as the process does."""
        profile = current_profile()
        scope = profile.scope if profile is not None else None
        return self.loaded.variable(name) if scope is None else scope.variable(name)

    def commands(self) -> CommandHost:
        return CommandHost(
            gateway=self.gateway,
            answers=self.answers,
            controls=CoreControls(
                self.services,
                self.profiles,
                lambda agent, source: self.tools.registry(agent, source).specs(),
            ),
            version=__version__,
            saved_dir=self.options.home.sessions_dir / "saved",
            settings=self.settings,
            offers=self._offers,
            reload_mcp=self._reload_mcp,
            checkpoints=self.tools.checkpoints,
        )

    async def _reload_mcp(self) -> list[tuple[str, int, str]]:
        servers = self.tools.servers.of(current_profile() or self.profiles[DEFAULT_AGENT])
        await servers.reload()
        return servers.states()

    async def _offers(self) -> list[tuple[str, str, str]]:
        servers = await detect_servers(self.loaded.variables)
        found = offers(self.loaded, self.options.home, servers)
        return [(offer.provider, offer.model, offer.why) for offer in found]


@asynccontextmanager
async def open_app(options: AppOptions) -> AsyncIterator[App]:
    """Build everything, run it for the body of the `with`, and close it again."""
    loaded, profiles, trouble = _configured(options)
    redactor, clock = AgentRedactor(loaded.secrets), SystemClock()
    live = LiveSettings(in_force(loaded.config, options))
    async with AsyncExitStack() as stack:
        stack.enter_context(_logging(loaded, options, redactor, trouble))
        ledger = await stack.enter_async_context(open_ledger(options.home))
        owner = stack.enter_context(Owner.claim(options.home.run_dir))
        sources = ModelSources(settings=loaded.config, secret=loaded.variable)
        models = ModelRegistry(sources, options.home, options.environ, clock, general=live.general)
        stack.push_async_callback(models.close)
        environments = _environments(loaded, options, profiles, clock)
        stack.push_async_callback(environments.close)
        answers = ApprovalAnswers(ledger, clock)
        tools = AgentTools(
            ToolSources(
                options=options,
                ledger=ledger,
                models=models,
                answers=answers,
                settings=live,
                redact=redactor.redact,
                variable=loaded.variable,
                clock=clock,
            )
        )
        stack.push_async_callback(tools.close)
        services = AgentServices(
            ledger=ledger,
            environments=environments,
            models=models,
            tools=tools.for_turn,
            identity=FileIdentity(live),
            clock=clock,
            settings=live,
            redact=redactor.redact,
            redacting=lambda: RedactedStream(redactor.now()),
            read_attachment=read_attachment,
            load_context_files=not options.ignore_rules,
            private_workspace=partial(_private_workspace, backend_name(loaded, options), options),
        )
        gateway = _gateway(services, loaded, options, profiles, owner)
        async with gateway.running(), _beside(environments, gateway, tools.browsers, clock):
            yield App(
                options=options,
                loaded=loaded,
                profiles=profiles,
                ledger=ledger,
                gateway=gateway,
                answers=answers,
                models=models,
                tools=tools,
                environments=environments,
                services=services,
                owner=owner,
                clock=clock,
                settings=live,
                redactor=redactor,
            )


def _configured(options: AppOptions) -> tuple[LoadedConfig, AgentRegistry, list[str]]:
    """Read the configuration of a home and its agents, and say what is wrong with these."""
    loaded = with_private_files(options.configuration(), options.home)
    options.home.ensure()
    profiles = AgentRegistry(loaded, options)
    said = [] if options.home.ledger_beside.exists() else [not_imported(options.home)]
    if DEFAULT_AGENT in profiles:
        said += budget_warnings(loaded, options.home, profiles[DEFAULT_AGENT])
    said = [*filter(None, said), *profiles.warnings()]
    found = (*loaded.warnings, *backend_warnings(loaded, options), *said)
    return replace(loaded, warnings=found), profiles, said


def _private_workspace(backend: str, options: AppOptions, session: Session) -> bool:
    return has_private_workspace(backend, options, session.cwd or "")


@contextmanager
def _logging(
    loaded: LoadedConfig, options: AppOptions, redactor: Redactor, trouble: Sequence[str]
) -> Iterator[None]:
    """Log for the body of the `with`; first of all the trouble that is known already."""
    with configure_logging(options.home.logs_dir, loaded.config.logging, redactor):
        unattended = options.platform in UNATTENDED
        for warning in backend_warnings(loaded, options) if unattended else ():
            log.warning("%s", warning)
        for stall in new_stalls(options.home.run_dir):
            log.error("an earlier process was blocked and ended itself; it stood at:\n%s", stall)
        for each in trouble:
            log.warning("%s", each)
        yield


@asynccontextmanager
async def _beside(
    pool: EnvironmentPool, gateway: Gateway, browsers: Browsers, clock: Clock
) -> AsyncIterator[None]:
    """Run the background services for the body of the `with`."""
    services = (
        pool.keep_reaping,
        browsers.keep_closing,
        partial(pass_on_notices, pool, gateway, clock),
    )
    tasks = [asyncio.ensure_future(keep_running(service, clock)) for service in services]
    children = ChildTurns(gateway, gateway.group, pool)
    try:
        with gateway.doors.attached(children):
            yield
    finally:
        await children.close(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _environments(
    loaded: LoadedConfig, options: AppOptions, profiles: AgentRegistry, clock: Clock
) -> EnvironmentPool:
    known: dict[str, tuple[AgentProfile, EnvironmentSettings]] = {}

    def settings(agent_id: str) -> EnvironmentSettings:
        profile = profiles.of_turn(agent_id)
        if agent_id not in known or known[agent_id][0] is not profile:
            homes = [each.home for each in profiles.served.values() if each is not None]
            known[agent_id] = profile, environment_settings(loaded, options, profile, homes)
        return known[agent_id][1]

    return EnvironmentPool(settings, clock)


def _gateway(
    services: AgentServices,
    loaded: LoadedConfig,
    options: AppOptions,
    profiles: AgentRegistry,
    owner: Owner,
) -> Gateway:
    return Gateway(
        GatewayParts(
            ledger=services.ledger,
            runner=_runner(services, loaded, options),
            clock=services.clock,
            profiles=profiles,
            owner=owner.id,
            redact=services.redact,
            owner_alive=lambda other: owner_alive(other, options.home.run_dir),
            freshness=lambda: services.settings().agent.gateway_auto_continue_freshness,
            blocked_by=lambda other: blocked_by(other, options.home.run_dir),
            scope=KeyScope(
                group_per_user=loaded.config.group_sessions_per_user,
                thread_per_user=loaded.config.thread_sessions_per_user,
            ),
        )
    )


def _runner(
    services: AgentServices, loaded: LoadedConfig, options: AppOptions
) -> TurnRunner | MirroredRunner:
    runner = TurnRunner(services)
    if not loaded.config.sessions.write_jsonl:
        return runner
    mirror = TranscriptMirror(options.home.sessions_dir)
    return MirroredRunner(runner, services.ledger, mirror)
