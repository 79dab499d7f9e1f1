"""Variables that decide what other programs run.

Names are judged by a table and by their shape, values by the few that people really give
them. What a variable is set to in a roundabout way (`read PATH`) is never judged: it asks.
"""

import re
from collections.abc import Iterator
from fnmatch import translate

from hermes.execution.policy.command import (
    TABLES,
    Finding,
    Ground,
    ShellCommand,
    listed,
    opaque,
    pattern,
)
from hermes.execution.policy.nested import assignments
from hermes.execution.policy.reader.expansion import COMPUTED, is_unknown

_HARMLESS = TABLES["variables"]
_NAMES = re.compile("|".join(map(translate, listed("code-variables"))))
_ORDINARY = re.compile("|".join(map(translate, listed("plain-variables"))))
_WORD = re.compile(r"[\w./~:,=+@%-]*$")
_PROGRAMS = listed("usual-programs")
_OPTION = re.compile(r"-{1,2}[\w][\w.:=/~-]*$")
_PATH_ELEMENT = re.compile(r"/(?!tmp\b|var/tmp\b|dev/shm\b)[\w./+@-]*$")
_TOOLS = re.compile(r"(?:^|/)(?:node_modules/\.bin|\.?venv/bin|vendor/bin)/?$")
_GIT_HARMLESS = pattern("git-settings")


def changes_programs(name: str) -> bool:
    """Return whether a variable of this name decides what programs run."""
    return name == "PATH" or (_NAMES.match(name) is not None and not _ORDINARY.match(name))


def check(command: ShellCommand, ground: Ground) -> Iterator[Finding]:
    """Yield findings for variables and git settings that change what other commands do."""
    for name, value in assignments(command):
        if name == "PATH":
            if not all(_usual(e, command, ground) for e in value.split(":")):
                yield opaque("PATH would find programs in a writable place", "PATH=")
        elif (name == "HISTFILE" and value in {"", "/dev/null"}) or (
            name in {"HISTSIZE", "HISTFILESIZE"} and value == "0"
        ):
            yield Finding("it turns the shell history off", "HISTFILE=")
        elif changes_programs(name) and not _harmless(name, value):
            yield opaque(f"{name} changes what other programs run", f"{name}=")
    if command.name == "git":
        for setting in command.values_of("-c", "--config", "--config-env"):
            key, _, value = setting.partition("=")
            if not _GIT_HARMLESS.match(key) and not _runs_nothing(value):
                yield opaque("it changes what git runs", "git -c")


def _harmless(name: str, value: str) -> bool:
    known = _HARMLESS.get(name)
    return re.match(known, value) is not None if known is not None else _runs_nothing(value)


def _runs_nothing(value: str) -> bool:
    """Return whether a value names a usual program with plain options, or nothing."""
    program, *options = value.split() or [":"]
    keys = [o for o in options if not _OPTION.match(o)]
    plain = all(_WORD.match(o) for o in keys) and (program == "ssh" or not keys)
    return program in _PROGRAMS and plain and "ommand" not in value


def _usual(element: str, command: ShellCommand, ground: Ground) -> bool:
    """Return whether an element of PATH is a place where programs are meant to be."""
    if is_unknown(element):
        # `$PATH` itself, or a directory that a variable names.
        named = is_unknown(element[:1]) and COMPUTED not in element
        return len(element) == 1 or (named and "/bin" in element)
    if _TOOLS.search(element):
        return True
    if any(cwd and element.startswith(f"{cwd}/") for cwd in command.cwds):
        return False
    home = any(element.startswith(f"{h}/") for h in ground.user_homes)
    return home or _PATH_ELEMENT.match(element) is not None
