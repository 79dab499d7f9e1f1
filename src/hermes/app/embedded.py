"""The embedded model as a `Model`: its own process, found or started for each call."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from hermes.config.paths import HermesHome
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.model import CallListener, ModelInfo, ModelReply, ModelRequest
from hermes.domain.tools import ToolSpec
from hermes.execution.local_model.files import PROVIDER, find_local
from hermes.execution.local_model.profile import profile_for
from hermes.execution.local_model.supervisor import Endpoint, Progress, ensure_running
from hermes.execution.local_model.warm import warm
from hermes.models.client import ModelClient
from hermes.models.routes import RouteBook, resolve_route
from hermes.models.settings import ModelTarget
from hermes.models.transport import Transport

__all__ = ["PROVIDER", "EmbeddedModel"]


class EmbeddedModel:
    """Answers with a GGUF model that runs on this machine."""

    def __init__(
        self,
        name: str,
        home: HermesHome,
        *,
        book: RouteBook,
        transport: Transport,
        clock: Clock,
        environ: Mapping[str, str],
    ) -> None:
        self._home = home
        self._model = find_local(home, name)
        self._profile = profile_for(self._model)
        self._book = book
        self._transport = transport
        self._clock = clock
        self._environ = environ
        self._clients: dict[Endpoint, ModelClient] = {}

    @property
    def info(self) -> ModelInfo:
        """What is known about the model."""
        return ModelInfo(
            provider=PROVIDER,
            model=self._model.name,
            context_window=self._profile.n_ctx,
            max_output=self._profile.max_tokens,
            own_prompt=self._profile.system,
            own_tools=self._profile.tools,
            can_title=self._profile.titles,
        )

    async def start(self, tools: Sequence[ToolSpec], progress: Progress | None = None) -> None:
        """Have the model loaded and its prompt read before the first question."""
        endpoint = await self._running(progress)
        if self._profile.system:
            wanted = self._profile.tools
            offered = [spec for spec in tools if wanted is None or spec.name in wanted]
            await warm(endpoint, self._profile.system, offered)

    async def complete(
        self, request: ModelRequest, listener: CallListener | None = None
    ) -> ModelReply:
        """Make one call; a server that went idle meanwhile is started again."""
        client = self._client(await self._running())
        if self._profile.system:
            request = replace(request, ephemeral="", temperature=self._profile.temperature)
        reply = await client.complete(request, listener)
        return replace(reply, provider=PROVIDER, model=self._model.name, cost_usd=0.0)

    async def close(self) -> None:
        """Leave the server running for the next process; it ends by itself when idle."""

    async def _running(self, progress: Progress | None = None) -> Endpoint:
        return await ensure_running(self._model, self._home, progress, env=self._environ)

    def _client(self, endpoint: Endpoint) -> ModelClient:
        found = self._clients.get(endpoint)
        if found is None:
            target = ModelTarget(
                model=endpoint.model,
                provider="custom",
                base_url=endpoint.base_url,
                api_key=endpoint.api_key,
                context_length=endpoint.context_length,
                max_tokens=self._profile.max_tokens,
            )
            route = resolve_route(target, self._book)
            self._clients = {
                endpoint: ModelClient([route], clock=self._clock, transport=self._transport)
            }
            found = self._clients[endpoint]
        return found
