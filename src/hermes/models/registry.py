"""The models of this process: resolved on first use, then shared and kept open."""

import logging
from collections.abc import Mapping, Sequence

import msgspec

from hermes.config.paths import HermesHome
from hermes.config.proxies import proxy_for
from hermes.domain.errors import ConfigError
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.model import Model
from hermes.domain.profile import AgentProfile
from hermes.domain.session import Session
from hermes.domain.tools import ToolSpec
from hermes.models.auxiliary import AuxiliaryModels
from hermes.models.client import ModelClient, RetryPolicy
from hermes.models.encode_common import LoweredCache
from hermes.models.local.embedded import EmbeddedModel
from hermes.models.local.files import PROVIDER
from hermes.models.local.supervisor import Progress
from hermes.models.routes import (
    ModelSources,
    ModelTarget,
    Route,
    fallback_target,
    main_target,
    resolve_route,
)
from hermes.models.transport import Transport

log = logging.getLogger(__name__)

MODEL_OVERRIDE = "model_override"
"""Where a session remembers a model chosen for it alone: `{provider, model}`."""


class _Opened(msgspec.Struct, frozen=True):
    """A main model and the side-task models that go with it."""

    main: ModelClient | EmbeddedModel
    auxiliary: AuxiliaryModels


class ModelRegistry:
    """Hands out models; all clients share one connection pool and one encoding cache."""

    def __init__(
        self, sources: ModelSources, home: HermesHome, environ: Mapping[str, str], clock: Clock
    ) -> None:
        self._sources = sources
        self._home = home
        self._environ = environ
        self._clock = clock
        self._transport = Transport(lambda url: proxy_for(url, environ))
        self._lowered = LoweredCache()
        self._opened: dict[bytes, _Opened] = {}

    def main(self, profile: AgentProfile, session: Session) -> Model:
        """Return the model that answers turns of `session`."""
        return self._open(profile, session.state.get(MODEL_OVERRIDE) or {}).main

    def auxiliary(self, task: str, profile: AgentProfile, session: Session) -> Model:
        """Return the model for a side task such as `title_generation`."""
        return self._open(profile, session.state.get(MODEL_OVERRIDE) or {}).auxiliary.model(task)

    async def start(
        self, profile: AgentProfile, tools: Sequence[ToolSpec], progress: Progress | None = None
    ) -> None:
        """Load what the first call of a new session would otherwise wait for."""
        main = self._open(profile, {}).main
        if isinstance(main, EmbeddedModel):
            await main.start(tools, progress)
        else:
            await main.warm()

    async def warm(self, profile: AgentProfile) -> None:
        """Load the libraries that the first call needs; a model of our own stays asleep."""
        main = self._open(profile, {}).main
        if not isinstance(main, EmbeddedModel):
            await main.warm()

    async def close(self) -> None:
        await self._transport.close()

    def _open(self, profile: AgentProfile, override: Mapping[str, str]) -> _Opened:
        target = main_target(
            self._sources.settings,
            override.get("provider", profile.provider),
            override.get("model", profile.model),
        )
        key = msgspec.json.encode(target)
        found = self._opened.get(key)
        if found is None:
            found = self._opened[key] = self._new(target)
        return found

    def _new(self, target: ModelTarget) -> _Opened:
        main: ModelClient | EmbeddedModel
        if target.provider == PROVIDER:
            routes: list[Route] = []
            main = EmbeddedModel(
                target.model,
                self._home,
                sources=self._sources,
                transport=self._transport,
                clock=self._clock,
                environ=self._environ,
            )
        else:
            routes = self._routes(target)
            main = ModelClient(
                routes,
                clock=self._clock,
                transport=self._transport,
                policy=RetryPolicy(max_retries=self._sources.settings.agent.api_max_retries),
                cache=self._lowered,
            )
        auxiliary = AuxiliaryModels(
            main,
            self._sources,
            clock=self._clock,
            transport=self._transport,
            main_routes=tuple(routes),
        )
        return _Opened(main, auxiliary)

    def _routes(self, target: ModelTarget) -> list[Route]:
        routes = [resolve_route(target, self._sources)]
        for entry in self._sources.settings.fallback_providers:
            try:
                fallback = fallback_target(entry, self._sources.settings)
                routes.append(resolve_route(fallback, self._sources))
            except ConfigError as error:
                log.warning("fallback %s is left out: %s", entry.provider, error.message)
        return routes
