"""Models for side tasks: titles, compression, approvals, vision.

A task uses the main model unless the configuration names another. Either way
it has its own time limit and few retries, because somebody waits for it or
nobody cares; it never uses the patience of a turn.
"""

import asyncio
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from msgspec import Struct
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
from hermes.models.client import ModelClient
from hermes.models.routes import Route, RouteBook, resolve_route
from hermes.models.settings import ModelTarget, RetryPolicy
from hermes.models.transport import Transport

TASK_TIMEOUTS: Final = MappingProxyType(
    {
        "vision": 120.0,
        "web_extract": 360.0,
        "compression": 120.0,
        "skills_hub": 30.0,
        "approval": 30.0,
        "mcp": 30.0,
        "title_generation": 30.0,
        "memory_query_rewrite": 8.0,
        "goal_judge": 60.0,
        "curator": 600.0,
        "monitor": 60.0,
        "background_review": 120.0,
    }
)
_DEFAULT_TIMEOUT = 60.0


class TaskSettings(Struct, frozen=True, kw_only=True):
    """One task of `auxiliary:` in the configuration."""

    target: ModelTarget | None = None
    """None: the main model."""
    timeout: float | None = None
    reasoning_effort: str | None = None


class AuxiliarySettings(Struct, frozen=True, kw_only=True):
    """All of `auxiliary:` in the configuration."""

    tasks: Mapping[str, TaskSettings] = {}
    transient_retries: int = 2


class AuxiliaryModels:
    """Finds the model of a task; clients are made on first use and kept."""

    def __init__(
        self,
        main: Callable[[], Model],
        book: RouteBook,
        *,
        clock: Clock,
        transport: Transport,
        settings: AuxiliarySettings | None = None,
        main_routes: tuple[Route, ...] = (),
    ) -> None:
        self._main = main
        self._book = book
        self._clock = clock
        self._transport = transport
        settings = settings or AuxiliarySettings()
        self._tasks = settings.tasks
        self._main_routes = main_routes
        self._policy = RetryPolicy(
            max_retries=settings.transient_retries,
            base_delay=1.0,
            max_delay=5.0,
            max_retry_after=10.0,
        )
        self._clients: dict[str, ModelClient] = {}

    def model(self, task: str) -> Model:
        """Return the model for `task`; `ConfigError` if its override cannot work."""
        settings = self._tasks.get(task) or TaskSettings()
        timeout = settings.timeout or TASK_TIMEOUTS.get(task, _DEFAULT_TIMEOUT)
        return _TaskModel(self._inner(task, settings), task, timeout, settings.reasoning_effort)

    async def close(self) -> None:
        clients, self._clients = self._clients, {}
        for client in clients.values():
            await client.close()

    def _inner(self, task: str, settings: TaskSettings) -> Model:
        if settings.target is None and not self._main_routes:
            return self._main()
        client = self._clients.get(task)
        if client is None:
            routes = self._main_routes
            if settings.target is not None:
                routes = (resolve_route(settings.target, self._book), *self._main_routes)
            client = self._clients[task] = ModelClient(
                routes, clock=self._clock, transport=self._transport, policy=self._policy
            )
        return client


class _TaskModel:
    """Adds a task's name, effort and time limit to every call."""

    def __init__(self, inner: Model, task: str, timeout: float, effort: str | None) -> None:
        self._inner = inner
        self._task = task
        self._timeout = timeout
        self._effort = effort

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
