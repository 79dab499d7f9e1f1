"""The registry: every command, found by name, alias or near miss.

Built from data, once per door; there is no registration at import.
"""

import difflib
import re
import shlex
from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum

from msgspec import Struct

from hermes.control.commands.context import CommandContext
from hermes.domain.errors import Conflict, HermesError, NotFound, UsageError

_COMMAND = re.compile(
    r"/(?P<name>[A-Za-z][A-Za-z0-9_-]*)(?:@[A-Za-z0-9_]+)?(?P<rest>\s.*)?", re.DOTALL
)


class Prose(Struct, frozen=True):
    text: str


class Invocation(Struct, frozen=True, kw_only=True):
    """A command as it was typed."""

    name: str
    rest: str = ""
    """Everything after the name, outer blanks removed."""

    @property
    def words(self) -> tuple[str, ...]:
        """The arguments, split with shell quoting."""
        return split_words(self.rest)


def parse(text: str) -> Invocation | Prose:
    stripped = text.strip()
    if stripped.startswith("//"):
        return Prose(stripped[1:])
    match = _COMMAND.fullmatch(stripped)
    if match is None:
        return Prose(text)
    return Invocation(name=match["name"].lower(), rest=(match["rest"] or "").strip())


def split_words(rest: str) -> tuple[str, ...]:
    """Split arguments; an unclosed quote is an ordinary character."""
    try:
        return tuple(shlex.split(rest))
    except ValueError:
        return tuple(rest.split())


class Category(StrEnum):
    """How commands are grouped in help."""

    SESSION = "Session"
    RUNNING = "While it works"
    CONFIGURATION = "Configuration"
    TOOLS = "Tools"
    INFO = "Info"


class Where(StrEnum):
    """At which doors a command exists."""

    BOTH = "both"
    TERMINAL = "terminal"
    CHAT = "chat"


class CommandSpec(Struct, frozen=True, kw_only=True):
    """One slash command, as menus, completion and help show it."""

    name: str
    category: Category
    help: str
    """One sentence, no full stop: it stands in menus."""
    aliases: tuple[str, ...] = ()
    args: str = ""
    """What may follow, e.g. `[name]`; shown, never parsed."""
    choices: tuple[str, ...] = ()
    """Words that complete the first argument."""
    where: Where = Where.BOTH
    needs_idle: bool = False
    """Refused while a turn of the session runs."""
    admin: bool = False
    """Where access is divided, only administrators may use it."""

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.aliases)

    @property
    def usage(self) -> str:
        return f"/{self.name} {self.args}".rstrip()

    def available(self, *, terminal: bool) -> bool:
        """Say whether the command exists at such a door."""
        return self.where in (Where.BOTH, Where.TERMINAL if terminal else Where.CHAT)


Handler = Callable[[CommandContext, Invocation], Awaitable[None]]


class Command(Struct, frozen=True, kw_only=True):
    spec: CommandSpec
    run: Handler


class CommandRegistry:
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
        command = registry.resolve(invocation.name, terminal=context.caller.screen is not None)
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
