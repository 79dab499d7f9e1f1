"""`hermes prompt-size`: the fixed prompt in parts.

Everything listed here is sent with every single model call: the sections of
the system prompt and the schema of each tool. Tokens are bytes / 4, a rough
count that needs no provider.
"""

import asyncio
from collections.abc import Iterator

import click

from hermes.app.build import open_app
from hermes.app.options import AppOptions
from hermes.app.prompt_size import PromptSize, measure_prompt, tokens_of
from hermes.cli.home import app_options, json_option, say_json
from hermes.domain.profile import DEFAULT_AGENT

BUDGET_TOKENS = 5_000


@click.command("prompt-size")
@json_option
@click.option("-t", "--toolsets", metavar="A,B", help="With these toolsets.")
@click.option("--ignore-rules", is_flag=True, help="Leave out SOUL.md, memory and project files.")
def command(as_json: bool, toolsets: str | None, ignore_rules: bool) -> None:
    """Show the size of the fixed prompt: sections and tools in bytes and tokens."""
    names = tuple(name.strip() for name in toolsets.split(",")) if toolsets else None
    size = asyncio.run(_measure(app_options(toolsets=names, ignore_rules=ignore_rules)))
    if as_json:
        say_json(_document(size))
    else:
        click.echo("\n".join(_lines(size)))


async def _measure(chosen: AppOptions) -> PromptSize:
    async with open_app(chosen) as app:
        return await measure_prompt(app, app.agent(DEFAULT_AGENT))


def _document(size: PromptSize) -> dict[str, object]:
    def listed(parts: dict[str, int]) -> list[dict[str, object]]:
        return [{"name": k, "bytes": n, "tokens": tokens_of(n)} for k, n in parts.items()]

    return {
        "sections": listed(size.sections),
        "tools": listed(size.tools),
        "bytes": size.bytes,
        "tokens": size.tokens,
        "budget_tokens": BUDGET_TOKENS,
    }


def _lines(size: PromptSize) -> Iterator[str]:
    width = max(map(len, (*size.sections, *size.tools)), default=0)
    for title, parts in (("System prompt", size.sections), ("Tools", size.tools)):
        yield f"{title:{width + 2}} {'bytes':>8} {'tokens':>8}"
        for name, count in sorted(parts.items(), key=lambda part: -part[1]):
            yield f"  {name:{width}} {count:>8,} {tokens_of(count):>8,}"
        yield ""
    yield f"{'Total':{width + 2}} {size.bytes:>8,} {size.tokens:>8,}"
    yield f"{size.tokens / BUDGET_TOKENS:.0%} of the budget of {BUDGET_TOKENS:,} tokens."
