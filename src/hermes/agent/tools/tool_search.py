"""tool_search, tool_describe, tool_call: tools that are found when they are needed.

Where the descriptions of all tools would take too much of the model's window, those of the
further toolsets (MCP servers, plugins, browser, media) are left out of the request. The model
finds them by words, reads the arguments of one, and calls it by name. A call through `tool_call`
is a call of that tool: the same policy applies, and the same record is kept.
"""

import re
from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from hermes.agent.tools.define import parse_object
from hermes.agent.tools.wrappers import ToolWrapper
from hermes.domain.messages import ToolCall, ToolOutcome
from hermes.domain.settings.agent import ToolSearch
from hermes.domain.tools import Parallel, ToolContext, ToolResult, ToolRunner, ToolSpec

ALWAYS_SHOWN = frozenset(
    {"clarify", "client", "code_execution", "delegation", "file", "memory", "session_search"}
    | {"skills", "terminal", "todo", "web"}
)
"""Toolsets that are never left out."""
_WORTH_IT = 400
"""Tokens that must be saved: the search is described in about as many."""
_WORD = re.compile(r"[a-z0-9]+")


class ToolWeights:
    """Tells what tools take of the window; those of most turns are the same."""

    def __init__(self) -> None:
        self._last: tuple[tuple[ToolSpec, ...], int, int] = ((), 0, 0)

    def of(self, specs: tuple[ToolSpec, ...]) -> tuple[int, int]:
        """Return the tokens of all tools, and of those that can be left out."""
        if self._last[0] is not specs:
            weights = [(_tokens(spec), spec.toolset in ALWAYS_SHOWN) for spec in specs]
            further = sum(weight for weight, always in weights if not always)
            self._last = specs, sum(weight for weight, _ in weights), further
        return self._last[1:]


def searchable(
    tools: ToolRunner, limits: ToolSearch, window: int | None, weights: ToolWeights | None = None
) -> ToolRunner:
    """Return `tools` with a search in front, if they take too much of the window."""
    if limits.enabled in (False, "off"):
        return tools
    specs = tools.specs()
    whole, saved = (weights or ToolWeights()).of(specs)
    if saved <= _WORTH_IT:
        return tools
    forced = limits.enabled in (True, "on")
    allowed = (window or 128_000) * limits.threshold_pct / 100
    if not forced and whole <= allowed:
        return tools
    further = (spec for spec in specs if spec.toolset not in ALWAYS_SHOWN)
    return SearchedTools(tools, tuple(further), limits)


def _tokens(spec: ToolSpec) -> int:
    schema = msgspec.json.encode(spec.parameters)
    return (len(spec.name) + len(spec.description) + len(schema)) // 4


class SearchedTools(ToolWrapper):
    def __init__(self, inner: ToolRunner, hidden: tuple[ToolSpec, ...], limits: ToolSearch) -> None:
        super().__init__(inner)
        self._hidden = {spec.name: spec for spec in hidden}
        self._limits = limits
        self._bridge = {spec.name: spec for spec in _bridge(hidden)}
        shown = (spec for spec in inner.specs() if spec.name not in self._hidden)
        self._specs = tuple(sorted((*shown, *self._bridge.values()), key=lambda spec: spec.name))

    def specs(self) -> tuple[ToolSpec, ...]:
        return self._specs

    def spec(self, name: str) -> ToolSpec | None:
        return self._bridge.get(name) or self._inner.spec(name)

    async def run(self, call: ToolCall, context: ToolContext) -> ToolResult:
        if call.name not in self._bridge:
            return await self._inner.run(call, context)
        given = parse_object(call.arguments)
        if given is None:
            return _failed("The arguments are not a JSON object.")
        if call.name == "tool_search":
            return ToolResult(content=self._search(given))
        name = str(given.get("name") or "")
        spec = self._inner.spec(name)
        if spec is None:
            return _failed(f"There is no tool `{name}`. Find it with tool_search.")
        if call.name == "tool_describe":
            about = {"name": name, "description": spec.description, "parameters": spec.parameters}
            return ToolResult(content=msgspec.json.encode(about).decode())
        arguments = given.get("arguments") or {}
        text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
        return await self._inner.run(replace(call, name=name, arguments=text), context)

    def _search(self, given: dict[str, object]) -> str:
        limit, asked = self._limits.search_default_limit, given.get("limit")
        if isinstance(asked, int):
            limit = min(max(1, asked), self._limits.max_search_limit)
        words = set(_WORD.findall(str(given.get("query", "")).lower()))
        ranked = sorted(self._hidden.values(), key=lambda spec: (-_score(spec, words), spec.name))
        found = [spec for spec in ranked if not words or _score(spec, words)][:limit]
        lines = [f"{spec.name}: {spec.description[:200]}" for spec in found]
        return "\n".join(lines) or f"Nothing found. Toolsets: {_toolsets(self._hidden.values())}."


def _score(spec: ToolSpec, words: set[str]) -> int:
    name, about = spec.name.lower(), f"{spec.toolset} {spec.description}".lower()
    return sum(3 * (word in name) + (word in about) for word in words)


def _toolsets(specs: Iterable[ToolSpec]) -> str:
    return ", ".join(sorted({spec.toolset for spec in specs}))


def _failed(text: str) -> ToolResult:
    return ToolResult(content=text, outcome=ToolOutcome.ERROR)


def _bridge(hidden: tuple[ToolSpec, ...]) -> tuple[ToolSpec, ...]:
    text, name = {"type": "string"}, {"type": "string", "description": "From tool_search"}

    def made(tool: str, about: str, required: str, **fields: object) -> ToolSpec:
        parameters = {"type": "object", "properties": fields, "required": [required]}
        reads = tool != "tool_call"
        return ToolSpec(
            name=tool,
            toolset="tool_search",
            description=about,
            parameters=parameters,
            emoji="🧰",
            verb=tool.removeprefix("tool_"),
            label_field=required,
            parallel=Parallel.ALWAYS if reads else Parallel.NEVER,
            replay_safe=reads,
        )

    count = f"{len(hidden)} further tools ({_toolsets(hidden)})"
    return (
        made(
            "tool_search", f"Find {count} by words.", "query", query=text, limit={"type": "integer"}
        ),
        made("tool_describe", "Show the arguments of a tool found.", "name", name=name),
        made("tool_call", "Call a tool found.", "name", name=name, arguments={"type": "object"}),
    )
