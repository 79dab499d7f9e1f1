"""Gathers what the system prompt of a session is made of."""

from datetime import datetime

from hermes.agent.context_files import ContextFile, find_context_file
from hermes.agent.prompt import PromptInputs
from hermes.agent.scope import AgentServices
from hermes.domain.ports.identity import IdentitySnapshot
from hermes.domain.profile import AgentProfile
from hermes.domain.session import Session
from hermes.domain.tools import ToolRunner

__all__ = ["gather_inputs"]


async def gather_inputs(
    services: AgentServices, profile: AgentProfile, session: Session, model: str, tools: ToolRunner
) -> PromptInputs:
    """Read the agent's and the project's files as they are now."""
    settings = services.settings
    notes: ContextFile | None = None
    identity = IdentitySnapshot()
    if settings.load_context_files:
        identity = await services.identity.snapshot(profile)
    if settings.load_context_files and not settings.private_workspace:
        environment = await services.environments.get(profile.id, session.id, session.cwd)
        notes = await find_context_file(environment, settings.context_file_max_chars)
    started = datetime.fromtimestamp(session.started_at).astimezone()
    return PromptInputs(
        identity=identity,
        tools=tools.specs(),
        platform=session.source,
        platform_hint=settings.platform_hints.get(session.source),
        context_name=notes.name if notes else None,
        context_text=notes.text if notes else None,
        date=started.strftime("%A, %Y-%m-%d"),
        model=model,
        cwd=None if settings.private_workspace else session.cwd,
    )
