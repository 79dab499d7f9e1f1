"""The API server, put together from a running app."""

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

import msgspec

from hermes import __version__
from hermes.agent.side_calls import PlainCalls
from hermes.agent.tools.toolsets import tools_by_toolset
from hermes.app.access import platform_section
from hermes.app.build import App
from hermes.app.doors import DoorContext
from hermes.app.media import PictureShelf
from hermes.app.options import AppOptions
from hermes.app.skills import skill_cards
from hermes.config.loader import LoadedConfig
from hermes.control.jobs.schedules import zone_named
from hermes.control.runs.runs import PLATFORM, RunDesk, RunSettings
from hermes.control.supervision.health import GatewayPhase
from hermes.control.supervision.liveness import AdapterHealth, AdapterState
from hermes.control.supervision.metrics import TurnMetrics
from hermes.domain.errors import HermesError
from hermes.domain.events import TurnStream
from hermes.domain.inbound import InboxEntry
from hermes.domain.messages import Message
from hermes.domain.ports.files import JobStore
from hermes.domain.ports.model import ModelReply
from hermes.domain.profile import DEFAULT_AGENT_NAMES
from hermes.entry.http.api import all_endpoints
from hermes.entry.http.api.responses import forget_unstored
from hermes.entry.http.app import build_app
from hermes.entry.http.auth import KeyRing
from hermes.entry.http.context import AgentCard, HttpParts, ToolsetCard
from hermes.entry.http.server import HttpServer
from hermes.entry.http.settings import acceptable_keys, http_settings
from hermes.observability.metrics import Registry
from hermes.state.jobs import JobFiles

__all__ = ["ApiDoor", "check", "open_door"]

log = logging.getLogger(__name__)

FORGET_EVERY_SECONDS = 3600.0


def check(loaded: LoadedConfig, _options: AppOptions) -> None:
    """Raise `ConfigError` if the API server cannot work as configured."""
    http_settings(platform_section(loaded, PLATFORM))


def open_door(context: DoorContext) -> "ApiDoor":
    """Return the API server of a gateway; it does not listen yet."""
    return ApiDoor(context)


