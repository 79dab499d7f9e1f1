"""Toolsets: names under which tools are switched on and off.

A name stands for tools or for other toolsets. Names of parts that are not
there are kept apart instead of failing, so that one configuration serves
installations with different extras.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

__all__ = ["COMPOSITES", "TOOLSETS", "ToolsetChoice", "resolve_toolsets"]

TOOLSETS: Mapping[str, tuple[str, ...]] = {
    "browser": (
        "browser_back",
        "browser_cdp",
        "browser_click",
        "browser_console",
        "browser_dialog",
        "browser_get_images",
        "browser_navigate",
        "browser_press",
        "browser_scroll",
        "browser_snapshot",
        "browser_type",
        "browser_vision",
        "web_search",
    ),
    "clarify": ("clarify",),
    "code_execution": ("execute_code",),
    "computer_use": ("computer_use",),
    "cronjob": ("cronjob",),
    "delegation": ("delegate_task",),
    "discord": ("discord",),
    "discord_admin": ("discord_admin",),
    "file": ("patch", "read_file", "search_files", "write_file"),
    "homeassistant": ("ha_call_service", "ha_get_state", "ha_list_entities", "ha_list_services"),
    "image_gen": ("image_generate",),
    "memory": ("memory",),
    "search": ("web_search",),
    "session_search": ("session_search",),
    "skills": ("skill_manage", "skill_view", "skills_list"),
    "terminal": ("process", "terminal"),
    "todo": ("todo",),
    "tts": ("text_to_speech",),
    "video": ("video_analyze",),
    "video_gen": ("video_generate",),
    "vision": ("vision_analyze",),
    "web": ("web_extract", "web_search"),
    "x_search": ("x_search",),
}
"""The tools behind each plain toolset, built or not."""

_CORE = (
    "browser",
    "clarify",
    "code_execution",
    "computer_use",
    "cronjob",
    "delegation",
    "file",
    "image_gen",
    "memory",
    "session_search",
    "skills",
    "terminal",
    "todo",
    "tts",
    "vision",
    "web",
)


def _without(*names: str) -> tuple[str, ...]:
    return tuple(name for name in _CORE if name not in names)


COMPOSITES: Mapping[str, tuple[str, ...]] = {
    "coding": ("file", "search", "session_search", "terminal", "todo", "web"),
    "debugging": ("file", "terminal", "web"),
    "hermes-acp": _without("clarify", "tts", "cronjob", "image_gen"),
    "hermes-api-server": _without("clarify", "tts", "computer_use"),
    "hermes-cli": _CORE,
    "hermes-webhook": ("clarify", "vision", "web"),
    "safe": ("image_gen", "vision", "web"),
}
"""Toolsets made of toolsets. `hermes-<platform>` without an entry is the core."""

EVERYTHING = frozenset({"all", "*"})


class ToolsetChoice(Struct, frozen=True, kw_only=True):
    """What a list of toolset names comes to."""

    tools: frozenset[str]
    """Names of tools, whether they are built or not."""
    unknown: tuple[str, ...] = ()
    """Names that mean nothing here: a plugin that is missing, or a misspelling."""


def resolve_toolsets(
    names: Iterable[str],
    disabled: Iterable[str] = (),
    extra: Mapping[str, Iterable[str]] | None = None,
) -> ToolsetChoice:
    """Return the tools that `names` switch on and `disabled` does not switch off.

    A name may also be that of a single tool. `extra` holds toolsets that
    plugins and MCP servers bring.
    """
    known = {**TOOLSETS, **{name: tuple(tools) for name, tools in (extra or {}).items()}}
    chosen: set[str] = set()
    unknown: list[str] = []
    for name in names:
        tools = _tools_of(name, known)
        if tools is None:
            unknown.append(name)
        else:
            chosen |= tools
    for name in disabled:
        tools = _tools_of(name, known)
        if tools is None:
            unknown.append(name)
        else:
            chosen -= tools
    return ToolsetChoice(tools=frozenset(chosen), unknown=tuple(dict.fromkeys(unknown)))


def _tools_of(name: str, known: Mapping[str, tuple[str, ...]]) -> set[str] | None:
    if name in EVERYTHING:
        return {tool for tools in known.values() for tool in tools}
    if name in known:
        return set(known[name])
    if name in COMPOSITES or name.startswith("hermes-"):
        parts = COMPOSITES.get(name, _CORE)
        return {tool for part in parts for tool in known[part]}
    if any(name in tools for tools in known.values()):
        return {name}
    return None
