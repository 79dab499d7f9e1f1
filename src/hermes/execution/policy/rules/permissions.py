"""Modes and owners."""

import re
from collections.abc import Iterator

from hermes.execution.policy.calls import Call, Danger, Ground

__all__ = ["check"]

_WORLD = re.compile(
    r"[0-7]?[0-7][0-7][2367]|(?:[ugoa]*[+=][rwxXst]*,)*(?:[ug]*[oa][ugoa]*[+=][rx]*w|"
    r"[+=][rx]*w.*o).*"
)
_SETUID = re.compile(r"[2467][0-7]{3}|[ug]*[+=][rwxX]*s.*")


def check(call: Call, _ground: Ground) -> Iterator[Danger]:
    """Yield dangers of changing modes and owners."""
    recursive = "R" in call.letters() or call.has_long("recursive")
    if call.name == "chmod":
        modes = [a for a in call.args if not a.startswith("--")][:2]
        if any(_WORLD.fullmatch(m) for m in modes):
            yield Danger("permissions", "everybody could write there", "chmod 777")
        elif any(_SETUID.fullmatch(m) for m in modes):
            yield Danger("permissions", "it sets the user or group id bit", "chmod +s")
        if recursive:
            yield Danger("permissions", "it changes the mode of a whole tree", "chmod -R")
    elif call.name in {"chown", "chgrp"} and recursive:
        yield Danger("permissions", "it changes the owner of a whole tree", f"{call.name} -R")
    elif call.name == "chown" and re.match(r"(?:-\S+\s+)*(?:root|0)\b", call.line):
        yield Danger("permissions", "it gives files to root", "chown root")
    elif call.name == "setfacl" and re.search(r"(?:^|\s|,)(?:o|other)::?[rx]*w|-R", call.line):
        yield Danger("permissions", "it opens access to others", "setfacl")
    elif call.name == "setcap":
        yield Danger("permissions", "it gives a program privileges", "setcap")
    elif call.name == "icacls" and "/grant" in call.line.lower():
        yield Danger("permissions", "it opens access to others", "icacls /grant")
