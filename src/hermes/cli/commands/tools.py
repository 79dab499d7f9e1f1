"""`hermes tools`: the tools of the agent at a door, and switching them on and off.

What a person chooses for a door is `platform_toolsets.<platform>`; for all doors,
`agent.disabled_toolsets`. A choice that is the same as the default leaves no key behind.
"""

import difflib
from collections.abc import Sequence

import click

from hermes.agent.tools.registry import ToolRegistry
from hermes.agent.tools.toolsets import EVERYTHING, composites, expanded, installed_tools
from hermes.agent.tools.toolsets import tools_by_toolset as by_toolset
from hermes.cli.home import json_option, loaded_config, say_json, this_home
from hermes.config.edit import set_value, unset_value
from hermes.config.environment import process_environ
from hermes.config.loader import LoadedConfig
from hermes.domain.errors import UsageError
from hermes.domain.platforms import platforms

EVERYWHERE = "all"

platform_option = click.option(
    "--platform",
    default="cli",
    show_default=True,
    metavar="NAME",
    help="The door: cli, telegram, api_server, cron, ... or `all` for every door.",
)
names_argument = click.argument("names", nargs=-1, required=True, metavar="NAME...")


@click.group("tools")
def command() -> None:
    """List, enable and disable the tools of the agent."""


@command.command("list")
@platform_option
@json_option
def list_command(platform: str, as_json: bool) -> None:
    """List toolsets and tools, and which of them the agent has at a door."""
    loaded = loaded_config()
    _check_door(platform)
    platform = "cli" if platform == EVERYWHERE else platform
    sets = by_toolset({name: tool.toolset for name, tool in installed_tools().items()})
    disabled = loaded.config.agent.disabled_toolsets
    registry = ToolRegistry(
        _chosen(loaded, platform), disabled, secret_names=loaded.secrets.names()
    )
    offered = {spec.name for spec in registry.specs()}
    rows = [
        {
            "toolset": toolset,
            "tool": tool,
            "enabled": tool in registry.choice.tools,
            "available": tool in offered,
            "reason": registry.unavailable.get(tool, ""),
        }
        for toolset, tools in sorted(sets.items())
        for tool in sorted(tools)
    ]
    if as_json:
        say_json({"platform": platform, "tools": rows})
        return
    for row in rows:
        state = "on " if row["enabled"] else "off"
        why = f"  (not available: {row['reason']})" if row["reason"] else ""
        click.echo(f"{state}  {row['toolset']:<16} {row['tool']}{why}")
    for name in registry.choice.unknown:
        click.echo(f"`{name}` names no toolset or tool that is installed.", err=True)


@command.command("enable")
@names_argument
@platform_option
def enable_command(names: Sequence[str], platform: str) -> None:
    """Switch toolsets or single tools on."""
    _switch(names, platform, on=True)


@command.command("disable")
@names_argument
@platform_option
def disable_command(names: Sequence[str], platform: str) -> None:
    """Switch toolsets or single tools off."""
    _switch(names, platform, on=False)


def _switch(names: Sequence[str], platform: str, *, on: bool) -> None:
    loaded = loaded_config()
    toolset_of = {name: tool.toolset for name, tool in installed_tools().items()}
    sets = by_toolset(toolset_of)
    _check(names, {*sets, *toolset_of, *composites()})
    _check_door(platform)
    wanted = expanded(names)
    disabled = loaded.config.agent.disabled_toolsets
    if platform == EVERYWHERE:
        kept = tuple(name for name in disabled if name not in wanted)
        _write("agent.disabled_toolsets", kept if on else (*kept, *wanted), ())
    else:
        now = _opened(_chosen(loaded, platform), sets)
        for name in wanted:
            now = _with(now, name, sets) if on else _without(now, name, sets, toolset_of)
        usual = expanded(_chosen(loaded, platform, usual=True))
        _write(f"platform_toolsets.{platform}", now, usual)
        blocked = [name for name in wanted if on and name in disabled]
        if blocked:
            raise UsageError(
                f"`{blocked[0]}` is off at every door.",
                hint=f"Switch it on with: hermes tools enable {blocked[0]} --platform all",
            )
    where = "every door" if platform == EVERYWHERE else platform
    click.echo(f"{', '.join(names)} {'on' if on else 'off'} for {where}.")


def _chosen(loaded: LoadedConfig, platform: str, *, usual: bool = False) -> tuple[str, ...]:
    """Return what is configured for a door, or what it has without that."""
    settings = loaded.config
    own = None if usual else settings.platform_toolsets.get(platform)
    if own is not None:
        return own
    return settings.toolsets if platform == "cli" else (f"hermes-{platform.replace('_', '-')}",)


def _opened(names: Sequence[str], sets: dict[str, set[str]]) -> list[str]:
    if EVERYTHING & set(names):
        return sorted(sets)
    return list(expanded(names))


def _with(names: list[str], wanted: str, sets: dict[str, set[str]]) -> list[str]:
    inside = sets.get(wanted, set())
    kept = [name for name in names if name not in inside and name != wanted]
    return [*kept, wanted]


def _without(
    names: list[str], wanted: str, sets: dict[str, set[str]], toolset_of: dict[str, str]
) -> list[str]:
    inside, around = sets.get(wanted, set()), toolset_of.get(wanted, "")
    kept = [name for name in names if name not in inside and name != wanted]
    if around in kept and wanted not in sets:  # a single tool of a toolset that is on
        kept.remove(around)
        kept += sorted(sets[around] - {wanted})
    return kept


def _check(names: Sequence[str], known: set[str]) -> None:
    for name in names:
        if name not in known and not name.startswith("hermes-"):
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"Did you mean `{near[0]}`?" if near else "See them with: hermes tools list"
            raise UsageError(f"There is no toolset or tool `{name}`.", hint=hint)


def _check_door(name: str) -> None:
    own = (each.removeprefix("hermes-") for each in composites() if each.startswith("hermes-"))
    known = {EVERYWHERE, *platforms(), *(each.replace("-", "_") for each in own)}
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"Did you mean `{near[0]}`?" if near else f"There are: {', '.join(sorted(known))}."
        raise UsageError(f"There is no door `{name}`.", hint=hint)


def _write(key: str, names: Sequence[str], usual: Sequence[str]) -> None:
    home, environ = this_home(), process_environ()
    if set(names) == set(usual):
        unset_value(home, key, environ=environ)
    else:
        set_value(home, key, list(names), environ=environ)
