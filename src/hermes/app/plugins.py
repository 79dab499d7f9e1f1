"""Hooks that installed packages bring, switched on by name.

A package declares an entry point in the group `hermes.hooks`: a function that
takes the `HookBus` and registers what it wants to hear. Nothing is imported
unless `plugins.enabled` names it.
"""

import logging

from hermes.control.hooks import HookBus
from hermes.domain.entry_points import entry_points, load_entry_point
from hermes.domain.settings import Settings

__all__ = ["GROUP", "load_hook_plugins"]

log = logging.getLogger(__name__)

GROUP = "hermes.hooks"


def load_hook_plugins(config: Settings, bus: HookBus) -> list[str]:
    """Register the hooks of enabled packages; return what is wrong with the others."""
    wanted = tuple(config.plugins.enabled or ())
    if not wanted:
        return []
    found = entry_points(GROUP)
    problems = []
    for name in wanted:
        if name not in found:
            problems.append(f"plugin `{name}` is enabled but no installed package brings it")
            continue
        try:
            load_entry_point(found[name])(bus)
        except Exception as error:
            # A plugin is somebody else's code: whatever it does wrong stays with it.
            log.exception("plugin %s could not be loaded", name)
            problems.append(f"plugin `{name}` could not be loaded: {error}")
    return problems
