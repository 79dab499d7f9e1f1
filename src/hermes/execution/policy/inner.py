"""What a command may run besides itself, and how to find where that begins."""

import re
from typing import TypeAlias

from msgspec import Struct

__all__ = ["REDISCOVER", "SHELLS", "CodeText", "Inner", "Run", "ShellText", "command_start"]


class Run(Struct, frozen=True):
    """Another command line."""

    argv: tuple[str, ...]
    via: str


class ShellText(Struct, frozen=True):
    """A script for a shell."""

    text: str
    via: str
    positional: tuple[str, ...] | None = None
    fresh: bool = True
    """False where it runs in the same shell and sees its variables."""


class CodeText(Struct, frozen=True):
    """A program in another language."""

    language: str
    text: str


Inner: TypeAlias = Run | ShellText | CodeText

SHELLS = frozenset(
    {"sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "fish", "csh", "tcsh", "rbash", "hush"}
)
_ASSIGN = re.compile(r"[A-Za-z_]\w*=")
REDISCOVER = SHELLS | {
    "rm", "dd", "mkfs", "shutdown", "reboot", "halt", "poweroff", "find", "chmod", "chown",
    "kill", "python", "python3", "perl", "curl", "wget", "env", "sudo", "xargs", "eval",
}  # fmt: skip


def command_start(args: tuple[str, ...], takes_value: frozenset[str], skip: int) -> int | None:
    """Return where the command begins after options, assignments and `skip` operands."""
    index = 0
    while index < len(args):
        arg = args[index]
        if arg == "--":
            return index + 1 + skip if index + 1 + skip < len(args) else None
        if len(arg) > 1 and arg[0] == "-":
            cluster = arg[1] != "-" and "-" + arg[-1] in takes_value
            if arg in takes_value or (cluster and len(arg) > 2):
                index += 1
        elif _ASSIGN.match(arg):
            pass
        elif skip:
            skip -= 1
        else:
            return index
        index += 1
    return None
