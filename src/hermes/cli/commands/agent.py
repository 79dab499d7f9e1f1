"""`hermes agent`: the agents of this home and the way of messages to them."""

import asyncio
import shutil
from collections.abc import Iterator
from typing import Any

import click

from hermes.app.agents import agent_problems, model_problems
from hermes.app.doubts import config_doubts
from hermes.app.platforms import PlatformAccount, bot_id, enabled_accounts
from hermes.cli.home import app_options, json_option, loaded_config, say, say_json, this_home
from hermes.config.agent_edit import (
    add_agent,
    agents_of,
    check_known,
    is_route,
    move_home,
    named_at,
    remove_agent,
    rename_changes,
    written,
)
from hermes.config.agents import agent_entry, check_id, home_of, read_agent
from hermes.config.document import format_key
from hermes.config.edit import change_values, render
from hermes.config.environment import process_environ
from hermes.config.loader import LoadedConfig
from hermes.config.paths import HermesHome
from hermes.control.admission.routing import (
    CONDITIONS,
    Facts,
    RouteDecision,
    Router,
    explained,
    named,
    refused_routes,
    route_facts,
    routes_to,
)
from hermes.control.commands.wording import count
from hermes.control.supervision.instance import running_gateway
from hermes.domain.errors import (
    ConfigError,
    Conflict,
    HermesError,
    NotFound,
    SessionBusy,
    UsageError,
)
from hermes.domain.profile import DEFAULT_AGENT
from hermes.domain.settings import Settings
from hermes.domain.wording import one_line
from hermes.execution.clock import SystemClock
from hermes.state.ownership import owner_alive
from hermes.state.sqlite.ledger import existing_ledger
from hermes.state.webhook_routes import HookRouteFile


@click.group("agent")
def command() -> None:
    """The agents of this home, and which of them messages are for."""


def _accounts(loaded: LoadedConfig, platform: str | None = None) -> list[PlatformAccount]:
    """Return the accounts of a platform, or all; which agent each belongs to is what matters."""
    try:
        found = enabled_accounts(lambda: loaded, app_options(platform="gateway"), SystemClock())
    except ConfigError:
        return []
    return [each for each in found if platform in (None, each.platform.name)]


def _described(loaded: LoadedConfig, *agents: str) -> Iterator[dict[str, Any]]:
    """Yield what there is to know about agents.

    `problem` says why messages for one are refused, `model_problem` why its model cannot be called.
    """
    problems, accounts = agent_problems(loaded, this_home()), _accounts(loaded)
    models = model_problems(loaded, this_home())
    for each in agents:
        bots = [account.name for account in accounts if account.agent == each]
        problem = problems.get(each)
        trouble = {"problem": problem, "model_problem": None if problem else models.get(each)}
        yield {**_facts(loaded, each), "bots": bots, **trouble}


def _facts(loaded: LoadedConfig, agent_id: str) -> dict[str, Any]:
    home, data = this_home(), written(this_home())
    facts: dict[str, Any] = {"id": agent_id, "default": False}
    facts["default"] = named(loaded.config.default_agent) == agent_id
    places = (path for path in named_at(data, agent_id) if not is_route(path))
    facts["named_by"] = [format_key(path) for path in places]
    facts["routes"] = routes_to(loaded.config, agent_id)
    try:
        agent = read_agent(agent_id, loaded, home)
    except HermesError:
        return facts
    settings = agent.scope.settings(loaded.config) if agent.scope else loaded.config
    entry = agent.entry
    return facts | {
        "home": str(agent.home.root),
        "shares_home": entry.home if agent.home == home or entry.home in data["agents"] else "",
        "description": entry.description,
        "model": settings.model.model,
        "provider": settings.model.provider,
        "toolsets": None if entry.toolsets is None else list(entry.toolsets),
        "backend": settings.terminal.backend,
        "exposed": entry.expose,
        "may_ask": list(settings.ask_agent.agents) if settings.ask_agent.enabled else [],
    }


