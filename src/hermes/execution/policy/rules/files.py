"""Dangers to files: what is written, deleted or wiped as a trace."""

import re
from collections.abc import Iterator

from hermes.execution.policy.command import Finding, Ground, ShellCommand
from hermes.execution.policy.reader.expansion import COMPUTED, UNKNOWN, is_unknown
from hermes.execution.policy.rules.places import PlaceKind, absolute, place_of, written_paths

_MANY = frozenset({"xargs", "find", "parallel"})
_LIGHT = frozenset({"touch", "mkdir", "git", "chmod"})
_LOGS = re.compile(
    r"(?:^|/)(?:\.\w*_history|\.lesshst|\.viminfo|fish_history)$|^/var/log/|^/var/(?:run/utmp|log)"
)
_ALL_HERE = re.compile(r"(?:\.\.?/)*(?:\*|\.\*|\*\*)/?")


def check(command: ShellCommand, ground: Ground) -> Iterator[Finding]:
    yield from _writes(command, ground)
    name = command.name
    if name == "rm":
        yield from _rm(command)
    elif name in {"unlink", "rmdir"} and _MANY & set(command.via):
        yield Finding("it deletes whatever a list names", f"xargs {name}")


def _writes(command: ShellCommand, ground: Ground) -> Iterator[Finding]:
    """Yield a finding for every protected place that is written."""
    seen: set[str] = set()
    for path in written_paths(command):
        if _LOGS.search(path):
            yield Finding("it changes logs or history", "write logs")
        place = place_of(path, command.cwd, ground)
        if place is None or place.label in seen:
            continue
        if command.name in _LIGHT and place.kind is PlaceKind.PROJECT:
            continue
        seen.add(place.label)
        where = absolute(path, command.cwd)
        yield Finding(f"it writes to {place.kind}: {where}", f"write {place.label}")


def _rm(command: ShellCommand) -> Iterator[Finding]:
    letters = command.letters()
    if letters & {"r", "R"} or command.has_long("recursive"):
        yield Finding("it deletes recursively", "rm -r")
    elif "f" in letters or command.has_long("force"):
        yield Finding("it deletes without asking", "rm -f")
    source = next((v for v in command.via if v in _MANY), "")
    if source:
        yield Finding("it deletes whatever a list names", f"{source} rm")
        return
    computed = [a for a in command.args if is_unknown(a)]
    if len(computed) > 1 or any(COMPUTED in a or UNKNOWN in a for a in computed):
        yield Finding("what it deletes is computed")
    if any(_ALL_HERE.fullmatch(a) for a in command.operands()):
        yield Finding("it deletes everything in a directory", "rm *")
