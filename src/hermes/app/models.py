"""The models of this process: resolved on first use, then shared and kept open."""

import logging
from collections.abc import Sequence

import msgspec

from hermes.app.options import AppOptions
from hermes.app.settings import fallback_targets, main_target, retry_policy, route_book
from hermes.config.loader import LoadedConfig
from hermes.config.proxies import proxy_for
from hermes.domain.errors import ConfigError
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.model import Model
from hermes.domain.profile import AgentProfile
from hermes.domain.session import Session
from hermes.domain.settings import Settings
from hermes.domain.settings.models import AuxiliaryTask
from hermes.domain.tools import ToolSpec
from hermes.models.auxiliary import AuxiliaryModels, AuxiliarySettings, TaskSettings
from hermes.models.client import ModelClient
from hermes.models.encode_common import LoweredCache
from hermes.models.local.embedded import EmbeddedModel
from hermes.models.local.files import PROVIDER
from hermes.models.local.supervisor import Progress
from hermes.models.routes import Route, RouteBook, resolve_route
from hermes.models.settings import ModelTarget
from hermes.models.transport import Transport

__all__ = ["MODEL_OVERRIDE", "ModelShelf"]

log = logging.getLogger(__name__)

MODEL_OVERRIDE = "model_override"
"""Where a session remembers a model chosen for it alone: `{provider, model}`."""


class _Shelved(msgspec.Struct, frozen=True):
    """A main model and the side-task models that go with it."""

    main: ModelClient | EmbeddedModel
    auxiliary: AuxiliaryModels


class ModelShelf:
    """Hands out models; all clients share one connection pool and one encoding cache."""

    def __init__(self, loaded: LoadedConfig, options: AppOptions, clock: Clock) -> None:
        self._loaded = loaded
        self._options = options
        self._clock = clock
        self._book: RouteBook = route_book(loaded)
        self._transport = Transport(lambda url: proxy_for(url, options.environ))
        self._lowered = LoweredCache()
        self._shelf: dict[bytes, _Shelved] = {}

    def main(self, profile: AgentProfile, session: Session) -> Model:
        """Return the model that answers turns of `session`."""
        return self._shelved(profile, session).main

    def auxiliary(self, task: str, profile: AgentProfile, session: Session) -> Model:
        """Return the model for a side task such as `title_generation`."""
        return self._shelved(profile, session).auxiliary.model(task)

    async def start(
        self, profile: AgentProfile, tools: Sequence[ToolSpec], progress: Progress | None = None
    ) -> None:
        """Load what the first call of a new session would otherwise wait for."""
        session = Session(id="", agent_id=profile.id, source="", started_at=0.0, updated_at=0.0)
        main = self._shelved(profile, session).main
        if isinstance(main, EmbeddedModel):
            await main.start(tools, progress)
        else:
            await main.warm()

    async def warm(self, profile: AgentProfile) -> None:
        """Load the libraries that the first call needs; a model of our own stays asleep."""
        session = Session(id="", agent_id=profile.id, source="", started_at=0.0, updated_at=0.0)
        main = self._shelved(profile, session).main
        if not isinstance(main, EmbeddedModel):
            await main.warm()

    async def close(self) -> None:
        """Close all connections."""
        await self._transport.close()

    def _shelved(self, profile: AgentProfile, session: Session) -> _Shelved:
        override = session.state.get(MODEL_OVERRIDE) or {}
        target = main_target(
            self._loaded,
            override.get("provider", profile.provider),
            override.get("model", profile.model),
        )
        key = msgspec.json.encode(target)
        found = self._shelf.get(key)
        if found is None:
            found = self._shelf[key] = self._open(target)
        return found

    def _open(self, target: ModelTarget) -> _Shelved:
        config = self._loaded.config
        main: ModelClient | EmbeddedModel
        if target.provider == PROVIDER:
            routes: list[Route] = []
            main = EmbeddedModel(
                target.model,
                self._options.home,
                book=self._book,
                transport=self._transport,
                clock=self._clock,
                environ=self._options.environ,
            )
        else:
            routes = self._routes(target)
            main = ModelClient(
                routes,
                clock=self._clock,
                transport=self._transport,
                policy=retry_policy(config),
                cache=self._lowered,
            )
        auxiliary = AuxiliaryModels(
            lambda: main,
            self._book,
            clock=self._clock,
            transport=self._transport,
            settings=auxiliary_settings(config),
            main_routes=tuple(routes),
        )
        return _Shelved(main, auxiliary)

    def _routes(self, target: ModelTarget) -> list[Route]:
        routes = [resolve_route(target, self._book)]
        for each in fallback_targets(self._loaded.config):
            try:
                routes.append(resolve_route(each, self._book))
            except ConfigError as error:
                log.warning("fallback %s is left out: %s", each.provider, error.message)
        return routes


def auxiliary_settings(config: Settings) -> AuxiliarySettings:
    """Return what the configuration says about side tasks."""
    names = (field.name for field in msgspec.structs.fields(config.auxiliary))
    tasks = {name: getattr(config.auxiliary, name) for name in names}
    return AuxiliarySettings(
        tasks={name: _task(t) for name, t in tasks.items() if isinstance(t, AuxiliaryTask)},
        transient_retries=config.auxiliary.transient_retries,
    )


def _task(task: AuxiliaryTask) -> TaskSettings:
    target = None
    if task.model or task.base_url or task.provider not in {"", "auto"}:
        target = ModelTarget(
            model=task.model,
            provider="" if task.provider == "auto" else task.provider,
            base_url=task.base_url,
            api_key=task.api_key,
            extra_body=dict(task.extra_body),
        )
    return TaskSettings(
        target=target, timeout=task.timeout, reasoning_effort=task.reasoning_effort or None
    )