@command.command("list")
@json_option
def list_command(as_json: bool) -> None:
    """List the agents: what they are for, their model, and what is wrong with them."""
    loaded = loaded_config()
    found = [*_described(loaded, *dict.fromkeys([DEFAULT_AGENT, *loaded.config.agents]))]
    if as_json:
        say_json({"agents": found})
        return
    for each in found:
        marks = " (default)" if each["default"] else ""
        if each["problem"]:
            say(f"{each['id']}{marks}  cannot answer: {each['problem']}")
            continue
        hidden = "" if each["exposed"] else "  not on the API"
        about = f"  {one_line(each['description'], 60)}" if each["description"] else ""
        say(f"{each['id']}{marks}  {each['model'] or 'no model'}{hidden}{about}")
        if each["model_problem"]:
            say(f"  cannot answer: {each['model_problem']}")


@command.command("show")
@click.argument("agent_id", metavar="ID", default=DEFAULT_AGENT)
@json_option
@click.pass_context
def show_command(ctx: click.Context, agent_id: str, as_json: bool) -> None:
    """Show an agent: home, model, toolsets, exposure, the rules that lead to it, trouble."""
    loaded = loaded_config()
    agent_id = named(agent_id)
    check_known(loaded.config.agents, agent_id)
    (found,) = _described(loaded, agent_id)
    if as_json:
        say_json(found)
    else:
        for line in _lines(found):
            say(line)
    ctx.exit(1 if found["problem"] else 0)


def _lines(found: dict[str, Any]) -> list[str]:
    leads = dict.fromkeys([*found["bots"], *found["routes"], *found["named_by"]])
    facts = {
        "Agent": found["id"] + (" (default)" if found["default"] else ""),
        "Description": found.get("description"),
        "Home": found.get("home"),
        "Shares the home of": found.get("shares_home"),
        "Model": " at ".join(filter(None, (found.get("model"), found.get("provider")))),
        "Backend": found.get("backend"),
    }
    if "toolsets" in found:
        own = found["toolsets"]
        facts["Toolsets"] = "those of each door" if own is None else ", ".join(own) or "none"
        facts["On the API"] = "yes" if found["exposed"] else "no"
        facts["May ask"] = ", ".join(found["may_ask"]) or "nobody"
    facts["Reached by"] = ", ".join(leads) or "no route: only -a, /agent and the API reach it"
    facts["Trouble"] = found["problem"] or found["model_problem"] or "none"
    return [f"{name}: {value}" for name, value in facts.items() if value]


_ENTRY_OPTIONS = (
    click.option("--description", help="What it is for, in a sentence."),
    click.option("-m", "--model", help="Its model."),
    click.option("--provider", help="The provider of its model."),
    click.option("-t", "--toolsets", metavar="A,B", help="Its toolsets, at every door."),
    click.option("--backend", help="Where its commands run."),
    click.option("--prompt", help="Who it is, in place of SOUL.md."),
    click.option("--home", help="Its directory, or an agent whose home it shares."),
    click.option("--hidden", "expose", flag_value=False, default=None, help="Not on the API."),
)


def _entry_options(add: click.Command) -> click.Command:
    for option in reversed(_ENTRY_OPTIONS):
        add = option(add)
    return add


@command.command("add")
@click.argument("agent_id", metavar="ID")
@click.option("--clone", metavar="AGENT", default="", help="Copy this agent's settings and files.")
@click.option("--with-env", is_flag=True, help="Copy its secrets (.env), too.")
def add_command(agent_id: str, clone: str, with_env: bool, **given: Any) -> None:
    """Add an agent with a home of its own, `agents/ID` unless --home says otherwise.

    A copy gets SOUL.md, memories and skills of the other agent, but no secrets unless asked.
    """
    if with_env and not clone:
        raise UsageError("--with-env goes with --clone.")
    entry = {key: value for key, value in given.items() if value is not None}
    if "toolsets" in entry:
        entry["toolsets"] = [each.strip() for each in entry["toolsets"].split(",") if each.strip()]
    home = this_home().ensure()
    own = add_agent(
        home, agent_id, entry, clone=clone, with_env=with_env, environ=process_environ()
    )
    say(f"The agent {agent_id} is there. Its home: {own.root}")
    if not (own.soul_file.exists() or entry.get("prompt")):
        say(f"Say who it is in {own.soul_file}.")
    say(f"Talk to it: hermes -a {agent_id}")
    say(f"Send it messages: hermes agent route add {agent_id} --platform ... --chat-id ...")
    if problem := model_problems(loaded_config(), home).get(agent_id):
        say(f"It cannot answer yet: {problem}")


_entry_options(add_command)


