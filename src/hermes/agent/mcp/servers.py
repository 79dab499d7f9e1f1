"""McpServers: the servers of the configuration, and their tools as ours.

Each enabled server has a connection with a task of its own. A changed configuration is noticed at
the next turn: servers that are gone are left, new ones are met, changed ones are met again. The
first turn waits a moment (`mcp_discovery_timeout`) for servers to say what they offer; who is late
is there for the next turn.
"""

import asyncio
import json
import logging
import re
import time
from collections import deque
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct

from hermes.agent.tools.define import Tool, tool
from hermes.domain.errors import HermesError, MissingExtra
from hermes.domain.settings import Settings
from hermes.domain.settings.agent import McpServerSettings
from hermes.domain.tools import Need, Parallel, ToolContext, ToolResult, ToolSpec

if TYPE_CHECKING:
    from hermes.agent.mcp.client import ListedTool, McpConnection

log = logging.getLogger(__name__)

MAX_NAME = 64
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")


class ResourceArgs(Struct, frozen=True, kw_only=True):
    uri: Annotated[str | None, Meta(description="Leave out to list them")] = None


class PromptArgs(Struct, frozen=True, kw_only=True):
    name: Annotated[str | None, Meta(description="Leave out to list them")] = None
    arguments: dict[str, str] = {}


class McpServers:
    def __init__(
        self,
        settings: Callable[[], Settings],
        tokens: Path,
        *,
        redact: Callable[[str], str] = str,
        sample: Callable[..., Any] | None = None,
    ) -> None:
        self._settings, self._tokens, self._redact = settings, tokens, redact
        self._sample = sample
        self._connections: dict[str, tuple[McpConnection, asyncio.Task[None]]] = {}
        self._seen: Mapping[str, McpServerSettings] = {}
        self._tools: tuple[Tool, ...] | None = ()
        self._missing = ""
        """What keeps every server away."""
        self._asked: dict[str, deque[float]] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(wanted(self._settings())))

    def states(self) -> list[tuple[str, int, str]]:
        """Return name, number of tools and trouble of each server."""
        found = {name: connection for name, (connection, _) in self._connections.items()}
        return [
            (name, len(offered(found[name])), found[name].error)
            if name in found
            else (name, 0, self._missing)
            for name in self.names
        ]

    def absent(self) -> dict[str, str]:
        """Return the servers whose tools are not there now, and why."""
        found = {name: connection for name, (connection, _) in self._connections.items()}
        late = {
            name: "it has not answered yet" for name in found if not found[name].settled.is_set()
        }
        return late | {name: error for name, _, error in self.states() if error}

    async def tools(self) -> tuple[Tool, ...]:
        """Return the tools of the servers that have been met."""
        settings = self._settings()
        if settings.mcp_servers is not self._seen:
            await self._follow(settings)
        if self._tools is None:
            found = [tool for name in sorted(self._connections) for tool in self._of(name)]
            self._tools = tuple({tool.spec.name: tool for tool in found}.values())
        return self._tools

    async def reload(self) -> None:
        """Meet every server again."""
        await self._leave(list(self._connections))
        self._seen = {}
        await self.tools()

    async def close(self) -> None:
        await self._leave(list(self._connections))

    async def _leave(self, names: list[str]) -> None:
        tasks = [self._connections.pop(name)[1] for name in names]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, settings: Settings) -> None:
        servers, self._seen = wanted(settings), settings.mcp_servers
        gone = [
            name
            for name, (connection, _) in self._connections.items()
            if servers.get(name) != connection.settings
        ]
        await self._leave(gone)
        new = [name for name in servers if name not in self._connections]
        try:
            client = await asyncio.to_thread(client_module) if new else None
        except MissingExtra as error:
            self._missing = f"{error.message} {error.hint}"
            log.warning("MCP servers are left out: %s", self._missing)
            client = None
        if client is not None:
            parts = client.McpParts(
                tokens=self._tokens,
                redact=self._redact,
                sample=self._sampled if self._sample else None,
            )
            for name in new:
                connection = client.McpConnection(name, servers[name], parts)
                connection.changed = self._forget
                # Owned by this object and ended by `close`, like the clients of models.
                task = asyncio.ensure_future(connection.run())
                self._connections[name] = (connection, task)
            waits = [asyncio.ensure_future(self._connections[n][0].settled.wait()) for n in new]
            _, late = await asyncio.wait(waits, timeout=settings.mcp_discovery_timeout)
            for wait in late:
                wait.cancel()
        self._forget()

    def _forget(self) -> None:
        self._tools = None

    async def _sampled(
        self, name: str, messages: list[tuple[str, str]], system: str, tokens: int
    ) -> tuple[str, str]:
        limits, now = self._settings().mcp_servers[name].sampling, time.monotonic()
        asked = self._asked.setdefault(name, deque())
        while asked and asked[0] < now - 60:
            asked.popleft()
        if len(asked) >= limits.max_rpm:
            raise HermesError(f"{name} may ask the model {limits.max_rpm} times a minute.")
        asked.append(now)
        assert self._sample is not None
        model, text = await self._sample(messages, system, tokens)
        return str(model), str(text)

    def _of(self, name: str) -> list[Tool]:
        connection, _ = self._connections[name]
        chosen = connection.settings.tools
        made = [_tool_of(connection, each) for each in offered(connection)]
        if connection.has_resources and chosen.resources:
            made.append(_resources(connection))
        if connection.has_prompts and chosen.prompts:
            made.append(_prompts(connection))
        return made


