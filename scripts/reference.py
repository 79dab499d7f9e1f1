"""Write docs/reference/cli.md and config.md from the code they describe.

`python scripts/reference.py` writes them; a test compares them with the code.
"""

from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
from msgspec import Struct

from hermes.cli.root import COMMANDS, load_command
from hermes.config.document import format_key
from hermes.config.meaning import meaning_of
from hermes.domain.settings import Settings

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


def main() -> None:
    """Write both pages."""
    (DOCS / "cli.md").write_text(cli_reference(), encoding="utf-8")
    (DOCS / "config.md").write_text(config_reference(), encoding="utf-8")


if __name__ == "__main__":
    main()
