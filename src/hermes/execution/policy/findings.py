"""What was found in a program."""

from msgspec import Struct

from hermes.execution.policy.calls import Danger

__all__ = ["Findings"]


class Findings(Struct, frozen=True):
    """What a program does that needs a second look."""

    dangers: tuple[Danger, ...] = ()
    scripts: tuple[str, ...] = ()
    """Texts that it hands to a shell."""
    commands: tuple[tuple[str, ...], ...] = ()
    """Commands that it runs, or that do the same as it does."""
    unreadable: bool = False
    """Whether its grammar rejects it, so that only its words were looked at."""
