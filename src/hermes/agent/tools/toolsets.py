"""Toolsets: names under which tools are switched on and off.

A tool belongs to the toolset that its entry point names: `file.read_file` in
the group `hermes.tools` is the tool `read_file` of the toolset `file`, ours
and those of installed packages alike. A composite stands for toolsets. Names
of toolsets that this installation has no tools for are accepted, so that one
configuration serves installations with different extras.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from hermes.domain.entry_points import entry_points

GROUP = "hermes.tools"

CORE = (
    *("browser", "clarify", "code_execution", "computer_use", "cronjob", "delegation", "file"),
    *("image_gen", "memory", "session_search", "skills", "terminal", "todo", "tts", "vision"),
    "web",
)
KNOWN = frozenset(
    (*CORE, "discord", "discord_admin", "homeassistant", "search", "video", "video_gen", "x_search")
)
"""Plain toolsets that a configuration may name, whether they have tools here or not."""


def _without(*names: str) -> tuple[str, ...]:
    return tuple(name for name in CORE if name not in names)


COMPOSITES: Mapping[str, tuple[str, ...]] = {
    "coding": ("file", "search", "session_search", "terminal", "todo", "web"),
    "debugging": ("file", "terminal", "web"),
    "hermes-acp": _without("clarify", "tts", "cronjob", "image_gen"),
    "hermes-api-server": _without("clarify", "tts", "computer_use"),
    "hermes-cli": CORE,
    "hermes-webhook": ("clarify", "vision", "web"),
    "safe": ("image_gen", "vision", "web"),
}
"""Toolsets made of toolsets. `hermes-<platform>` without an entry is the core."""

EVERYTHING = frozenset({"all", "*"})


class InstalledTool(Struct, frozen=True):
    toolset: str
    target: str
    """`module:attribute` of its `Tool`."""


class ToolsetChoice(Struct, frozen=True, kw_only=True):
    """What a list of toolset names comes to."""

    tools: frozenset[str]
    unknown: tuple[str, ...] = ()
    """Names that mean nothing here: a plugin that is missing, or a misspelling."""


def installed_tools() -> dict[str, InstalledTool]:
    """Return the tools that entry points declare, by name; nothing is imported."""
    tools = {}
    for name, target in entry_points(GROUP).items():
        toolset, _, tool = name.rpartition(".")
        tools[tool] = InstalledTool(toolset or tool, target)
    return tools


def tools_by_toolset(toolset_of: Mapping[str, str]) -> dict[str, set[str]]:
    """Return the plain toolsets with their tools, from tool -> toolset."""
    sets: dict[str, set[str]] = {name: set() for name in KNOWN}
    for tool, toolset in toolset_of.items():
        sets.setdefault(toolset, set()).add(tool)
    return sets


def resolve_toolsets(
    names: Iterable[str], disabled: Iterable[str], toolset_of: Mapping[str, str]
) -> ToolsetChoice:
    """Return the tools that `names` switch on and `disabled` does not switch off.

    A name may also be that of a single tool.
    """
    sets = tools_by_toolset(toolset_of)
    chosen: set[str] = set()
    unknown: list[str] = []
    for group, change in ((names, chosen.update), (disabled, chosen.difference_update)):
        for name in group:
            tools = _tools_of(name, sets)
            change(tools or set())
            unknown += [name] if tools is None else []
    return ToolsetChoice(tools=frozenset(chosen), unknown=tuple(dict.fromkeys(unknown)))


def _tools_of(name: str, sets: Mapping[str, set[str]]) -> set[str] | None:
    if name in EVERYTHING:
        return set().union(*sets.values())
    if name in sets:
        return sets[name]
    if name in COMPOSITES or name.startswith("hermes-"):
        parts = COMPOSITES.get(name, CORE)
        return set().union(*(sets.get(part, set()) for part in parts))
    return {name} if any(name in tools for tools in sets.values()) else None