@command.command("remove")
@click.argument("agent_id", metavar="ID")
@click.option("--routes", is_flag=True, help="Remove the routes to it, too.")
@click.option("--delete-home", is_flag=True, help="Delete its files, for good.")
@click.option("--yes", is_flag=True, help="Do not ask before deleting files.")
def remove_command(agent_id: str, routes: bool, delete_home: bool, yes: bool) -> None:
    """Remove an agent. Its files stay unless --delete-home; its conversations stay.

    A route to an agent that is not there refuses messages: nobody else answers for it.
    """
    home = this_home()
    agents = agents_of(written(home))
    check_known(agents, agent_id)
    try:
        own = home_of(agent_id, agents, home)
    except ConfigError:  # its entry is broken, which is no reason to keep it
        own = HermesHome(root=home.agents_dir / agent_id)
    own_files = own.root == home.agents_dir / agent_id
    if delete_home and not own_files:
        raise UsageError(
            f"{own.root} is not its own place below agents/.", hint="Delete it by hand."
        )
    if delete_home and not yes and not click.confirm(f"Delete {own.root} for good?", err=True):
        raise click.Abort
    gone, left = remove_agent(home, agent_id, routes=routes, environ=process_environ())
    say(f"The agent {agent_id} is removed.")
    for route in gone:
        say(f"Removed: {route}. Its messages are now for the next rule that matches.")
    hooks = HookRouteFile(home).read()
    left += [f"the webhook {name}" for name, each in hooks.items() if each.get("agent") == agent_id]
    for place in left:
        click.echo(f"warning: {place} still names it and refuses messages.", err=True)
    if any("routes" in place for place in left):
        click.echo("  -> See: hermes agent route list; hermes agent route remove N", err=True)
    if delete_home:
        shutil.rmtree(own.root, ignore_errors=True)
    elif own.root.is_dir() and own != home:
        say(f"Its files are still in {own.root}.")


@command.command("rename")
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
def rename_command(old: str, new: str) -> None:
    """Rename an agent: its home, its entry, its routes, its keys and all its conversations."""
    home, environ = this_home(), process_environ()
    data = written(home)
    agents = agents_of(data)
    check_known(agents, old)
    own = home_of(old, agents, home)
    check_id(new)
    if old == DEFAULT_AGENT:
        raise UsageError("The agent `main` keeps its name: its home is the Hermes home.")
    if new in agents or new == DEFAULT_AGENT:
        raise Conflict(f"There is an agent `{new}` already.")
    holder = running_gateway(home.root)
    if holder is not None:
        raise Conflict(
            f"The gateway of this home is running (process {holder.pid}).",
            hint="Stop it first, since conversations move: hermes gateway stop",
        )
    target = home.agents_dir / new
    moves = own.root == home.agents_dir / old and not agent_entry(old, agents[old]).home
    if moves and target.exists():
        raise Conflict(f"{target} exists already.", hint="Move it away first.")
    places = (str(own.root), str(target if moves else own.root))
    sessions = asyncio.run(_rename_in_ledger(home, old, new, places))
    moved = False
    try:
        moved = moves and move_home(own.root, target)
        change_values(home, rename_changes(data, old, new), environ=environ)
    except BaseException:
        if moved:
            move_home(target, own.root)
        asyncio.run(_rename_in_ledger(home, new, old, (places[1], places[0])))
        raise
    hooks = HookRouteFile(home)
    if any(each.get("agent") == old for each in hooks.read().values()):
        hooks.change(
            lambda routes: {
                name: {**each, "agent": new} if each.get("agent") == old else each
                for name, each in routes.items()
            }
        )
    say(f"{old} is now {new}, with {count(sessions, 'conversation')}. Its home: {places[1]}")


async def _rename_in_ledger(home: HermesHome, old: str, new: str, homes: tuple[str, str]) -> int:
    async with existing_ledger(home) as ledger:
        for turn in await ledger.open_turns():
            session = await ledger.session(turn.session_id)
            if session and session.agent_id == old and owner_alive(turn.owner, home.run_dir):
                raise SessionBusy(
                    f"`{old}` is in the middle of a turn (session {session.id}).",
                    hint="Wait until it has ended.",
                )
        return await ledger.rename_agent(old, new, *homes)


@command.group("route")
def route_command() -> None:
    """Which agent messages are for."""


def _conditions(test: click.Command) -> click.Command:
    for name in reversed(CONDITIONS):
        flag = f"--{name.replace('_', '-')}"
        test = click.option(flag, name, default=None, help=f"The message's {name}.")(test)
    return test


