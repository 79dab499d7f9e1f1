"""The core's switches for slash commands, one agent and one session at a time."""

from collections.abc import Callable, Mapping

import msgspec

from hermes.agent.compaction import (
    CompactionImpossible,
    Compactor,
    estimate_message,
    estimate_tokens,
)
from hermes.agent.loop import REASONING_EFFORT
from hermes.agent.scope import AgentServices
from hermes.control.commands.context import (
    Compacted,
    ContextUse,
    ModelOption,
    PromptShare,
    SessionChoice,
    ToolInfo,
)
from hermes.domain.profile import AgentProfile
from hermes.domain.session import MODEL_OVERRIDE, Session, StoredMessage
from hermes.domain.tools import ToolSpec

DEFAULT_SOURCE = "cli"


class CoreControls:
    """Implements `SessionControls` on the agent core."""

    def __init__(
        self,
        services: AgentServices,
        profiles: Mapping[str, AgentProfile],
        specs: Callable[[AgentProfile, str], tuple[ToolSpec, ...]],
    ) -> None:
        self._services = services
        self._ledger = services.ledger
        self._profiles = profiles
        self._specs = specs
        """(agent, door) -> the tools it has there."""

    async def models(self, session: Session) -> list[ModelOption]:
        """Return the models the configuration names."""
        settings, profile = self._services.settings(), self._profiles[session.agent_id]
        found = [(profile.provider, profile.model, "configured")]
        for name, provider in settings.providers.items():
            models = provider.models if isinstance(provider.models, list | tuple | dict) else ()
            found += [(name, str(model), "") for model in (provider.model, *models) if model]
        found += [(f.provider, f.model, "fallback") for f in settings.fallback_providers if f.model]
        unique = {(provider, model): note for provider, model, note in reversed(found)}
        return [
            ModelOption(provider=provider, model=model, note=note)
            for (provider, model), note in reversed(unique.items())
        ]

    async def set_model(self, session: Session, model: str, provider: str | None) -> Session:
        """Use another model from the next turn on; an unknown one raises with a reason."""
        chosen = {"model": model, "provider": provider or ""}
        changed = msgspec.structs.replace(session, state={**session.state, MODEL_OVERRIDE: chosen})
        info = self._services.models.main(self._profiles[session.agent_id], changed).info
        chosen["provider"] = info.provider
        await self._ledger.remember(session.id, MODEL_OVERRIDE, chosen)
        return await self._ledger.update_session(
            session.id, model=info.model, provider=info.provider
        )

    async def compact(self, session: Session, focus: str) -> Compacted:
        """Summarise the older part of the history now, minding `focus`."""
        profile = self._profiles[session.agent_id]
        history = await self._ledger.history(session.id)
        before = _tokens(history)
        model = self._services.models.main(profile, session)
        compactor = Compactor(self._services, profile, session, model)
        try:
            after = await compactor.compact(history, focus=focus)
        except CompactionImpossible:
            return Compacted(messages=0, tokens_before=before, tokens_after=before)
        replaced = len(history) - len(after) + 1
        return Compacted(messages=replaced, tokens_before=before, tokens_after=_tokens(after))

    async def set_reasoning(self, session: Session, effort: str | None) -> None:
        await self._ledger.remember(session.id, REASONING_EFFORT, effort)

    async def set_yolo(self, session: Session, *, on: bool) -> None:
        await self._ledger.remember(session.id, SessionChoice.YOLO, on or None)

    async def list_tools(self, agent_id: str, session: Session | None) -> list[ToolInfo]:
        """Return the tools the model has here, by name."""
        return [
            ToolInfo(
                name=spec.name,
                toolset=spec.toolset,
                description=spec.description,
                emoji=spec.emoji,
            )
            for spec in self._here(agent_id, session)
        ]

    async def prompt_size(self, agent_id: str, session: Session | None) -> ContextUse:
        """Return how full the context is and with what."""
        tools = sum(_schema_tokens(spec) for spec in self._here(agent_id, session))
        parts = [PromptShare(name="tools", tokens=tools)]
        window = None
        if session is not None:
            model = self._services.models.main(self._profiles[agent_id], session)
            window = model.info.context_window
            prompt = estimate_tokens(session.system_prompt or "")
            history = _tokens(await self._ledger.history(session.id))
            parts = [
                PromptShare(name="system prompt", tokens=prompt),
                *parts,
                PromptShare(name="messages", tokens=history),
            ]
        return ContextUse(
            tokens=sum(part.tokens for part in parts), window=window, parts=tuple(parts)
        )

    async def config_lines(self, agent_id: str) -> list[tuple[str, str]]:
        """Return the settings worth knowing as (name, value), secrets left out."""
        settings, profile = self._services.settings(), self._profiles[agent_id]
        return [
            ("home", str(profile.home)),
            ("model", profile.model),
            ("provider", profile.provider or "auto"),
            ("toolsets", ", ".join(profile.toolsets)),
            ("backend", profile.backend),
            ("workspace", str(profile.workspace)),
            ("approvals", settings.approvals.mode),
            ("busy input", settings.display.busy_input_mode),
        ]

    def _here(self, agent_id: str, session: Session | None) -> tuple[ToolSpec, ...]:
        source = session.source if session is not None else DEFAULT_SOURCE
        return self._specs(self._profiles[agent_id], source)


def _tokens(history: list[StoredMessage]) -> int:
    return sum(estimate_message(stored.message) for stored in history)


def _schema_tokens(spec: ToolSpec) -> int:
    schema = msgspec.json.encode(spec.parameters).decode()
    return estimate_tokens(spec.name + spec.description + schema)
