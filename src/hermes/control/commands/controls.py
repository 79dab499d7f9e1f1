"""CoreControls: what slash commands ask of the agent core, one session at a time."""

from collections.abc import Callable, Mapping

import msgspec
from msgspec import Struct

from hermes.agent.compaction import CompactionImpossible, Compactor
from hermes.agent.scope import AgentServices
from hermes.domain.profile import AgentProfile, use_profile
from hermes.domain.session import MODEL_OVERRIDE, Session, StoredMessage
from hermes.domain.tools import ToolSpec
from hermes.domain.usage import estimate_message, estimate_tokens

DEFAULT_SOURCE = "cli"


class Compacted(Struct, frozen=True, kw_only=True):
    messages: int
    """How many messages the summary stands for; 0: there was nothing to compact."""
    tokens_before: int
    tokens_after: int


class ContextUse(Struct, frozen=True, kw_only=True):
    """How full the model's context is, estimated between calls."""

    window: int | None
    parts: Mapping[str, int]
    """Part -> tokens, of what every call of the session sends."""

    @property
    def tokens(self) -> int:
        return sum(self.parts.values())


class CoreControls:
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
            with use_profile(profile):
                after = await compactor.compact(history, focus=focus)
        except CompactionImpossible:
            return Compacted(messages=0, tokens_before=before, tokens_after=before)
        replaced = len(history) - len(after) + 1
        return Compacted(messages=replaced, tokens_before=before, tokens_after=_tokens(after))

    async def background(self) -> list[str]:
        """Return the commands of background processes, which end with this process."""
        return [each.command for each in await self._services.environments.running()]

    def tools(self, agent_id: str, session: Session | None) -> tuple[ToolSpec, ...]:
        source = session.source if session is not None else DEFAULT_SOURCE
        return self._specs(self._profiles[agent_id], source)

    async def prompt_size(self, agent_id: str, session: Session | None) -> ContextUse:
        tools = sum(_schema_tokens(spec) for spec in self.tools(agent_id, session))
        if session is None:
            return ContextUse(window=None, parts={"tools": tools})
        model = self._services.models.main(self._profiles[agent_id], session)
        parts = {
            "system prompt": estimate_tokens(session.system_prompt or ""),
            "tools": tools,
            "messages": _tokens(await self._ledger.history(session.id)),
        }
        return ContextUse(window=model.info.context_window, parts=parts)


def _tokens(history: list[StoredMessage]) -> int:
    return sum(estimate_message(stored.message) for stored in history)


def _schema_tokens(spec: ToolSpec) -> int:
    schema = msgspec.json.encode(spec.parameters).decode()
    return estimate_tokens(spec.name + spec.description + schema)