@route_command.command("list")
@json_option
def list_routes_command(as_json: bool) -> None:
    """List the routes in their order: the first that matches decides."""
    config = loaded_config().config
    problems = refused_routes(config, {DEFAULT_AGENT, *config.agents})
    if as_json:
        facts = {"routes": config.routes, "profile_routes": config.profile_routes}
        say_json({**facts, "default_agent": config.default_agent, "problems": problems})
        return
    for key in ("routes", "profile_routes"):
        for at, route in enumerate(getattr(config, key)):
            say(f"{key}[{at}]: {one_line(render(route), 200)}")
    say(f"default_agent: {named(config.default_agent)}")
    for problem in problems:
        click.echo(f"warning: {problem}", err=True)


@route_command.command("add")
@click.argument("agent_id", metavar="AGENT")
@click.option("--at", type=click.IntRange(min=0), help="Its place; otherwise the last.")
@click.option("--model", help="Another model for these messages.")
@click.option("--prompt", help="What the agent is told there, too.")
def add_route_command(agent_id: str, at: int | None, **given: str | None) -> None:
    """Send the messages that fit to AGENT. A condition may be `A,B` or have `*` and `?`."""
    home = this_home()
    data = written(home)
    agent_id = named(agent_id)
    check_known(agents_of(data), agent_id)
    match: dict[str, Any] = {}
    for name in CONDITIONS:
        values = [each.strip() for each in (given[name] or "").split(",") if each.strip()]
        if values:
            match[name] = values if len(values) > 1 else values[0]
    if not match:
        raise UsageError(
            "A route needs a condition.",
            hint="All other messages go to `default_agent`: hermes config set default_agent ID",
        )
    terms = {key: given[key] for key in ("model", "prompt") if given[key]}
    route = {"match": match, "agent": agent_id, **terms}
    routes = data.get("routes") or []
    place = len(routes) if at is None else min(at, len(routes))
    change = (("routes", f"+{place}"), route) if routes else (("routes",), [route])
    change_values(home, [change], environ=process_environ())
    say(f"routes[{place}]: {render(route)}")


_conditions(add_route_command)


@route_command.command("remove")
@click.argument("number", type=click.IntRange(min=0), metavar="N")
def remove_route_command(number: int) -> None:
    """Remove routes[N]."""
    home = this_home()
    routes = written(home).get("routes") or []
    if number >= len(routes):
        raise NotFound(f"There is no routes[{number}].", hint="See: hermes agent route list")
    change_values(home, [(("routes", str(number)), None)], environ=process_environ())
    say(f"Removed: {render(routes[number])}")


@route_command.command("test")
@json_option
@click.pass_context
def test_command(ctx: click.Context, /, as_json: bool, **given: str | None) -> None:
    """Say which agent answers a message from a place, which rule decides, and why.

    The hook `select_agent` belongs to the running gateway and is not asked here.
    """
    loaded = loaded_config()
    account, doubts = _account_of(loaded, given), config_doubts(loaded, this_home())
    own = account.agent if account is not None else ""
    names = (given["account"], account.account if account is not None else None)
    facts = route_facts(**{**{name: (value,) for name, value in given.items()}, "account": names})
    steps = explained(loaded.config, facts, own)
    served = {DEFAULT_AGENT, *loaded.config.agents}
    try:
        found = asyncio.run(_decided(loaded.config, served, facts, own))
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
    for doubt in doubts:
        click.echo(f"warning: {doubt}", err=True)
    ctx.exit(NotFound.exit_code if problem else 0)


_conditions(test_command)


async def _decided(settings: Settings, served: set[str], facts: Facts, owner: str) -> RouteDecision:
    return await Router(lambda: settings, lambda: served).route(facts, owner=owner)


def _account_of(loaded: LoadedConfig, given: dict[str, str | None]) -> PlatformAccount | None:
    """Return the account that a message would come to: the named one, or the only one."""
    wanted, accounts = given["account"], _accounts(loaded, given["platform"] or "")
    if len(accounts) == 1:
        return accounts[0]
    if own := [f"--account {each.account}" for each in accounts if each.agent and not wanted]:
        say(f"{given['platform']} has bots that belong to an agent: {', '.join(own)}")
    named = (each for each in accounts if wanted and wanted in (each.account, bot_id(each)))
    return next(named, None)
