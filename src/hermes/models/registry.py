"""The models of this process: resolved on first use, then shared and kept open.

A session has a main model and models for side tasks (titles, compression,
approvals). A task uses the main model unless the configuration names another.
Either way it has its own time limit and few retries, not those of a turn.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from weakref import WeakKeyDictionary

import msgspec
from msgspec.structs import replace

from hermes.config.environment import proxy_for
from hermes.config.paths import HermesHome
from hermes.domain.errors import ConfigError
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.model import (
    CallListener,
    FailureKind,
    Model,
    ModelFailure,
    ModelInfo,
    ModelReply,
    ModelRequest,
)
from hermes.domain.profile import AgentProfile, AgentScope
from hermes.domain.session import MODEL_OVERRIDE, Session
from hermes.domain.settings import Settings
from hermes.domain.settings.models import AuxiliaryTask, Transcription
from hermes.domain.tools import ToolSpec
from hermes.models.client import ModelClient, RetryPolicy, RouteRests
from hermes.models.encode_common import LoweredCache
from hermes.models.local.embedded import EmbeddedModel
from hermes.models.local.files import PROVIDER
from hermes.models.local.server import Progress
from hermes.models.routes import (
    ModelRoute,
    ModelSources,
    ModelTarget,
    fallback_target,
    main_target,
    resolve_route,
    target_of,
)
from hermes.models.transcription import Transcriber
from hermes.models.transport import Transport


class AuxiliaryModels(msgspec.Struct, frozen=True):
    """A main model and the models of its side tasks; clients are made on first use and kept."""

    main: Model
    sources: ModelSources
    clock: Clock
    transport: Transport
    rests: RouteRests | None = None
    main_routes: tuple[ModelRoute, ...] = ()
    clients: dict[str, ModelClient] = msgspec.field(default_factory=dict)

    def model(self, task: str) -> Model:
        """Return the model for `task`; `ConfigError` if its override cannot work."""
        settings = getattr(self.sources.settings.auxiliary, task, AuxiliaryTask())
        return _TaskModel(self._inner(task, settings), task, settings)

    def _inner(self, task: str, settings: AuxiliaryTask) -> Model:
        own = settings.model or settings.base_url or settings.provider not in {"", "auto"}
        if not own and not self.main_routes:
            return self.main
        client = self.clients.get(task)
        if client is None:
            routes = self.main_routes
            if own:
                target = target_of(settings, extra_body=settings.extra_body)
                routes = (resolve_route(target, self.sources), *routes)
            client = self.clients[task] = ModelClient(
                routes,
                clock=self.clock,
                transport=self.transport,
                rests=self.rests,
                policy=RetryPolicy(
                    max_retries=self.sources.settings.auxiliary.transient_retries,
                    base_delay=1.0,
                    max_delay=5.0,
                    max_retry_after=10.0,
                ),
            )
        return client


class _TaskModel(msgspec.Struct, frozen=True):
    """Adds a task's name, effort and time limit to every call."""

    inner: Model
    task: str
    settings: AuxiliaryTask

    @property
    def info(self) -> ModelInfo:
        return self.inner.info

    async def complete(
        self, request: ModelRequest, listener: CallListener | None = None
    ) -> ModelReply:
        task, seconds = self.task, self.settings.timeout
        if request.task == "turn":
            request = replace(request, task=task)
        if self.settings.reasoning_effort:
            request = replace(request, reasoning_effort=self.settings.reasoning_effort)
        try:
            async with asyncio.timeout(seconds):
                return await self.inner.complete(request, listener)
        except TimeoutError as error:
            raise ModelFailure(
                FailureKind.TIMEOUT,
                f"The {task} task got no answer within {seconds:g} s.",
                hint=f"Raise `auxiliary.{task}.timeout`, or choose a faster model there.",
                provider=self.info.provider,
            ) from error


log = logging.getLogger(__name__)


class _AgentModels(msgspec.Struct, frozen=True):
    """Where an agent's keys come from, its models, and what of them failed: none has another's."""

    sources: ModelSources
    rests: RouteRests
    opened: dict[bytes, AuxiliaryModels] = msgspec.field(default_factory=dict)


