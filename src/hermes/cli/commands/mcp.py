"""`hermes mcp`: servers whose tools the agent uses."""

import asyncio
import sys
from typing import Any

import click

from hermes.config.agent_edit import check_known
from hermes.config.agents import read_agent
from hermes.config.edit import set_value, unset_value
from hermes.config.environment import process_environ
from hermes.config.loader import load_config
from hermes.config.paths import HermesHome
from hermes.domain.errors import NotFound, UsageError
from hermes.domain.settings.agent import McpServerSettings


@click.group("mcp")
def command() -> None:
    """Add, list, test and remove MCP servers, whose tools the agent uses."""


_of_agent = click.option("-a", "--agent", metavar="ID", default="", help="As this agent has it.")


def _servers(agent: str = "") -> tuple[HermesHome, dict[str, McpServerSettings]]:
    """Return the servers, and the home where what signing in gave is kept: that of their agent."""
    environ = process_environ()
    home = HermesHome.from_environ(environ)
    loaded = load_config(home, environ)
    if not agent:
        return home, dict(loaded.config.mcp_servers)
    check_known(loaded.config.agents, agent)
    found = read_agent(agent, loaded, home)
    settings = found.scope.settings(loaded.config) if found.scope else loaded.config
    return found.home, dict(settings.mcp_servers)


def _server(name: str, agent: str = "") -> tuple[HermesHome, McpServerSettings]:
    home, servers = _servers(agent)
    if name not in servers:
        raise NotFound(f"There is no MCP server `{name}`.", hint="List them with: hermes mcp list")
    return home, servers[name]


@command.command("add", context_settings={"ignore_unknown_options": True})
@click.argument("name")
@click.argument("target", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--env", "variables", multiple=True, metavar="NAME=VALUE", help="A variable for it.")
@click.option("--header", "headers", multiple=True, metavar="NAME: VALUE", help="Sent to it.")
@click.option(
    "--transport", type=click.Choice(["http", "sse"]), help="How an address is spoken to."
)
@click.option("--auth", type=click.Choice(["oauth"]), help="It wants somebody to sign in.")
def add_command(
    name: str,
    target: tuple[str, ...],
    variables: tuple[str, ...],
    headers: tuple[str, ...],
    transport: str | None,
    auth: str | None,
) -> None:
    """Add the server NAME: an address, or `--` and the program with its arguments."""
    if not name.replace("-", "").replace("_", "").isalnum():
        raise UsageError("The name may have letters, digits, - and _.")
    home, servers = _servers()
    words = target[1:] if target[0] == "--" else target
    given: dict[str, Any] = {}
    if words and words[0].startswith(("http://", "https://")):
        given = {"url": words[0], **({"transport": transport} if transport else {})}
    elif words:
        given = {"command": words[0], "args": list(words[1:])}
    given |= {"auth": auth} if auth else {}
    given |= {"env": _pairs(variables, "=")} if variables else {}
    given |= {"headers": _pairs(headers, ":")} if headers else {}
    set_value(home, f"mcp_servers.{name}", given, environ=process_environ())
    click.echo(
        f"{'Changed' if name in servers else 'Added'} {name}. Try it: hermes mcp test {name}"
    )


def _pairs(texts: tuple[str, ...], separator: str) -> dict[str, str]:
    split = [text.partition(separator) for text in texts]
    if wrong := [name for name, found, _ in split if not found]:
        raise UsageError(f"`{wrong[0]}` is not NAME{separator}VALUE.")
    return {name.strip(): value.strip() for name, _, value in split}


@command.command("list")
@_of_agent
def list_command(agent: str) -> None:
    """List the servers; nothing is started."""
    _, servers = _servers(agent)
    if not servers:
        click.echo("There are no MCP servers. Add one with: hermes mcp add NAME URL|-- COMMAND")
    for name, server in sorted(servers.items()):
        where = server.url or " ".join([server.command, *server.args])
        click.echo(f"{name}  {'' if server.enabled else '(off) '}{where}")


@command.command("remove")
@click.argument("name")
def remove_command(name: str) -> None:
    """Remove the server NAME and what signing in gave."""
    home, _ = _server(name)
    unset_value(home, f"mcp_servers.{name}", environ=process_environ())
    (home.root / "mcp-tokens" / f"{name}.json").unlink(missing_ok=True)
    click.echo(f"Removed {name}.")


@command.command("test")
@click.argument("name")
@_of_agent
def test_command(name: str, agent: str) -> None:
    """Connect to the server NAME and list its tools."""
    home, server = _server(name, agent)
    _met(home, name, server, login=False)


@command.command("login")
@click.argument("name")
@_of_agent
def login_command(name: str, agent: str) -> None:
    """Sign in to the server NAME with the browser; each agent with a home does so for itself."""
    home, server = _server(name, agent)
    if server.auth != "oauth":
        raise UsageError(
            f"{name} does not sign in.", hint=f"hermes config set mcp_servers.{name}.auth oauth"
        )
    (home.root / "mcp-tokens" / f"{name}.json").unlink(missing_ok=True)
    _met(home, name, server, login=True)


def _met(home: HermesHome, name: str, server: McpServerSettings, *, login: bool) -> None:
    from hermes.agent.mcp.servers import client_module, offered, tool_name  # noqa: PLC0415

    client = client_module()

    async def show(address: str) -> None:
        click.echo(f"Open this address to sign in:\n{address}")

    parts = client.McpParts(
        tokens=home.root / "mcp-tokens", stderr=sys.stderr, on_login=show if login else None
    )
    connection = client.McpConnection(name, server, parts)
    asyncio.run(connection.once())
    tools = offered(connection)
    left_out = len(connection.tools) - len(tools)
    click.echo(f"{name}: {len(tools)} tools" + (f", {left_out} left out" if left_out else ""))
    for tool in tools:
        marks = " (asks first)" if tool.destructive else ""
        click.echo(f"  {tool_name(name, tool.name)}{marks}: {tool.description[:80]}")
