"""`hermes approvals`: what commands need a person's word."""

import sys
import time
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path

import click

from hermes.cli.sessions_store import Desk, at_desk
from hermes.config.environment import process_environ
from hermes.config.loader import load_config
from hermes.config.paths import HermesHome
from hermes.domain.approvals import Approval, ApprovalState, Choice
from hermes.domain.errors import NotFound
from hermes.domain.settings.live import LiveSettings
from hermes.execution.policy.judge import HostPolicy

STANDING = (Choice.SESSION, Choice.ALWAYS)


@click.command("list")
@click.option("--all", "everything", is_flag=True, help="Also what is over and done with.")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(min=1))
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def list_approvals(everything: bool, limit: int, as_json: bool) -> None:
    """List what waits for an answer and what is granted."""

    async def work(desk: Desk) -> None:
        shown = 0
        for approval in await desk.ledger.approvals(limit=limit if everything else 1000):
            if not everything and not (_pending(approval) or _standing(approval)):
                continue
            shown += 1
            if as_json:
                desk.say_json(approval)
            else:
                desk.say(_line(approval))
            if shown == limit:
                break
        if not shown:
            click.echo("Nothing waits and nothing is granted.", err=True)

    at_desk(work)


@click.command("show")
@click.argument("approval_id", metavar="ID")
def show_approval(approval_id: str) -> None:
    """Show one request and what became of it."""

    async def work(desk: Desk) -> None:
        approval = await _find(desk, approval_id)
        request, decision = approval.request, approval.decision
        desk.say(f"id        {request.id}")
        desk.say(f"state     {approval.state.value}")
        desk.say(f"asked     {_when(request.created_at)} in session {request.session_id}")
        desk.say(f"what      {request.subject}")
        desk.say(f"why       {request.reason}")
        desk.say(f"pattern   {request.pattern}")
        if decision is not None:
            choice = decision.choice.value if decision.choice else decision.state.value
            desk.say(f"answer    {choice} by {decision.by or 'nobody'} at {_when(decision.at)}")
            if decision.text:
                desk.say(f"words     {decision.text}")

    at_desk(work)


@click.command("revoke")
@click.argument("approval_id", metavar="ID")
def revoke_approval(approval_id: str) -> None:
    """Withdraw a permission that was given for a session or for good."""

    async def work(desk: Desk) -> None:
        approval = await _find(desk, approval_id)
        if not await desk.ledger.revoke(approval.request.id, time.time()):
            raise NotFound(
                f"{approval.request.id} grants nothing that could be withdrawn.",
                hint="List what is granted with: hermes approvals list",
            )
        desk.say(f"Withdrawn: {approval.request.pattern}")

    at_desk(work)


async def _find(desk: Desk, approval_id: str) -> Approval:
    approval = await desk.ledger.approval(approval_id)
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
    subject = " ".join(approval.request.subject.split())
    short = subject if len(subject) <= 60 else subject[:59] + "…"
    when = _when(approval.request.created_at)
    return f"{approval.request.id}  {when}  {approval.state.value:8} {choice:8} {short}"


def _when(at: float) -> str:
    return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M")


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
    policy = HostPolicy(LiveSettings(loaded.config), environ, home.root).commands()
    for script in scripts:
        verdict = policy.judge(script, cwd=str(cwd))
        reason = " ".join(verdict.reason.split())
        yield f"{verdict.gate.value}\t{reason}"
