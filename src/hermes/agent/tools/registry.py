"""ToolRegistry: the innermost `ToolRunner`.

Tools are found by entry point and imported when a session's toolsets ask for
them. The registry turns the model's JSON into arguments, failures into
results, and overlong results into files. Policy is not here: it wraps the
registry.
"""

import difflib
import logging
from collections.abc import Iterable

from msgspec import Struct

from hermes.agent.tools.define import Handler, Tool, decode_arguments, spill
from hermes.agent.tools.toolsets import InstalledTool, installed_tools, resolve_toolsets
from hermes.domain.entry_points import load_entry_point
from hermes.domain.errors import ConfigError, HermesError, ToolRefused
from hermes.domain.messages import ToolCall, ToolOutcome
from hermes.domain.tools import Need, ToolContext, ToolResult, ToolSpec

log = logging.getLogger(__name__)


class _Entry(Struct, frozen=True, kw_only=True):
    tool: Tool
    handler: Handler


class ToolRegistry:
    """Lists the tools of some toolsets and runs them."""

    def __init__(
        self,
        toolsets: Iterable[str],
        disabled: Iterable[str] = (),
        *,
        secret_names: frozenset[str] = frozenset(),
        granted: frozenset[Need] = frozenset(Need),
        extra: Iterable[Tool] = (),
    ) -> None:
        """Load what `toolsets` name, as far as its needs are `granted`.

        `extra` tools (of MCP servers) form toolsets of their own, by the name
        in their spec, and are chosen like the installed ones.
        """
        added = {tool.spec.name: tool for tool in extra}
        installed = installed_tools()
        toolset_of = {name: found.toolset for name, found in installed.items()}
        toolset_of |= {name: tool.spec.toolset for name, tool in added.items()}
        self.choice = resolve_toolsets(toolsets, disabled, toolset_of)
        self.unavailable: dict[str, str] = {}
        """Tools that were asked for but are not offered, and why."""
        self._entries: dict[str, _Entry] = {}
        for name in sorted(self.choice.tools):
            try:
                tool = added.get(name) or _load(installed[name])
                reason = tool.check(secret_names) or _missing(tool.spec.needs - granted)
            except ConfigError as error:
                log.warning("The tool %s is left out. %s", name, error.message)
                self.unavailable[name] = "it cannot be loaded"
                continue
            if reason:
                self.unavailable[name] = reason
            else:
                self._entries[name] = _Entry(tool=tool, handler=tool.make_handler())
        self._specs = tuple(entry.tool.spec for entry in self._entries.values())

    def specs(self) -> tuple[ToolSpec, ...]:
        return self._specs

    def spec(self, name: str) -> ToolSpec | None:
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
            return await spill(result, entry.tool.spec.max_result_chars, context)
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


def _load(found: InstalledTool) -> Tool:
    tool: Tool = load_entry_point(found.target)
    return tool


def _missing(needs: frozenset[Need]) -> str:
    return f"it may not {' or '.join(sorted(needs))} here" if needs else ""


def _failure(text: str, outcome: ToolOutcome = ToolOutcome.ERROR) -> ToolResult:
    return ToolResult(content=text, outcome=outcome)


def _sentence(error: HermesError) -> str:
    return f"{error.message} {error.hint}".strip()
