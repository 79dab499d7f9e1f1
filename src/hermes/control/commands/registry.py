"""Slash commands: what was typed, and the registry that finds them by name or near miss."""

import difflib
import logging
import re
import shlex
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Any

from msgspec import Struct

from hermes.control.commands.context import CommandContext
from hermes.domain.errors import (
    FOR_PEOPLE,
    Conflict,
    HermesError,
    NotFound,
    UsageError,
    failure_text,
)

log = logging.getLogger(__name__)

_COMMAND = re.compile(
    r"/(?P<name>[A-Za-z][A-Za-z0-9_-]*)(?:@[A-Za-z0-9_]+)?(?P<rest>\s.*)?", re.DOTALL
)


class Invocation(Struct, frozen=True, kw_only=True):
    name: str
    rest: str = ""
    """Everything after the name, outer blanks removed."""

    @property
    def words(self) -> tuple[str, ...]:
        """The arguments, split with shell quoting; an unclosed quote is an ordinary character."""
        try:
            return tuple(shlex.split(self.rest))
        except ValueError:
            return tuple(self.rest.split())


def parse(text: str) -> Invocation | str:
    """Return the command that was typed, or the text that is none."""
    stripped = text.strip()
    match = _COMMAND.fullmatch(stripped)
    if match is None:
        return unescaped(text)
    return Invocation(name=match["name"].lower(), rest=(match["rest"] or "").strip())


def unescaped(text: str) -> str:
    """Return text as it is meant: `//text` is the text `/text`."""
    stripped = text.strip()
    return stripped[1:] if stripped.startswith("//") else text


class Category(StrEnum):
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


Handler = Callable[[CommandContext, Invocation], Awaitable[None]]


class SlashCommand(Struct, frozen=True, kw_only=True):
    """One slash command: what it does, and how menus, completion and help show it."""

    name: str
    run: Handler
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
        return self.where in (Where.BOTH, Where.TERMINAL if terminal else Where.CHAT)


def command(
    category: Category, names: str, args: str, about: str, **rest: Any
) -> Callable[[Handler], SlashCommand]:
    """Make a handler a command: name and aliases, what may follow, one sentence."""
    name, *aliases = names.split()

    def made(run: Handler) -> SlashCommand:
        return SlashCommand(
            name=name,
            aliases=tuple(aliases),
            args=args,
            help=about,
            category=category,
            run=run,
            **rest,
        )

    return made


class CommandRegistry:
    def __init__(self) -> None:
        self._by_name: dict[str, SlashCommand] = {}

    def add(self, command: SlashCommand) -> None:
        for name in command.names:
            if name in self._by_name:
                raise ValueError(f"two commands are called /{name}")
            self._by_name[name] = command

    def commands(self, *, terminal: bool) -> tuple[SlashCommand, ...]:
        """Return the commands of such a door, in the order of help."""
        return tuple(
            command
            for name, command in self._by_name.items()
            if name == command.name and command.available(terminal=terminal)
        )

    def find(self, name: str, *, terminal: bool) -> SlashCommand | None:
        """Return the command of that name or alias, if it exists at such a door."""
        command = self._by_name.get(name.lower().lstrip("/"))
        return command if command and command.available(terminal=terminal) else None

    def resolve(self, name: str, *, terminal: bool) -> SlashCommand:
        """Return the command, also by an unambiguous beginning; suggest if there is none."""
        if command := self.find(name, terminal=terminal):
            return command
        names = [n for n, each in self._by_name.items() if each.available(terminal=terminal)]
        started = sorted(each for each in names if each.startswith(name))
        meant = {self._by_name[each].name for each in started}
        if len(meant) == 1:
            return self._by_name[meant.pop()]
        near = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
        guesses = list(dict.fromkeys([*started, *near]))[:3]
        question = (
            f"Did you mean {' or '.join(f'/{each}' for each in guesses)}? " if guesses else ""
        )
        raise NotFound(
            f"There is no command /{name}.",
            hint=f"{question}/help lists the commands; //{name} sends the text /{name}.",
        )


async def run_command(
    registry: CommandRegistry, context: CommandContext, invocation: Invocation
) -> None:
    """Run one command; whatever it has to say, also a failure, is a reply."""
    try:
        command = registry.resolve(invocation.name, terminal=context.caller.screen is not None)
        _check(command, context)
        await command.run(context, invocation)
    except HermesError as error:
        if context.confidential or error.code in FOR_PEOPLE:
            await context.reply(f"{error.message} {error.hint}".rstrip())
        else:
            log.warning("/%s failed: %s", invocation.name, failure_text(error, operator=True))
            await context.reply(failure_text(error, operator=False))


def _check(command: SlashCommand, context: CommandContext) -> None:
    if command.admin and not context.admin:
        raise UsageError(f"Only administrators can use /{command.name}.")
    if command.needs_idle and context.busy:
        raise Conflict(
            f"/{command.name} has to wait until the turn has ended.", hint="/stop ends it now."
        )
