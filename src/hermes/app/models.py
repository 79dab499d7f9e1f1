"""The models of this process: resolved on first use, then shared and kept open."""

import logging

import msgspec

from hermes.agent.llm.client import ModelClient
from hermes.agent.llm.routes import Route, RouteBook, resolve_route
from hermes.agent.llm.settings import ModelTarget, RetryPolicy
from hermes.agent.llm.transport import Transport
from hermes.app.settings import (
    auxiliary_task,
    fallback_targets,
    main_target,
    retry_policy,
    route_book,
)
from hermes.config.loader import LoadedConfig
from hermes.domain.errors import ConfigError
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.model import Model
from hermes.domain.profile import AgentProfile
from hermes.domain.session import Session

__all__ = ["MODEL_OVERRIDE", "ModelShelf"]

log = logging.getLogger(__name__)

MODEL_OVERRIDE = "model_override"
"""Where a session remembers a model chosen for it alone: `{provider, model}`."""


class ModelShelf:
    """Hands out model clients; all of them share one connection pool."""

    def __init__(self, loaded: LoadedConfig, clock: Clock) -> None:
        self._loaded = loaded
        self._clock = clock
        self._book: RouteBook = route_book(loaded)
        self._transport = Transport()
        self._clients: dict[bytes, Model] = {}

    def main(self, profile: AgentProfile, session: Session) -> Model:
        """Return the model that answers turns of `session`."""
        override = session.state.get(MODEL_OVERRIDE) or {}
        provider = override.get("provider", profile.provider)
        model = override.get("model", profile.model)
        target = main_target(self._loaded, provider, model)
        return self._client(target, retry_policy(self._loaded.config), fallbacks=True)

    def auxiliary(self, task: str, profile: AgentProfile, session: Session) -> Model:
        """Return the model for a side task such as `title_generation`."""
        config = self._loaded.config
        chosen = auxiliary_task(config, task)
        if chosen.provider in {"", "auto"} and not chosen.model and not chosen.base_url:
            return self.main(profile, session)
        target = ModelTarget(
            model=chosen.model or profile.model,
            provider="" if chosen.provider == "auto" else chosen.provider,
            base_url=chosen.base_url,
            api_key=chosen.api_key,
            extra_body=dict(chosen.extra_body),
        )
        policy = RetryPolicy(max_retries=config.auxiliary.transient_retries, base_delay=1.0)
        return self._client(target, policy, fallbacks=False)

    async def close(self) -> None:
        """Close all connections."""
        await self._transport.close()

    def _client(self, target: ModelTarget, policy: RetryPolicy, *, fallbacks: bool) -> Model:
        key = msgspec.json.encode(target)
        found = self._clients.get(key)
        if found is None:
            found = self._clients[key] = ModelClient(
                self._routes(target, fallbacks=fallbacks),
                clock=self._clock,
                transport=self._transport,
                policy=policy,
            )
        return found

    def _routes(self, target: ModelTarget, *, fallbacks: bool) -> list[Route]:
        routes = [resolve_route(target, self._book)]
        for each in fallback_targets(self._loaded.config) if fallbacks else ():
            try:
                routes.append(resolve_route(each, self._book))
            except ConfigError as error:
                log.warning("fallback %s is left out: %s", each.provider, error.message)
        return routes
