"""Commands whose name is computed, so that nobody can tell what would run."""

from collections.abc import Iterator

from hermes.execution.policy.calls import Call, Danger, Ground
from hermes.execution.policy.scope import is_unknown

__all__ = ["check"]

_SUBCOMMANDS = frozenset({"git", "docker", "podman", "systemctl", "kubectl", "hermes", "launchctl"})


def check(call: Call, _ground: Ground) -> Iterator[Danger]:
    """Yield a danger if the command, or its verb, is not known before it runs."""
    if call.computed or any(c in call.path for c in "*?"):
        yield Danger("computed", "the name of the command is computed")
    elif not call.name.isascii():
        yield Danger("computed", "the name of the command has letters that imitate others")
    elif call.name in _SUBCOMMANDS:
        operands = call.operands()
        if operands and is_unknown(operands[0]):
            yield Danger("computed", f"what {call.name} would do is computed")
