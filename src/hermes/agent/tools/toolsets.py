"""Toolsets: names under which tools are switched on and off.

A tool belongs to the toolset that its entry point names: `file.read_file` in
the group `hermes.tools` is the tool `read_file` of the toolset `file`, both in
our own and in installed packages. `toolsets.yaml` has the composites, each of
which stands for several toolsets, and the names that are accepted even if this
installation has no tools for them: one configuration then serves installations
with different extras.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import msgspec
from msgspec import Struct

from hermes.domain.entry_points import entry_points

GROUP = "hermes.tools"


class _Table(Struct, frozen=True):
    known: tuple[str, ...]
    composites: dict[str, tuple[str, ...]]


@cache
def _table() -> _Table:
    text = Path(__file__).with_name("toolsets.yaml").read_text("utf-8")
    return msgspec.yaml.decode(text, type=_Table)


EVERYTHING = frozenset({"all", "*"})


class InstalledTool(Struct, frozen=True):
    toolset: str
    target: str
    """`module:attribute` of its `Tool`."""


class ToolsetChoice(Struct, frozen=True, kw_only=True):
    """The tools that a list of toolset names selects."""

    tools: frozenset[str]
    unknown: tuple[str, ...] = ()
    """Names of no toolset or tool: a missing plugin, or a misspelling."""


def installed_tools() -> dict[str, InstalledTool]:
    """Return the tools that entry points declare, by name; nothing is imported."""
    tools = {}
    for name, target in entry_points(GROUP).items():
        toolset, _, tool = name.rpartition(".")
        tools[tool] = InstalledTool(toolset or tool, target)
    return tools


def tools_by_toolset(toolset_of: Mapping[str, str]) -> dict[str, set[str]]:
    """Return the plain toolsets with their tools, from tool -> toolset."""
    sets: dict[str, set[str]] = {name: set() for name in _table().known}
    for tool, toolset in toolset_of.items():
        sets.setdefault(toolset, set()).add(tool)
    return sets


def composites() -> tuple[str, ...]:
    """Return the names that stand for several toolsets."""
    return tuple(_table().composites)


def expanded(names: Iterable[str]) -> tuple[str, ...]:
    """Return names with those of composites replaced by what they stand for."""
    table = _table().composites
    found: list[str] = []
    for name in names:
        composite = name in table or name.startswith("hermes-")
        found += table.get(name, table["hermes-cli"]) if composite else [name]
    return tuple(dict.fromkeys(found))


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
    table = _table().composites
    if name in table or name.startswith("hermes-"):
        parts = table.get(name, table["hermes-cli"])
        return set().union(*(sets.get(part, set()) for part in parts))
    return {name} if any(name in tools for tools in sets.values()) else None
