"""The core's switches for slash commands, one session at a time."""

import msgspec

from hermes.agent.compaction import CompactionImpossible, Compactor
from hermes.agent.loop import REASONING_EFFORT
from hermes.agent.tokens import estimate_message, estimate_tokens
from hermes.app.build import App
from hermes.app.tools import YOLO
from hermes.control.commands.context import (
    Compacted,
    ContextUse,
    ModelOption,
    PromptShare,
    ToolInfo,
)
from hermes.domain.session import Session, StoredMessage
from hermes.domain.tools import ToolSpec
from hermes.models.registry import MODEL_OVERRIDE

__all__ = ["AppControls"]


class AppControls:
    """Implements `SessionControls` on a running app."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def models(self, session: Session) -> list[ModelOption]:  # noqa: ARG002 - same everywhere
        """Return the models the configuration names."""
        config = self._app.loaded.config
        found = [(self._app.profile.provider, self._app.profile.model, "configured")]
        for name, provider in config.providers.items():
            models = provider.models if isinstance(provider.models, list | tuple | dict) else ()
            found += [(name, str(model), "") for model in (provider.model, *models) if model]
        found += [(f.provider, f.model, "fallback") for f in config.fallback_providers if f.model]
        unique = {(provider, model): note for provider, model, note in reversed(found)}
        return [
            ModelOption(provider=provider, model=model, note=note)
            for (provider, model), note in reversed(unique.items())
        ]

    async def set_model(self, session: Session, model: str, provider: str | None) -> Session:
        """Use another model from the next turn on; an unknown one raises with a reason."""
        chosen = {"model": model, "provider": provider or ""}
        changed = msgspec.structs.replace(session, state={**session.state, MODEL_OVERRIDE: chosen})
        info = self._app.models.main(self._app.profile, changed).info
        chosen["provider"] = info.provider
        await self._app.ledger.remember(session.id, MODEL_OVERRIDE, chosen)
        return await self._app.ledger.update_session(
            session.id, model=info.model, provider=info.provider
        )

    async def compact(self, session: Session, focus: str) -> Compacted:
        """Summarise the older part of the history now, minding `focus`."""
        app = self._app
        history = await app.ledger.history(session.id)
        before = _tokens(history)
        model = app.models.main(app.profile, session)
        compactor = Compactor(app.services, app.profile, session, model)
        try:
            after = await compactor.compact(history, focus=focus)
        except CompactionImpossible:
            return Compacted(messages=0, tokens_before=before, tokens_after=before)
        replaced = len(history) - len(after) + 1
        return Compacted(messages=replaced, tokens_before=before, tokens_after=_tokens(after))

    async def set_reasoning(self, session: Session, effort: str | None) -> None:
        """Set how hard the model thinks; None is its default."""
        await self._app.ledger.remember(session.id, REASONING_EFFORT, effort)

    async def set_yolo(self, session: Session, *, on: bool) -> None:
        """Run what would be asked about without asking."""
        await self._app.ledger.remember(session.id, YOLO, on or None)

    async def list_tools(self, session: Session | None) -> list[ToolInfo]:  # noqa: ARG002 - one agent
        """Return the tools the model has here, by name."""
        return [
            ToolInfo(
                name=spec.name,
                toolset=spec.toolset,
                description=spec.description,
                emoji=spec.emoji,
            )
            for spec in self._app.tools.registry(self._app.profile).specs()
        ]

    async def prompt_size(self, session: Session | None) -> ContextUse:
        """Return how full the context is and with what."""
        app = self._app
        specs = app.tools.registry(app.profile).specs()
        tools = sum(_schema_tokens(spec) for spec in specs)
        parts = [PromptShare(name="tools", tokens=tools)]
        window = None
        if session is not None:
            window = app.models.main(app.profile, session).info.context_window
            prompt = estimate_tokens(session.system_prompt or "")
            history = _tokens(await app.ledger.history(session.id))
            parts = [
                PromptShare(name="system prompt", tokens=prompt),
                *parts,
                PromptShare(name="messages", tokens=history),
            ]
        return ContextUse(
            tokens=sum(part.tokens for part in parts), window=window, parts=tuple(parts)
        )

    async def config_lines(self) -> list[tuple[str, str]]:
        """Return the settings worth knowing as (name, value), secrets left out."""
        app = self._app
        config = app.loaded.config
        return [
            ("home", str(app.profile.home)),
            ("model", app.profile.model),
            ("provider", app.profile.provider or "auto"),
            ("toolsets", ", ".join(app.profile.toolsets)),
            ("backend", app.profile.backend),
            ("workspace", str(app.profile.workspace)),
            ("approvals", config.approvals.mode),
            ("busy input", config.display.busy_input_mode),
        ]


def _tokens(history: list[StoredMessage]) -> int:
    return sum(estimate_message(stored.message) for stored in history)


def _schema_tokens(spec: ToolSpec) -> int:
    schema = msgspec.json.encode(spec.parameters).decode()
    return estimate_tokens(spec.name + spec.description + schema)
