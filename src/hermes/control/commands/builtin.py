"""The commands Hermes comes with, in the order of help."""

from types import ModuleType

from hermes.control.commands import conversation, info, model, turns
from hermes.control.commands.registry import CommandRegistry, SlashCommand


def builtin_registry(extra: tuple[SlashCommand, ...] = ()) -> CommandRegistry:
    """Build the registry, with commands of plugins or skills after the built-in ones."""
    registry = CommandRegistry()
    ours = [each for module in (conversation, turns, model, info) for each in _commands(module)]
    for command in (*ours, *info.listings(registry), *extra):
        registry.add(command)
    return registry


def _commands(module: ModuleType) -> list[SlashCommand]:
    return [each for each in vars(module).values() if isinstance(each, SlashCommand)]
