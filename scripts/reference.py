"""Write docs/reference/cli.md, config.md and tools.md from the code they describe.

`python scripts/reference.py` writes them; a test compares them with the code.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec import Struct

from hermes.agent.tools.ask_agent import ASK_AGENT
from hermes.agent.tools.registry import ToolRegistry
from hermes.cli.root import COMMANDS, load_command
from hermes.config.document import format_key
from hermes.config.meaning import meaning_of
from hermes.domain.settings import Settings
from hermes.domain.tools import ToolSpec

DOCS = Path(__file__).parent.parent / "docs" / "reference"
HEAD = "<!-- Made by scripts/reference.py; edit the code instead. -->\n"


def cli_reference() -> str:
    """Return every command with its arguments and options."""
    parts = [HEAD, "# Commands\n"]
    for name in sorted(COMMANDS):
        parts += _commands(load_command(name), f"hermes {name}")
    return "\n".join(parts) + "\n"


def _commands(command: click.Command, name: str) -> Iterator[str]:
    context = click.Context(command, info_name=name)
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"## `{name} {usage}`\n"
    yield f"{(command.help or '').strip()}\n"
    if isinstance(command, click.Group):
        for child in sorted(command.commands):
            yield from _commands(command.commands[child], f"{name} {child}")
        return
    rows = [p.get_help_record(context) for p in command.get_params(context)]
    lines = [f"- `{row[0]}`: {row[1]}" for row in rows if row and "--help" not in row[0]]
    if lines:
        yield "\n".join(lines) + "\n"


def config_reference() -> str:
    """Return every key of config.yaml with its default and meaning."""
    lines = [
        HEAD,
        "# config.yaml",
        "",
        "`hermes config explain KEY` shows a key's value and origin.",
    ]
    lines += ["", "| key | default | meaning |", "|---|---|---|"]
    lines += [f"| `{key}` | `{value}` | {text} |" for key, value, text in _leaves(Settings(), ())]
    return "\n".join(lines) + "\n"


def _leaves(value: Struct, path: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
    for field in msgspec.structs.fields(value):
        here = (*path, field.encode_name)
        item = getattr(value, field.name)
        if isinstance(item, Struct):
            yield from _leaves(item, here)
            continue
        shown = msgspec.json.encode(item).decode()
        meaning = " ".join(meaning_of(here).split()).replace("|", "\\|")
        yield format_key(here), shown.replace("|", "\\|"), meaning


TOOLS = """\
# Tools

What the model may call. `hermes tools list|enable|disable [--platform NAME]` shows and switches
them; [add a tool](../how-to/add-a-tool.md) tells how to write one. Results are text; what is too
long for the model goes to a file whose path it is told. Files and commands are those of the
session's backend.
"""


def tools_reference() -> str:
    """Return every tool with its arguments and what it declares."""
    specs = ToolRegistry(["all"], secret_names=frozenset({ASK_AGENT})).specs()
    by_set: dict[str, list[ToolSpec]] = {}
    for spec in specs:
        by_set.setdefault(spec.toolset, []).append(spec)
    parts = [HEAD, TOOLS]
    for toolset, members in sorted(by_set.items()):
        parts += [f"## {toolset}\n", *(_tool(spec) for spec in members)]
    return "\n".join(parts)


def _tool(spec: ToolSpec) -> str:
    required = spec.parameters.get("required", ())
    rows = [
        f"- `{name}`{' (required)' if name in required else ''}: {_kind(field)}"
        for name, field in spec.parameters["properties"].items()
    ]
    facts = [
        "is judged before it runs" if spec.intent else "",
        "always asks" if spec.destructive else "",
        "is repeated after a restart" if spec.replay_safe else "",
        f"runs beside others: {spec.parallel.value}" if spec.parallel.value != "never" else "",
        f"needs: {', '.join(sorted(spec.needs))}" if spec.needs else "",
    ]
    said = "; ".join(filter(None, facts))
    head = f"### `{spec.name}`\n\n{spec.description}\n\n" + "\n".join(rows)
    return f"{head}\n\nIt {said}.\n" if said else f"{head}\n"


def _kind(field: dict[str, Any]) -> str:
    kind = " or ".join(f"`{each}`" for each in field.get("enum", ())) or field.get("type", "any")
    about = field.get("description", "")
    return f"{kind}. {about}" if about else str(kind)


def main() -> None:
    """Write the pages."""
    (DOCS / "tools.md").write_text(tools_reference(), encoding="utf-8")
    (DOCS / "cli.md").write_text(cli_reference(), encoding="utf-8")
    (DOCS / "config.md").write_text(config_reference(), encoding="utf-8")


if __name__ == "__main__":
    main()
