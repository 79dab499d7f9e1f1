"""ToolRegistry: the innermost `ToolRunner`.

Tools are found by entry point and imported when a session's toolsets ask for
them. The registry turns the model's JSON into arguments, failures into
results, and overlong results into files. Policy is not here: it wraps the
registry.
"""

import difflib
import logging
from collections.abc import Iterable

from hermes.agent.tools.define import Handler, Tool, decode_arguments, spill
from hermes.agent.tools.toolsets import installed_tools, resolve_toolsets
from hermes.domain.entry_points import load_entry_point
from hermes.domain.errors import ConfigError, HermesError, ToolRefused
from hermes.domain.messages import ToolCall, ToolOutcome
from hermes.domain.tools import Need, ToolContext, ToolResult, ToolSpec

log = logging.getLogger(__name__)


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
        self._entries: dict[str, tuple[Tool, Handler]] = {}
        for name in sorted(self.choice.tools):
            try:
                tool: Tool = added.get(name) or load_entry_point(installed[name].target)
                reason = tool.check(secret_names) or _missing(tool.spec.needs - granted)
            except ConfigError as error:
                log.warning("The tool %s is left out. %s", name, error.message)
                self.unavailable[name] = "it cannot be loaded"
                continue
            if reason:
                self.unavailable[name] = reason
            else:
                self._entries[name] = (tool, tool.make_handler())
        self._specs = tuple(tool.spec for tool, _ in self._entries.values())

    def specs(self) -> tuple[ToolSpec, ...]:
        return self._specs

    def spec(self, name: str) -> ToolSpec | None:
        return self._entries[name][0].spec if name in self._entries else None

    async def run(self, call: ToolCall, context: ToolContext) -> ToolResult:
        """Carry out `call`. Failures are results; only bugs raise."""
        if call.name not in self._entries:
            return ToolResult(content=self._unknown(call.name), outcome=ToolOutcome.ERROR)
        tool, handler = self._entries[call.name]
        try:
            result = await handler(decode_arguments(tool, call.arguments), context)
            cap = min(tool.spec.max_result_chars, context.max_result_chars)
            return await spill(result, cap, context)
        except HermesError as error:
            refused = isinstance(error, ToolRefused)
            return ToolResult(
                content=f"{error.message} {error.hint}".strip(),
                outcome=ToolOutcome.REFUSED if refused else ToolOutcome.ERROR,
            )

    def _unknown(self, name: str) -> str:
        if name in self.unavailable:
            return f"The tool `{name}` is not available: {self.unavailable[name]}."
        near = difflib.get_close_matches(name, self._entries, n=1, cutoff=0.5)
        suggestion = f" Did you mean `{near[0]}`?" if near else ""
        return f"There is no tool `{name}`.{suggestion} Tools: {', '.join(self._entries)}."


def _missing(needs: frozenset[Need]) -> str:
    return f"it may not {' or '.join(sorted(needs))} here" if needs else ""
