"""The embedded model as a `Model`: served by a process of its own, started when needed.

Calls go to the engine's own port like those to any other local server. For a
very small model the request is rewritten first and its answer read back, see
`call_forms`.
"""

import contextlib
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from hermes.config.paths import HermesHome
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.model import (
    CallListener,
    ModelFailure,
    ModelInfo,
    ModelReply,
    ModelRequest,
)
from hermes.domain.tools import ToolSpec
from hermes.models.client import ModelClient
from hermes.models.local.call_forms import HiddenForms, called, constrain
from hermes.models.local.files import PROVIDER, find_local, profile_for
from hermes.models.local.supervisor import Progress, ensure_running
from hermes.models.routes import ModelSources, ModelTarget, resolve_route
from hermes.models.transport import Transport


class EmbeddedModel:
    def __init__(
        self,
        name: str,
        home: HermesHome,
        *,
        sources: ModelSources,
        transport: Transport,
        clock: Clock,
        environ: Mapping[str, str],
    ) -> None:
        self._home = home
        self._model = find_local(home, name)
        self._profile = profile_for(self._model)
        self._sources = sources
        self._transport = transport
        self._clock = clock
        self._environ = environ

    @property
    def info(self) -> ModelInfo:
        profile = self._profile
        return ModelInfo(
            provider=PROVIDER,
            model=self._model.name,
            context_window=profile.n_ctx,
            max_output=profile.max_tokens,
            own_prompt=profile.system,
            own_tools=profile.tools,
            can_title=not profile.constrained,
        )

    async def start(self, tools: Sequence[ToolSpec], progress: Progress | None = None) -> None:
        """Load the model and let it read its prompt before the first question.

        The engine keeps what it has read: a first real request starts from there.
        """
        await ensure_running(self._model, self._home, progress, env=self._environ)
        profile = self._profile
        if profile.system and profile.tools:
            offered = tuple(spec for spec in tools if spec.name in profile.tools)
            prefix = ModelRequest(system=profile.system, messages=(), tools=offered, max_tokens=1)
            with contextlib.suppress(ModelFailure):
                await self.complete(prefix)

    async def complete(
        self, request: ModelRequest, listener: CallListener | None = None
    ) -> ModelReply:
        """Make one call; a server that has exited after its idle time is started again."""
        if not self._profile.constrained:
            return await self._call(request, {}, listener)
        if request.temperature is None:
            request = replace(request, temperature=self._profile.temperature)
        asked = constrain(request)
        heard = HiddenForms(listener) if listener is not None and asked.forms else listener
        reply = await self._call(asked.request, asked.options, heard)
        return replace(reply, message=called(reply.message, asked.forms))

    async def _call(
        self, request: ModelRequest, options: Mapping[str, object], listener: CallListener | None
    ) -> ModelReply:
        server = await ensure_running(self._model, self._home, env=self._environ)
        target = ModelTarget(
            model=self._model.name,
            provider="custom",
            base_url=server.base_url,
            api_key=server.api_key,
            context_length=self._profile.n_ctx,
            max_tokens=self._profile.max_tokens,
            extra_body=dict(options),
        )
        route = resolve_route(target, self._sources)
        client = ModelClient([route], clock=self._clock, transport=self._transport)
        reply = await client.complete(request, listener)
        return replace(reply, provider=PROVIDER, model=self._model.name, cost_usd=0.0)
