"""`hermes prompt-size`: the fixed prompt in parts.

Everything listed here is sent with every single model call: the sections of
the system prompt and the schema of each tool. Tokens are bytes / 4, a rough
count that needs no provider.
"""

import asyncio
import json
from collections.abc import Iterable

import click
import msgspec
from msgspec import Struct

from hermes.agent.prompt import gather_inputs, prompt_sections
from hermes.app.build import App, open_app
from hermes.app.options import AppOptions
from hermes.cli.home import app_options, json_option
from hermes.domain.profile import DEFAULT_AGENT, AgentProfile
from hermes.domain.session import Session
from hermes.domain.tools import ToolSpec

BUDGET_TOKENS = 5_000
BYTES_PER_TOKEN = 4


class PromptPart(Struct, frozen=True, kw_only=True):
    name: str
    bytes: int

    @property
    def tokens(self) -> int:
        return round(self.bytes / BYTES_PER_TOKEN)


class PromptSize(Struct, frozen=True, kw_only=True):
    sections: tuple[PromptPart, ...]
    tools: tuple[PromptPart, ...]

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in (*self.sections, *self.tools))

    @property
    def tokens(self) -> int:
        return round(self.bytes / BYTES_PER_TOKEN)


@click.command("prompt-size")
@json_option
@click.option("-t", "--toolsets", metavar="A,B", help="With these toolsets.")
@click.option("--ignore-rules", is_flag=True, help="Leave out SOUL.md, memory and project files.")
def command(as_json: bool, toolsets: str | None, ignore_rules: bool) -> None:
    """Show where the fixed prompt goes: sections and tools in bytes and tokens."""
    names = tuple(name.strip() for name in toolsets.split(",")) if toolsets else None
    size = asyncio.run(_measure(app_options(toolsets=names, ignore_rules=ignore_rules)))
    click.echo(json.dumps(_document(size), indent=2) if as_json else "\n".join(_lines(size)))


async def _measure(chosen: AppOptions) -> PromptSize:
    async with open_app(chosen) as app:
        return await measure_prompt(app, app.agent(DEFAULT_AGENT))


async def measure_prompt(app: App, profile: AgentProfile) -> PromptSize:
    """Return the size of the prompt that a session starting now would have."""
    now = app.clock.now()
    session = Session(
        id="prompt-size",
        agent_id=profile.id,
        source="cli",
        started_at=now,
        updated_at=now,
        cwd=str(profile.workspace),
    )
    tools = app.tools.registry(profile, "cli")
    model = profile.model or "unknown"
    sections = prompt_sections(await gather_inputs(app.services, profile, session, model, tools))
    await app.environments.release(session.id)
    return PromptSize(
        sections=tuple(
            PromptPart(name=section.name, bytes=len(section.text.strip().encode()))
            for section in sections
        ),
        tools=tuple(PromptPart(name=spec.name, bytes=_wire_bytes(spec)) for spec in tools.specs()),
    )


def _wire_bytes(spec: ToolSpec) -> int:
    """Return the length of a tool's schema as chat completions send it."""
    function = {
        "name": spec.name,
        "description": spec.description,
        "parameters": spec.parameters,
    }
    return len(msgspec.json.encode({"type": "function", "function": function}))


def _document(size: PromptSize) -> dict[str, object]:
    def listed(parts: Iterable[PromptPart]) -> list[dict[str, object]]:
        return [{"name": p.name, "bytes": p.bytes, "tokens": p.tokens} for p in parts]

    return {
        "sections": listed(size.sections),
        "tools": listed(size.tools),
        "bytes": size.bytes,
        "tokens": size.tokens,
        "budget_tokens": BUDGET_TOKENS,
    }


def _lines(size: PromptSize) -> list[str]:
    parts = (*size.sections, *size.tools)
    width = max((len(part.name) for part in parts), default=0)
    lines = []
    for title, group in (("System prompt", size.sections), ("Tools", size.tools)):
        lines.append(f"{title:{width + 2}} {'bytes':>8} {'tokens':>8}")
        lines += [
            f"  {part.name:{width}} {part.bytes:>8,} {part.tokens:>8,}"
            for part in sorted(group, key=lambda part: -part.bytes)
        ]
        lines.append("")
    share = size.tokens / BUDGET_TOKENS
    lines.append(f"{'Total':{width + 2}} {size.bytes:>8,} {size.tokens:>8,}")
    lines.append(f"{share:.0%} of the budget of {BUDGET_TOKENS:,} tokens.")
    return lines
