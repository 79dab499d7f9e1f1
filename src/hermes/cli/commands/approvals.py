"""`hermes approvals`: what commands need a person's word."""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from hermes.app.options import AppOptions
from hermes.app.policy import policy_settings
from hermes.cli.approvals_ledger import list_approvals, revoke_approval, show_approval
from hermes.config.environment import process_environ
from hermes.config.loader import load_config
from hermes.config.paths import HermesHome
from hermes.execution.policy.policy import CommandPolicy

__all__ = ["command"]


@click.group("approvals")
def command() -> None:
    """See what needs a person's word, and what was granted."""


command.add_command(list_approvals)
command.add_command(show_approval)
command.add_command(revoke_approval)


@command.command("test", context_settings={"ignore_unknown_options": True})
@click.argument("words", metavar="COMMAND", nargs=-1, required=True, type=click.UNPROCESSED)
def test_command(words: tuple[str, ...]) -> None:
    """Say what a chat turn on the local backend would do with COMMAND; run nothing.

    `-` reads one command a line from standard input. Prints `allow`, `ask` or
    `block`, a tab and the reason.
    """
    scripts = _lines() if words == ("-",) else [" ".join(words)]
    for line in _judged(scripts):
        click.echo(line)


def _lines() -> Iterator[str]:
    for line in sys.stdin.buffer:
        yield line.decode(errors="replace").rstrip("\n")


def _judged(scripts: Iterable[str]) -> Iterator[str]:
    environ = process_environ()
    home = HermesHome.from_environ(environ)
    loaded = load_config(home, environ)
    cwd = Path(loaded.config.terminal.cwd).absolute()
    options = AppOptions(home=home, environ=environ, cwd=cwd)
    policy = CommandPolicy(policy_settings(loaded, options, mode="manual"))
    for script in scripts:
        verdict = policy.judge(script, cwd=str(cwd))
        reason = " ".join(verdict.reason.split())
        yield f"{verdict.gate.value}\t{reason}"
