"""Models for side tasks: titles, compression, approvals, vision.

A task uses the main model unless the configuration names another. Either way
it has its own time limit and few retries, because somebody waits for it or
nobody cares; it never uses the patience of a turn.
"""

import asyncio

from msgspec.structs import replace

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
from hermes.domain.settings.models import AuxiliaryTask
from hermes.models.client import ModelClient, RetryPolicy
from hermes.models.routes import ModelSources, ModelTarget, Route, resolve_route
from hermes.models.transport import Transport


class AuxiliaryModels:
    """Finds the model of a task; clients are made on first use and kept."""

    def __init__(
        self,
        main: Model,
        sources: ModelSources,
        *,
        clock: Clock,
        transport: Transport,
        main_routes: tuple[Route, ...] = (),
    ) -> None:
        self._main = main
        self._sources = sources
        self._settings = sources.settings.auxiliary
        self._clock = clock
        self._transport = transport
        self._main_routes = main_routes
        self._clients: dict[str, ModelClient] = {}

    def model(self, task: str) -> Model:
        """Return the model for `task`; `ConfigError` if its override cannot work."""
        settings = getattr(self._settings, task, AuxiliaryTask())
        return _TaskModel(self._inner(task, settings), task, settings)

    def _inner(self, task: str, settings: AuxiliaryTask) -> Model:
        own = settings.model or settings.base_url or settings.provider not in {"", "auto"}
        if not own and not self._main_routes:
            return self._main
        client = self._clients.get(task)
        if client is None:
            routes = self._main_routes
            if own:
                routes = (resolve_route(_target(settings), self._sources), *routes)
            client = self._clients[task] = ModelClient(
                routes,
                clock=self._clock,
                transport=self._transport,
                policy=RetryPolicy(
                    max_retries=self._settings.transient_retries,
                    base_delay=1.0,
                    max_delay=5.0,
                    max_retry_after=10.0,
                ),
            )
        return client


def _target(settings: AuxiliaryTask) -> ModelTarget:
    return ModelTarget(
        model=settings.model,
        provider=settings.provider,
        base_url=settings.base_url,
        api_key=settings.api_key,
        extra_body=dict(settings.extra_body),
    )


class _TaskModel:
    """Adds a task's name, effort and time limit to every call."""

    def __init__(self, inner: Model, task: str, settings: AuxiliaryTask) -> None:
        self._inner = inner
        self._task = task
        self._timeout = settings.timeout
        self._effort = settings.reasoning_effort or None

    @property
    def info(self) -> ModelInfo:
        return self._inner.info

    async def complete(
        self, request: ModelRequest, listener: CallListener | None = None
    ) -> ModelReply:
        """Make one call within the task's time."""
        if request.task == "turn":
            request = replace(request, task=self._task)
        if self._effort is not None and request.reasoning_effort is None:
            request = replace(request, reasoning_effort=self._effort)
        try:
            async with asyncio.timeout(self._timeout):
                return await self._inner.complete(request, listener)
        except TimeoutError as error:
            raise ModelFailure(
                FailureKind.TIMEOUT,
                f"The {self._task} task got no answer within {self._timeout:g} s.",
                hint=f"Raise `auxiliary.{self._task}.timeout`, or choose a faster model there.",
                provider=self.info.provider,
            ) from error

    async def close(self) -> None:
        """Leave the connections to their owner."""
