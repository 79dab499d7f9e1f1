"""`hermes keys`: who may come in over HTTP.

Keys are in the ledger and the server looks each one up when it is used, so what
is done here counts with the next request, also while the gateway runs.
"""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import click

from hermes.app.doubts import key_doubts
from hermes.cli.home import age, given, loaded_config, say, this_home, when
from hermes.config.environment import process_environ
from hermes.config.loader import inspect_config
from hermes.control.api_keys import USUAL_ACTIONS, ApiKeys
from hermes.domain.errors import UsageError
from hermes.domain.keys import Action, ApiKey
from hermes.domain.profile import DEFAULT_AGENT, DEFAULT_AGENT_NAMES
from hermes.execution.clock import SystemClock
from hermes.state.sqlite.ledger import existing_ledger, open_ledger

_ACTIONS = click.Choice([action.value for action in Action])


@asynccontextmanager
async def _known_keys() -> AsyncIterator[ApiKeys]:
    async with existing_ledger(this_home()) as ledger:
        yield ApiKeys(ledger, SystemClock())


@asynccontextmanager
async def _new_keys() -> AsyncIterator[ApiKeys]:
    async with open_ledger(this_home().ensure()) as ledger:
        yield ApiKeys(ledger, SystemClock())


with_keys = given(_known_keys)
with_new_keys = given(_new_keys)


@click.group("keys")
def command() -> None:
    """Make, list and revoke the keys of the HTTP door."""


@command.command("create")
@click.argument("name")
@click.option("--agent", "agents", multiple=True, help="An agent it may reach; otherwise all.")
@click.option(
    "--action",
    "actions",
    multiple=True,
    type=_ACTIONS,
    help="What it may do; otherwise run, sessions and approve.",
)
@click.option("--expires", type=age, metavar="SPAN", help="How long it is valid: 12h, 30d, 8w, 1y.")
@with_new_keys
async def create_command(
    keys: ApiKeys,
    name: str,
    agents: tuple[str, ...],
    actions: tuple[str, ...],
    expires: float | None,
) -> None:
    """Make a key called NAME and print it, once."""
    key, secret = await keys.create(
        name,
        agents=[_agent_id(agent) for agent in agents],
        actions=[Action(action) for action in actions] or USUAL_ACTIONS,
        expires_in=expires,
    )
    click.echo(secret)
    # The key alone on stdout, so that it can be piped to where it is needed.
    click.echo(f"{_described(key)}\nSave it now: it is not shown again.", err=True)
    for doubt in key_doubts(loaded_config().config, [key], time.time()):
        click.echo(f"warning: {doubt}", err=True)


@command.command("list")
@click.option("--all", "everything", is_flag=True, help="Also revoked and expired keys.")
@with_keys
async def list_command(keys: ApiKeys, everything: bool) -> None:
    """List the keys: name, end, what they may do, when they were last used."""
    now, config = time.time(), inspect_config(this_home(), process_environ()).config
    shown = [key for key in await keys.keys() if everything or _state(key, now) == "valid"]
    for key in shown:
        say(f"{_described(key)}  {_state(key, now)}")
        for doubt in key_doubts(config, [key], now):
            click.echo(f"warning: {doubt}", err=True)
    if not shown:
        click.echo("There are no keys besides the configured one.", err=True)


@command.command("revoke")
@click.argument("reference", metavar="NAME|ID")
@with_keys
async def revoke_command(keys: ApiKeys, reference: str) -> None:
    """Revoke a key; it is refused from the next request on."""
    key = await keys.revoke(reference)
    say(f"{key.name} ({key.id}, …{key.hint}) is revoked.")


def _agent_id(name: str) -> str:
    agents = loaded_config().config.agents
    agent_id = DEFAULT_AGENT if name in DEFAULT_AGENT_NAMES else name
    if agent_id not in {DEFAULT_AGENT, *agents}:
        names = ", ".join((*DEFAULT_AGENT_NAMES, *agents))
        raise UsageError(f"There is no agent `{name}`.", hint=f"It is one of: {names}.")
    return agent_id


def _state(key: ApiKey, now: float) -> str:
    if key.revoked_at is not None:
        return f"revoked {when(key.revoked_at)}"
    if key.expires_at is not None and key.expires_at <= now:
        return f"expired {when(key.expires_at)}"
    return "valid"


def _described(key: ApiKey) -> str:
    agents = ", ".join(key.agents) or "all agents"
    until = f"until {when(key.expires_at)}" if key.expires_at else "never expires"
    used = f"last used {when(key.last_used_at)}" if key.last_used_at else "never used"
    actions = ", ".join(action.value for action in key.actions)
    return f"{key.name}  …{key.hint}  {key.id}  {agents}: {actions}  {until}  {used}"