def wanted(settings: Settings) -> dict[str, McpServerSettings]:
    """Return the servers that are switched on."""
    return {n: s for n, s in settings.mcp_servers.items() if s.enabled and (s.command or s.url)}


def client_module() -> Any:
    try:
        from hermes.agent.mcp import client  # noqa: PLC0415 - a second, and few have servers
    except ImportError as error:
        raise MissingExtra("mcp", "An MCP server") from error
    return client


def offered(connection: "McpConnection") -> "list[ListedTool]":
    """Return the tools of a server that the settings let the agent have."""
    chosen = connection.settings.tools
    return [
        each
        for each in connection.tools
        if (not chosen.include or _named(each.name, chosen.include))
        and not _named(each.name, chosen.exclude)
    ]


def _named(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def tool_name(server: str, name: str) -> str:
    return _UNSAFE.sub("_", f"mcp_{server}_{name}")[:MAX_NAME]


def _tool_of(connection: "McpConnection", each: Any) -> Tool:
    async def call(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        context.unsecret(json.dumps(arguments, ensure_ascii=False))
        return await connection.call(each.name, arguments, context)

    spec = ToolSpec(
        name=tool_name(connection.name, each.name),
        toolset=f"mcp-{connection.name}",
        description=each.description,
        parameters=each.parameters,
        emoji="🔌",
        verb=each.name,
        label_field=next(iter(each.parameters["properties"]), ""),
        parallel=Parallel.ALWAYS if each.read_only else Parallel.NEVER,
        replay_safe=each.read_only,
        destructive=each.destructive,
    )
    return Tool(spec=spec, arguments=dict, make_handler=lambda: call)


def _resources(connection: "McpConnection") -> Tool:
    async def resources(args: ResourceArgs, context: ToolContext) -> ToolResult:
        context.unsecret(args.uri or "")
        return ToolResult(content=await connection.resources(args.uri) or "There are none.")

    resources.__doc__ = f"List or read the resources of {connection.name}."
    return tool(resources, _reading(connection.name, "resources", "uri"))


def _prompts(connection: "McpConnection") -> Tool:
    async def prompts(args: PromptArgs, context: ToolContext) -> ToolResult:
        context.unsecret(json.dumps(args.arguments, ensure_ascii=False))
        text = await connection.prompts(args.name, args.arguments)
        return ToolResult(content=text or "There are none.")

    prompts.__doc__ = f"List or fill in the prompts of {connection.name}."
    return tool(prompts, _reading(connection.name, "prompts", "name"))


def _reading(server: str, what: str, label: str) -> ToolSpec:
    return ToolSpec(
        name=tool_name(server, what),
        toolset=f"mcp-{server}",
        emoji="🔌",
        verb=f"read {what}",
        label_field=label,
        parallel=Parallel.ALWAYS,
        replay_safe=True,
        needs=frozenset[Need](),
    )
