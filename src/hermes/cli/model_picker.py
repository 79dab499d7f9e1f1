"""Choosing one of several lines: arrow keys where that works, numbers elsewhere."""

import sys
from collections.abc import Sequence
from importlib.util import find_spec

import click

__all__ = ["is_interactive", "pick"]


def is_interactive() -> bool:
    """Tell whether a person can answer."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def pick(title: str, lines: Sequence[str], *, chosen: int = 0, arrows: bool = True) -> int | None:
    """Return the number of the line a person picks, None if they leave."""
    if arrows and find_spec("prompt_toolkit") is not None:
        from hermes.cli.model_arrows import pick_with_arrows  # noqa: PLC0415 - heavy and optional

        return pick_with_arrows(title, lines, chosen)
    return _by_number(title, lines, chosen)


def _by_number(title: str, lines: Sequence[str], chosen: int) -> int | None:
    click.echo(title)
    for at, line in enumerate(lines, 1):
        click.echo(f"{'*' if at - 1 == chosen else ' '}{at:3}. {line}")
    answer = click.prompt(
        "Number, or 0 to leave it", default=chosen + 1, type=click.IntRange(0, len(lines))
    )
    return None if answer == 0 else int(answer) - 1
