"""The registry: every command, found by name, alias or near miss.

Built from data, once per door; there is no registration at import.
"""

import difflib
from collections.abc import Sequence

from hermes.control.commands.context import CommandContext
from hermes.control.commands.parse import Invocation
from hermes.control.commands.spec import Command, CommandSpec
from hermes.domain.errors import Conflict, HermesError, NotFound, UsageError

__all__ = ["CommandRegistry", "run_command"]


class CommandRegistry:
    """All commands of the program."""

    def __init__(self, commands: Sequence[Command]) -> None:
        self._commands = tuple(commands)
        self._by_name: dict[str, Command] = {}
        for command in commands:
            for name in command.spec.names:
                if name in self._by_name:
                    raise ValueError(f"two commands are called /{name}")
                self._by_name[name] = command

    def specs(self, *, terminal: bool) -> tuple[CommandSpec, ...]:
        """Return the commands of such a door, in the order of help."""
        return tuple(
            command.spec for command in self._commands if command.spec.available(terminal=terminal)
        )

    def find(self, name: str, *, terminal: bool) -> Command | None:
        """Return the command of that name or alias, if it exists at such a door."""
        command = self._by_name.get(name.lower().lstrip("/"))
        if command is None or not command.spec.available(terminal=terminal):
            return None
        return command

    def resolve(self, name: str, *, terminal: bool) -> Command:
        """Return the command, also by an unambiguous beginning; suggest if there is none."""
        command = self.find(name, terminal=terminal)
        if command is not None:
            return command
        started = self._starting_with(name, terminal=terminal)
        if len(started) == 1:
            return started[0]
        raise NotFound(f"There is no command /{name}.", hint=self._hint(name, terminal=terminal))

    def suggestions(self, name: str, *, terminal: bool) -> tuple[str, ...]:
        """Return up to three names that may have been meant."""
        names = [
            each
            for each, command in self._by_name.items()
            if command.spec.available(terminal=terminal)
        ]
        started = sorted(each for each in names if name and each.startswith(name.lower()))
        near = difflib.get_close_matches(name.lower(), names, n=3, cutoff=0.6)
        return tuple(dict.fromkeys([*started, *near]))[:3]

    def _starting_with(self, name: str, *, terminal: bool) -> list[Command]:
        found: list[Command] = []
        for each, command in self._by_name.items():
            fits = each.startswith(name) and command.spec.available(terminal=terminal)
            if fits and command not in found:
                found.append(command)
        return found

    def _hint(self, name: str, *, terminal: bool) -> str:
        near = self.suggestions(name, terminal=terminal)
        meant = f"Did you mean {' or '.join(f'/{each}' for each in near)}? " if near else ""
        return f"{meant}/help lists the commands; //{name} sends the text /{name}."


async def run_command(
    registry: CommandRegistry, context: CommandContext, invocation: Invocation
) -> None:
    """Run one command; whatever it has to say, also a failure, is a reply."""
    try:
        command = registry.resolve(invocation.name, terminal=context.door.screen is not None)
        _check(command.spec, context)
        await command.run(context, invocation)
    except HermesError as error:
        await context.reply(f"{error.message} {error.hint}".rstrip())


def _check(spec: CommandSpec, context: CommandContext) -> None:
    if spec.admin and not context.admin:
        raise UsageError(f"/{spec.name} is for administrators.")
    if spec.needs_idle and context.busy:
        raise Conflict(
            f"/{spec.name} has to wait: a turn is running.", hint="Stop it with /stop first."
        )