class ApiDoor:
    """Serves the API until it is closed."""

    platform = PLATFORM

    def __init__(self, context: DoorContext) -> None:
        app = context.app
        self._context = context
        self._app = app
        self._settings = http_settings(platform_section(app.loaded, PLATFORM))
        self._metrics = Registry()
        self._turn_metrics = TurnMetrics(self._metrics, app.clock)
        self.runs = RunDesk(
            app.ledger,
            app.gateway,
            app.clock,
            context.group,
            redact=app.services.redact,
            settings=RunSettings(max_open=app.loaded.config.gateway.api_server.max_concurrent_runs),
        )
        keys = KeyRing(app.ledger, app.clock, self._owner_keys)
        self._server = HttpServer(
            build_app(all_endpoints(), self._parts(), self._settings, keys),
            self._settings.host,
            self._settings.port,
            grace_seconds=self._settings.grace_seconds,
        )
        self._serving: asyncio.Task[None] | None = None
        self._since = app.clock.now()

    def on_turn(self, stream: TurnStream, entry: InboxEntry | None) -> None:
        """Hear of every turn: those of runs are followed, all are counted."""
        self.runs.on_turn(stream, entry)
        self._turn_metrics.on_turn(stream, entry)

    async def before_recovery(self) -> None:
        """Look out for runs that an earlier process left open."""
        await self.runs.watch_open()

    async def after_recovery(self) -> None:
        """Close runs whose turn is over, stay with the others."""
        await self.runs.settle()

    def services(self) -> Sequence[Coroutine[Any, Any, None]]:
        """Return what runs beside the server."""
        return (self.runs.keep_tidy(), self._keep_forgetting())

    async def _keep_forgetting(self) -> None:
        """Now and then delete responses that nobody wants stored, until cancelled."""
        while True:
            try:
                await forget_unstored(self._app.ledger, self._app.clock.now())
            except HermesError as error:
                log.warning("unstored responses could not be deleted: %s", error.message)
            await self._app.clock.sleep(FORGET_EVERY_SECONDS)

    async def listen(self) -> None:
        """Start taking requests; raise if the port cannot be had."""
        await self._server.bind()
        self._serving = self._context.group.create_task(self._server.run(), name="api server")
        await self._server.started.wait()
        self._since = self._app.clock.now()
        log.info("the API is at http://%s:%d/v1", self._settings.host, self._server.port)

    def drain(self) -> None:
        """Take no new runs."""
        self.runs.drain()

    async def close(self, seconds: float) -> None:
        """Stop listening; what has not begun is kept for the next start."""
        self.runs.suspend()
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.wait([self._serving], timeout=seconds + self._settings.grace_seconds)

    def health(self) -> AdapterHealth:
        """Say whether it listens."""
        serving = self._serving is not None and not self._serving.done()
        idle = AdapterState.CONNECTING if self._serving is None else AdapterState.STOPPED
        return AdapterHealth(
            name=PLATFORM,
            state=AdapterState.CONNECTED if serving else idle,
            since=self._since,
            account=f"{self._settings.host}:{self._server.port}",
            last_alive=self._app.clock.now() if serving else None,
        )

    # -- parts -----------------------------------------------------------------

    def _owner_keys(self) -> tuple[str, ...]:
        """Return the configured keys as they are now: a changed file counts at once."""
        return acceptable_keys(platform_section(self._app.loaded, PLATFORM), self._settings.host)

    def _parts(self) -> HttpParts:
        app, options = self._app, self._context.options
        profile = app.profile
        card = AgentCard(
            agent_id=profile.id,
            name=self._settings.model_name or DEFAULT_AGENT_NAMES[0],
            aliases=DEFAULT_AGENT_NAMES,
            model=profile.model,
            provider=profile.provider,
        )
        jobs = JobFiles(options.home.root / "cron")
        return HttpParts(
            ledger=app.ledger,
            gateway=app.gateway,
            desk=app.desk,
            runs=self.runs,
            clock=app.clock,
            agents=(card,),
            side_calls=_SideCalls(app),
            media=PictureShelf(options.home.cache_dir / "media" / PLATFORM),
            jobs=lambda _agent: _job_store(jobs),
            toolsets=lambda _agent: _toolsets(app),
            skills=lambda _agent: skill_cards(options.home.skills_dir),
            metrics=self._metrics,
            gateway_state=self._gateway_state,
            ready=self._ready,
            redact=app.services.redact,
            version=__version__,
            zone=zone_named(app.loaded.config.timezone),
            helper_patterns=self._settings.helper_patterns,
        )

    def _gateway_state(self) -> Mapping[str, Any]:
        state: dict[str, Any] = msgspec.to_builtins(self._context.board.current())
        return state

    def _ready(self) -> Mapping[str, bool]:
        running = self._context.board.state.gateway_state == GatewayPhase.RUNNING.value
        return {"gateway": running, "accepting": not self.runs.draining}


class _SideCalls:
    """Hands side calls to the agent they are for."""

    def __init__(self, app: App) -> None:
        self._calls = {app.profile.id: PlainCalls(app.services, app.profile)}

    async def answer(
        self, agent_id: str, task: str, messages: tuple[Message, ...], max_tokens: int | None
    ) -> ModelReply:
        """Answer with the cheap model of an agent."""
        return await self._calls[agent_id].answer(task, messages, max_tokens)


def _job_store(jobs: JobFiles) -> JobStore:
    return jobs


def _toolsets(app: App) -> tuple[ToolsetCard, ...]:
    specs = app.tools.registry(app.profile, PLATFORM).specs()
    sets = tools_by_toolset({spec.name: spec.toolset for spec in specs})
    return tuple(
        ToolsetCard(name=name, enabled=bool(tools), tools=tuple(sorted(tools)))
        for name, tools in sorted(sets.items())
    )
