"""Variables and settings of git that decide what other programs run.

The names of variables are judged by a table and by their shape, values by the few that people
really give them. What a variable is set to in a roundabout way (`read PATH`) is never judged: it
asks.
"""

import re
from collections.abc import Iterator
from fnmatch import translate

from hermes.execution.policy.command import (
    TABLES,
    Finding,
    Ground,
    ShellCommand,
    command_start,
    listed,
    opaque,
    pattern,
    readings,
)
from hermes.execution.policy.expansion import is_unknown
from hermes.execution.policy.nested import assignments
from hermes.execution.policy.places import is_foreign
from hermes.execution.policy.syntax import COMPUTED

_HARMLESS_VALUES = TABLES["variables"]
_CODE_NAMES = re.compile("|".join(map(translate, listed("code-variables"))))
_ORDINARY = re.compile("|".join(map(translate, listed("plain-variables"))))
_WORD = re.compile(r"[\w./~:,=+@%-]*$")
_USUAL_PROGRAMS = listed("usual-programs")
_OPTION = re.compile(r"-{1,2}[\w][\w.:=/~-]*$")
_PATH_ELEMENT = re.compile(r"/(?!tmp\b|var/tmp\b|dev/shm\b)[\w./+@-]*$")
_GIT_HARMLESS = pattern("git-settings")
_GIT_RUNS = re.compile(r"(?i)core\.(?:pager|editor)$|pager\.|sequence\.editor$")
_OUTPUTS = pattern("output-variables")


def changes_programs(name: str) -> bool:
    return name == "PATH" or (_CODE_NAMES.match(name) is not None and not _ORDINARY.match(name))


def check(command: ShellCommand, ground: Ground) -> Iterator[Finding]:
    """Yield findings for variables and git settings that change what other commands do."""
    for name, value in assignments(command):
        if name == "PATH":
            if not all(_usual(e, command) for e in value.split(":")):
                yield opaque("PATH would find programs in a writable place", "PATH=")
        elif changes_programs(name) and not _harmless(name, value):
            yield opaque(f"`{name}` changes what other programs run", f"{name}=")
        elif command.name != ":" and not _OUTPUTS.match(name):
            pieces = re.split(r"[:,;=\s]", value)
            if any(is_foreign(piece, command, ground) for piece in pieces):
                yield Finding(f"`{name}` points outside of the project", f"{name}=")
    if command.name == "git":
        yield from _git_settings(command)


def _git_settings(command: ShellCommand) -> Iterator[Finding]:
    found = readings("git", command.args)
    before = command.args[: -1 - len(found[-1][1])] if found else command.args
    for setting in command.with_argv(("git", *before, "")).values_of("-c", "--config-env"):
        key, _, value = setting.partition("=")
        if not _GIT_HARMLESS.match(key) and not (_GIT_RUNS.match(key) and _runs_nothing(value)):
            yield opaque("it changes what git runs", "git -c")
    for operands, rest in found:
        if operands[0] == "config" and not _git_config(rest):
            yield opaque("it may change what git runs", "git config")


def _git_config(rest: tuple[str, ...]) -> bool:
    """Return whether `git config` only looks, or sets what is known to run nothing."""
    first = command_start(rest, "-f --file --blob --type --default -t", assigns=False)
    options, operands = rest[:first], rest[first:] if first is not None else ()
    looks = any(a.startswith(("--get", "--list")) or a == "-l" for a in options)
    if looks or len(operands) < 2 or operands[0] in {"get", "list"}:
        return True
    if len(operands) > 2 or any(a[:1] == "-" for a in operands[1:]) or "-f" in options:
        return False
    key, value = operands
    plain = re.match(r"alias\.[\w-]+$", key) and re.match(r"[a-z][a-z-]*(?: -[\w=:-]+)*$", value)
    return bool(plain) or _GIT_HARMLESS.match(key) is not None


def _harmless(name: str, value: str) -> bool:
    known = _HARMLESS_VALUES.get(name)
    if known is not None:
        return re.match(known, value) is not None
    return _runs_nothing(value)


def _runs_nothing(value: str) -> bool:
    """Return whether a value names a usual program with plain options, or nothing."""
    program, *options = value.split() or [":"]
    keys = [o for o in options if not _OPTION.match(o)]
    plain = all(_WORD.match(o) for o in keys) and (program == "ssh" or not keys)
    return program in _USUAL_PROGRAMS and plain and "ommand" not in value


def _usual(element: str, command: ShellCommand) -> bool:
    """Return whether an element of PATH is a place where programs are meant to be."""
    if is_unknown(element):
        # `$PATH` itself, or a directory that a variable names.
        named = is_unknown(element[:1]) and COMPUTED not in element
        return len(element) == 1 or (named and element.endswith("/bin"))
    if re.search(r"(?:^|/)(?:node_modules/\.bin|\.?venv/bin|vendor/bin)/?$", element):
        return True
    if any(cwd and element.startswith(f"{cwd}/") for cwd in command.cwds):
        return False
    return _PATH_ELEMENT.match(element) is not None
