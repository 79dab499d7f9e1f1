"""`hermes approvals`: commands that need a person's approval, and what was granted."""

import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from hermes.cli.home import (
    HomeLedger,
    json_lines_option,
    loaded_config,
    this_home,
    when,
    with_ledger,
)
from hermes.config.environment import process_environ
from hermes.domain.approvals import Approval, ApprovalState, Choice
from hermes.domain.errors import NotFound
from hermes.domain.settings.live import LiveSettings
from hermes.domain.wording import one_line
from hermes.execution.policy.host import HostPolicy
from hermes.execution.policy.judge import CommandPolicy

STANDING = (Choice.SESSION, Choice.ALWAYS)


@click.group("approvals")
def command() -> None:
    """List pending approvals and grants."""


@command.command("list")
@click.option("--all", "everything", is_flag=True, help="Also answered and expired requests.")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(min=1))
@json_lines_option
@with_ledger
async def list_command(store: HomeLedger, everything: bool, limit: int, as_json: bool) -> None:
    """List pending approvals and what is granted."""
    shown = 0
    for approval in await store.ledger.approvals(limit=limit if everything else 1000):
        if not everything and not (_pending(approval) or _standing(approval)):
            continue
        shown += 1
        store.show(approval, _line(approval), as_json=as_json)
        if shown == limit:
            break
    if not shown:
        click.echo("No approval is pending and nothing is granted.", err=True)


@command.command("show")
@click.argument("approval_id", metavar="ID")
@with_ledger
async def show_command(store: HomeLedger, approval_id: str) -> None:
    """Show one request and what became of it."""
    approval = await _find(store, approval_id)
    request, decision = approval.request, approval.decision
    store.say(f"id        {request.id}")
    store.say(f"state     {approval.state.value}")
    store.say(f"asked     {when(request.created_at)} in session {request.session_id}")
    store.say(f"what      {request.subject}")
    store.say(f"why       {request.reason}")
    store.say(f"pattern   {request.pattern}")
    if decision is not None:
        choice = decision.choice.value if decision.choice else decision.state.value
        store.say(f"answer    {choice} by {decision.by or 'nobody'} at {when(decision.at)}")
        if decision.text:
            store.say(f"words     {decision.text}")


@command.command("revoke")
@click.argument("approval_id", metavar="ID")
@with_ledger
async def revoke_command(store: HomeLedger, approval_id: str) -> None:
    """Withdraw a permission that was given for a session or for good."""
    approval = await _find(store, approval_id)
    if not await store.ledger.revoke(approval.request.id, time.time()):
        raise NotFound(
            f"{approval.request.id} grants nothing that could be withdrawn.",
            hint="List what is granted with: hermes approvals list",
        )
    store.say(f"Withdrawn: {approval.request.pattern}")


async def _find(store: HomeLedger, approval_id: str) -> Approval:
    approval = await store.ledger.approval(approval_id)
    if approval is None:
        raise NotFound(
            f"There is no approval {approval_id}.",
            hint="List them with: hermes approvals list --all",
        )
    return approval


def _pending(approval: Approval) -> bool:
    return approval.state is ApprovalState.PENDING


def _standing(approval: Approval) -> bool:
    decision = approval.decision
    approved = approval.state is ApprovalState.APPROVED
    return approved and decision is not None and decision.choice in STANDING


def _line(approval: Approval) -> str:
    decision = approval.decision
    choice = decision.choice.value if decision and decision.choice else ""
    request, state = approval.request, approval.state.value
    asked = when(request.created_at)
    return f"{request.id}  {asked}  {state:8} {choice:8} {one_line(request.subject, 60)}"


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
    home, settings = this_home(), loaded_config().config
    cwd = Path(settings.terminal.cwd).absolute()
    host = HostPolicy(LiveSettings(settings), process_environ(), home.root)
    policy = CommandPolicy(host.settings())
    for script in scripts:
        verdict = policy.judge(script, cwd=str(cwd))
        reason = " ".join(verdict.reason.split())
        yield f"{verdict.gate.value}\t{reason}"