class ModelRegistry:
    """Opens models; all clients share one connection pool and one encoding cache."""

    def __init__(
        self,
        sources: ModelSources,
        home: HermesHome,
        environ: Mapping[str, str],
        clock: Clock,
        *,
        general: Callable[[], Settings] | None = None,
    ) -> None:
        """`general` are the settings in force, over which agents lay their own."""
        self._general = general or (lambda: sources.settings)
        self._home = home
        self._environ = environ
        self._clock = clock
        self._transport = Transport(lambda url: proxy_for(url, environ))
        self._lowered = LoweredCache()
        self._own = _AgentModels(sources, RouteRests(clock))
        self._of_agents: WeakKeyDictionary[AgentScope, _AgentModels] = WeakKeyDictionary()

    def main(self, profile: AgentProfile, session: Session | None) -> Model:
        chosen = session.state.get(MODEL_OVERRIDE) if session is not None else None
        main = self._open(profile, chosen or {}).main
        return main.for_turn() if isinstance(main, ModelClient) else main

    def auxiliary(self, task: str, profile: AgentProfile, session: Session) -> Model:
        return self._open(profile, session.state.get(MODEL_OVERRIDE) or {}).model(task)

    async def start(
        self, profile: AgentProfile, tools: Sequence[ToolSpec], progress: Progress | None = None
    ) -> None:
        """Load what the first call of a new session would otherwise wait for."""
        main = self._open(profile, {}).main
        if isinstance(main, EmbeddedModel):
            await main.start(tools, progress)
        await self.warm(profile)

    async def warm(self, profile: AgentProfile) -> None:
        """Load the libraries that the first call needs; an embedded model is not started."""
        main = self._open(profile, {}).main
        if isinstance(main, ModelClient):
            await main.warm()

    def transcriber(
        self, settings: Callable[[], Transcription], variable: Callable[[str], str | None]
    ) -> Transcriber:
        return Transcriber(self._transport, settings, variable, self._clock)

    async def close(self) -> None:
        await self._transport.close()

    def _open(self, profile: AgentProfile, override: Mapping[str, str]) -> AuxiliaryModels:
        own = self._scope(profile)
        target = main_target(
            own.sources.settings,
            override.get("provider", profile.provider),
            override.get("model", profile.model),
        )
        key = msgspec.json.encode(target)
        found = own.opened.get(key)
        if found is None:
            found = own.opened[key] = self._new(target, own)
        return found

    def _scope(self, profile: AgentProfile) -> _AgentModels:
        scope = profile.scope
        if scope is None:
            return self._own
        found = self._of_agents.get(scope)
        if found is None:
            settings = scope.settings(self._general())
            sources = ModelSources(
                settings=settings, secret=scope.variable, env_file=scope.env_file
            )
            found = self._of_agents[scope] = _AgentModels(sources, RouteRests(self._clock))
        return found

    def _new(self, target: ModelTarget, own: _AgentModels) -> AuxiliaryModels:
        main: Model
        sources = own.sources
        if target.provider == PROVIDER:
            routes: list[ModelRoute] = []
            client = partial(self._client, sources)
            main = EmbeddedModel(target.model, self._home, client, self._environ)
        else:
            routes = _routes(target, sources)
            main = ModelClient(
                routes,
                clock=self._clock,
                transport=self._transport,
                policy=RetryPolicy(max_retries=sources.settings.agent.api_max_retries),
                cache=self._lowered,
                rests=own.rests,
            )
        return AuxiliaryModels(
            main,
            sources,
            clock=self._clock,
            transport=self._transport,
            rests=own.rests,
            main_routes=tuple(routes),
        )

    def _client(self, sources: ModelSources, target: ModelTarget) -> ModelClient:
        route = resolve_route(target, sources)
        return ModelClient([route], clock=self._clock, transport=self._transport)


def _routes(target: ModelTarget, sources: ModelSources) -> list[ModelRoute]:
    routes = [resolve_route(target, sources)]
    for entry in sources.settings.fallback_providers:
        try:
            fallback = fallback_target(entry, sources.settings)
            routes.append(resolve_route(fallback, sources))
        except ConfigError as error:
            log.warning("fallback %s is left out: %s", entry.provider, error.message)
    return routes
