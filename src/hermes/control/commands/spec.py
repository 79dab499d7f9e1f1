"""What is known about a slash command without running it."""

from collections.abc import Awaitable, Callable
from enum import StrEnum

from msgspec import Struct

from hermes.control.commands.context import CommandContext
from hermes.control.commands.parse import Invocation

__all__ = ["Category", "Command", "CommandSpec", "Handler", "Where"]


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
        """The name and its aliases."""
        return (self.name, *self.aliases)

    @property
    def usage(self) -> str:
        """How it is typed."""
        return f"/{self.name} {self.args}".rstrip()

    def available(self, *, terminal: bool) -> bool:
        """Say whether the command exists at such a door."""
        return self.where in (Where.BOTH, Where.TERMINAL if terminal else Where.CHAT)


Handler = Callable[[CommandContext, Invocation], Awaitable[None]]


class Command(Struct, frozen=True, kw_only=True):
    """A spec together with what it does."""

    spec: CommandSpec
    run: Handler
