"""`hermes agent`: the agents of this home and the way of messages to them."""

import asyncio

import click

from hermes.cli.home import json_option, loaded_config, say, say_json, this_home
from hermes.config.agents import agent_problems
from hermes.control.admission.routing import (
    CONDITIONS,
    Facts,
    RouteDecision,
    Router,
    explained,
    route_facts,
)
from hermes.domain.errors import NotFound
from hermes.domain.profile import DEFAULT_AGENT
from hermes.domain.settings import Settings


@click.group("agent")
def command() -> None:
    """The agents of this home, and which of them messages are for."""


@command.group("route")
def route_command() -> None:
    """Which agent messages are for."""


def _conditions(test: click.Command) -> click.Command:
    for name in reversed(CONDITIONS):
        flag = f"--{name.replace('_', '-')}"
        test = click.option(flag, name, default=None, help=f"The message's {name}.")(test)
    return test


@route_command.command("test")
@json_option
@click.pass_context
def test_command(ctx: click.Context, /, as_json: bool, **given: str | None) -> None:
    """Say which agent answers a message from a place, which rule decides, and why.

    The hook `select_agent` belongs to the running gateway and is not asked here.
    """
    loaded = loaded_config()
    facts = route_facts(**{name: (value,) for name, value in given.items()})
    steps = explained(loaded.config, facts)
    served = {DEFAULT_AGENT, *loaded.config.agents}
    try:
        found = asyncio.run(_decided(loaded.config, served, facts))
        problem = agent_problems(loaded, this_home()).get(found.agent)
    except NotFound as error:
        found, problem = None, error.message
    if as_json:
        agent, rule, why = (found.agent, found.rule, found.why) if found else (None, None, None)
        say_json({"agent": agent, "rule": rule, "why": why, "problem": problem, "steps": steps})
    else:
        for step in steps:
            say(step)
        if found is not None:
            say(f"Agent: {found.agent}, by {found.rule} ({found.why}).")
        if problem:
            say(f"Refused: {problem}")
    ctx.exit(NotFound.exit_code if problem else 0)


_conditions(test_command)


async def _decided(settings: Settings, served: set[str], facts: Facts) -> RouteDecision:
    return await Router(lambda: settings, lambda: served).route(facts)
