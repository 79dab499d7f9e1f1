"""ToolRegistry: the innermost `ToolRunner`.

Built-in tools are a map from name to module, imported when a session's
toolsets ask for them. The registry turns the model's JSON into arguments,
failures into results, and overlong results into files. Policy is not here:
it wraps the registry.
"""

import difflib
import importlib
from collections.abc import Iterable, Mapping

from msgspec import Struct

from hermes.agent.tools.define import Handler, Tool, capped, decode_arguments
from hermes.agent.tools.toolsets import ToolsetChoice, resolve_toolsets
from hermes.domain.errors import ConfigError, HermesError, ToolRefused
from hermes.domain.messages import ToolCall, ToolOutcome
from hermes.domain.tools import ToolContext, ToolResult, ToolSpec

__all__ = ["BUILTIN", "ToolRegistry", "ToolsetChoice", "load_tool", "resolve_toolsets"]

_HERE = "hermes.agent.tools"

BUILTIN: Mapping[str, str] = {
    "patch": f"{_HERE}.patch",
    "process": f"{_HERE}.process",
    "read_file": f"{_HERE}.file_read",
    "search_files": f"{_HERE}.search",
    "terminal": f"{_HERE}.terminal",
    "todo": f"{_HERE}.todo",
    "write_file": f"{_HERE}.file_write",
}
"""Built-in tools and the modules whose `TOOLS` hold them."""


class _Entry(Struct, frozen=True, kw_only=True):
    tool: Tool
    handler: Handler


def load_tool(name: str, builtin: Mapping[str, str] = BUILTIN) -> Tool:
    """Import one built-in tool."""
    tools: tuple[Tool, ...] = importlib.import_module(builtin[name]).TOOLS
    for tool in tools:
        if tool.spec.name == name:
            return tool
    raise ConfigError(f"{builtin[name]} has no tool `{name}`.")


class ToolRegistry:
    """Lists the tools of some toolsets and runs them."""

    def __init__(
        self,
        toolsets: Iterable[str],
        disabled: Iterable[str] = (),
        *,
        secret_names: frozenset[str] = frozenset(),
        extra: Iterable[Tool] = (),
        builtin: Mapping[str, str] = BUILTIN,
    ) -> None:
        """Load what `toolsets` name.

        `extra` tools (plugins, MCP) form toolsets of their own, by the name
        in their spec, and are chosen like the built-in ones.
        """
        added = {tool.spec.name: tool for tool in extra}
        self.choice = resolve_toolsets(toolsets, disabled, _toolsets_of(added.values()))
        self.unavailable: dict[str, str] = {}
        """Tools that were asked for but are not there, and why."""
        self._entries: dict[str, _Entry] = {}
        for name in sorted(self.choice.tools):
            if name not in added and name not in builtin:
                self.unavailable[name] = "not part of this installation"
                continue
            tool = added.get(name) or load_tool(name, builtin)
            reason = tool.check(secret_names)
            if reason:
                self.unavailable[name] = reason
            else:
                self._entries[name] = _Entry(tool=tool, handler=tool.make_handler())
        self._specs = tuple(entry.tool.spec for entry in self._entries.values())

    def specs(self) -> tuple[ToolSpec, ...]:
        """Return the available tools, sorted by name."""
        return self._specs

    def spec(self, name: str) -> ToolSpec | None:
        """Return the spec of one tool, if it is available."""
        entry = self._entries.get(name)
        return entry.tool.spec if entry else None

    async def run(self, call: ToolCall, context: ToolContext) -> ToolResult:
        """Carry out `call`. Failures are results; only bugs raise."""
        entry = self._entries.get(call.name)
        if entry is None:
            return _failure(self._unknown(call.name))
        try:
            arguments = decode_arguments(entry.tool, call.arguments)
            result = await entry.handler(arguments, context)
            return await capped(result, entry.tool.spec.max_result_chars, context)
        except ToolRefused as refusal:
            return _failure(_sentence(refusal), ToolOutcome.REFUSED)
        except HermesError as error:
            return _failure(_sentence(error))

    def _unknown(self, name: str) -> str:
        if name in self.unavailable:
            return f"The tool `{name}` is not available: {self.unavailable[name]}."
        near = difflib.get_close_matches(name, self._entries, n=1, cutoff=0.5)
        suggestion = f" Did you mean `{near[0]}`?" if near else ""
        return f"There is no tool `{name}`.{suggestion} Tools: {', '.join(self._entries)}."


def _toolsets_of(tools: Iterable[Tool]) -> dict[str, list[str]]:
    toolsets: dict[str, list[str]] = {}
    for tool in tools:
        toolsets.setdefault(tool.spec.toolset, []).append(tool.spec.name)
    return toolsets


def _failure(text: str, outcome: ToolOutcome = ToolOutcome.ERROR) -> ToolResult:
    return ToolResult(content=text, outcome=outcome)


def _sentence(error: HermesError) -> str:
    return f"{error.message} {error.hint}".strip()
