"""Size of the fixed prompt: what is sent with every model call of a session."""

import msgspec
from msgspec import Struct

from hermes.agent.prompt import gather_inputs, prompt_sections
from hermes.app.build import App
from hermes.domain.profile import AgentProfile
from hermes.domain.session import Session
from hermes.domain.tools import ToolSpec
from hermes.domain.usage import BYTES_PER_TOKEN


class PromptSize(Struct, frozen=True, kw_only=True):
    """Bytes by name."""

    sections: dict[str, int]
    tools: dict[str, int]

    @property
    def bytes(self) -> int:
        return sum(self.sections.values()) + sum(self.tools.values())

    @property
    def tokens(self) -> int:
        return tokens_of(self.bytes)


async def measure_prompt(app: App, profile: AgentProfile, source: str = "cli") -> PromptSize:
    """Return the size of the prompt that a session starting now would have at a door."""
    now = app.clock.now()
    session = Session(
        id="prompt-size",
        agent_id=profile.id,
        source=source,
        started_at=now,
        updated_at=now,
        cwd=str(profile.workspace),
    )
    tools = app.tools.registry(profile, source)
    model = profile.model or "unknown"
    sections = prompt_sections(await gather_inputs(app.services, profile, session, model, tools))
    await app.environments.release(session.id)
    return PromptSize(
        sections={name: len(text.encode()) for name, text in sections.items()},
        tools={spec.name: _wire_bytes(spec) for spec in tools.specs()},
    )


def tokens_of(size: int) -> int:
    return round(size / BYTES_PER_TOKEN)


def _wire_bytes(spec: ToolSpec) -> int:
    """Return the length of a tool's schema as chat completions send it."""
    function = {
        "name": spec.name,
        "description": spec.description,
        "parameters": spec.parameters,
    }
    return len(msgspec.json.encode({"type": "function", "function": function}))
