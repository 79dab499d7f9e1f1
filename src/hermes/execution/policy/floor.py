"""The floor: what no mode, allowlist or grant can make possible.

On another machine or inside a container the same commands ask in every mode: there they do not
destroy the host that Hermes runs on.
"""

import re
from collections.abc import Collection, Iterator
from itertools import pairwise, takewhile

from hermes.domain.approvals import Gate
from hermes.execution.policy.command import (
    TABLES,
    Finding,
    Ground,
    ShellCommand,
    absolute,
    base_name,
    command_start,
    may_match,
    pattern,
    words,
)
from hermes.execution.policy.places import (
    is_device,
    is_ledger,
    is_vital,
)
from hermes.execution.policy.roles import written

FORK_BOMB = Finding("a fork bomb takes the machine down", gate=Gate.BLOCK)
SUDO_PASSWORD = Finding(
    "a password is fed to sudo; Hermes never handles sudo passwords: run it yourself, "
    "or allow the command in sudoers",
    gate=Gate.BLOCK,
)
COMPACT_BOMB = re.compile(r"([^\s(){};|&]{1,40})\s*\(\)\s*\{\s*\1\s*\|\s*\1\s*&\s*\}\s*;\s*\1")
"""A fork bomb as it is often quoted, without the spaces that the grammar wants."""
ELSEWHERE = "elsewhere"
"""The kind of findings that ask in every mode, with what is never run here in plain sight."""
_UNMISTAKABLE = pattern("unmistakable")
_IN_CODE = pattern("floor-in-code")
_DISGUISE = re.compile(r"['\"\\]")
_MARKUP = re.compile(r"[\"'\[\](){},]|\\[nt]")
_SPACE = re.compile(r"\$\{?IFS\}?|\\n")
_READS_PASSWORD = re.compile(r"(?:-\S+ (?:[^- ]\S* )?){0,3}(?:-[A-Za-z]*S|--stdin)")
_TREE_DELETERS = words("rmtree rimraf srm shred wipe rd del Remove-Item trash trash-put gio")
_DELETERS = _TREE_DELETERS | words("rm unlink rmdir erase ri")
_FD_RUNS = words("-x -X --exec --exec-batch")
_FD_VALUES = TABLES["words"]["fd-values"]
_NAMED = words("-name -iname -path -ipath -wholename -regex -iregex")
_LOSES = pattern("loses")
_WIPES = re.compile(r"(?i)\b(?:drop|delete|truncate|update|insert|replace|alter)\b")
_STDIN_READERS = pattern("stdin-readers")


def mentions_floor(text: str, homes: Collection[str]) -> bool:
    """Return whether a text contains one of the floor's unmistakable forms, run or not."""
    for home in homes:
        text = re.sub(rf"{re.escape(home)}(?![\w.-])", "~", text) if home > "/" else text
    bare = _SPACE.sub(" ", text)
    plain = any(_UNMISTAKABLE.search(t) for t in (_DISGUISE.sub("", bare), _MARKUP.sub(" ", bare)))
    return plain or _IN_CODE.search(text) is not None


def floor_finding(reason: str, command: ShellCommand) -> Finding:
    # It runs elsewhere, or may be a text that mentions it.
    via = {*command.via}
    unsure = command.remote or "printed" in via or {"argument", "maybe"} <= via
    return Finding(reason, ELSEWHERE, Gate.ASK if unsure else Gate.BLOCK, opaque=unsure)


def floor_findings(command: ShellCommand, ground: Ground) -> Iterator[Finding]:
    if command.computed:
        # With these words it is never run, whatever it is.
        command = command.with_argv(("rm", *command.args))
    reason = _deletes_vital(command, ground) or _writes_vital(command, ground)
    if reason:
        yield floor_finding(reason, command)
    if command.name in {"sudo", "su", "doas"} and _feeds_sudo(command):
        yield SUDO_PASSWORD


def _deletes_vital(command: ShellCommand, ground: Ground) -> str:
    for target in _deleted(command, ground):
        for clean in command.where(target):
            if is_vital(clean, ground):
                return f"it deletes {target}: the system, a home or the home of Hermes"
            if is_ledger(clean, ground):
                return "it deletes the ledger of Hermes"
    return ""


def _deleted(command: ShellCommand, ground: Ground) -> list[str]:
    """Return the paths that `command` removes with everything in them, and the ledger."""
    name, operands = command.name, command.operands()
    if name in _DELETERS:
        searches = [c for c in command.feed.upstream if c.name == "find" and "xargs" in command.via]
        found = [r for c in searches if not _narrowed(c.args) for r in find_roots(c.args)]
        if found:
            return found
        recursive = command.letters() & {"r", "R"} or command.has_long("recursive")
        if recursive or name in _TREE_DELETERS:
            return [a for a in command.args if not a.startswith("-")]
        return [a for a in operands if any(is_ledger(c, ground) for c in command.where(a))]
    if name in {"find", "gfind"}:
        roots = find_roots(command.args) if _find_deletes(command.args) else []
        whole = not _narrowed(command.args)
        ledgers = [f"{h}/state.db" for h in ground.hermes_homes if _finds_ledger(command.args)]
        inside = [c for r in roots for c in command.where(r)]
        taken = [x for x in ledgers if any(f"{x}/".startswith(f"{c.rstrip('/')}/") for c in inside)]
        return [
            *taken,
            *(r for r in roots if whole or {*command.where(r)} & {*ground.hermes_homes}),
        ]
    if name == "mv":
        into = [*command.values_of("-t", "--target-directory")] or operands[-1:]
        return [o for o in operands if o not in into and absolute(o, command.cwd) != "."]
    if name == "rsync":
        deletes = any(a.startswith("--del") for a in command.args)
        sources = operands[:-1] if any(a.startswith("--remove") for a in command.args) else []
        return sources + operands[1:] * deletes
    if name == "git" and "clean" in operands:
        return [*command.values_of("-C", "--work-tree"), ".", *operands]
    return operands if _LOSES.match(f"{name} {command.line}") else _found_by_fd(command)


def _find_deletes(args: tuple[str, ...]) -> bool:
    """Return whether a search deletes, moves or empties what it finds."""
    run = {base_name(b) for a, b in pairwise((*args, "")) if a in {"-exec", "-execdir"}}
    return "-delete" in args or bool(run & (_DELETERS | {"truncate", "mv"}))


def _found_by_fd(command: ShellCommand) -> list[str]:
    """Return where fd looks for anything, and not for some files, to delete it."""
    args = command.spelled if command.name in {"fd", "fdfind"} else ()
    runs = [base_name(b) in _DELETERS and a in _FD_RUNS for a, b in pairwise(args)]
    searched = args[: runs.index(True)] if any(runs) else ()
    start = command_start(searched, _FD_VALUES)
    if start is None or re.search(r"\w", searched[start]):
        return []
    return [a for a in searched[start + 1 :] if a[:1] != "-"] or ["."]


def _finds_ledger(args: tuple[str, ...]) -> bool:
    named = [b.lower().rpartition("/")[2] for a, b in pairwise(args) if a in _NAMED]
    return any(may_match("state.db", name) for name in named)


def _narrowed(args: tuple[str, ...]) -> bool:
    """Return whether a search is for some files only; a test behind an action comes too late."""
    args = tuple(takewhile(lambda a: a != "-delete" and not a.startswith(("-exec", "-ok")), args))
    widened = {"-o", "-or", "-not", "!", ","} & {*args}
    return not widened and any(a in _NAMED and b.strip("*?[]./+") for a, b in pairwise(args))


def find_roots(args: tuple[str, ...]) -> list[str]:
    roots: list[str] = []
    for arg in args:
        if re.match(r"-[HLP]$|-O\d|-D", arg):
            continue
        if arg.startswith(("-", "(", "!")):
            break
        roots.append(arg)
    return roots or ["."]


def _writes_vital(command: ShellCommand, ground: Ground) -> str:
    unread = bool(command.reads) or command.piped
    database = command.operands() if unread or _WIPES.search(command.line) else []
    if command.name == "sqlite3" and any(
        is_ledger(clean, ground) for path in database for clean in command.where(path)
    ):
        return "it wipes the ledger of Hermes"
    for clean in (c for path in written(command) for c in command.where(path)):
        if is_device(clean):
            return f"it writes to the raw device {clean}"
        if clean == "/proc/sysrq-trigger":
            return "it stops or restarts the machine"
        if is_ledger(clean, ground) and command.name != "sqlite3":
            return "it overwrites the ledger of Hermes"
    return ""


def _feeds_sudo(command: ShellCommand) -> bool:
    if _READS_PASSWORD.match(command.line):
        return True
    run = [a for a in command.operands() if "=" not in a]
    printer = "".join(c.name for c in command.feed.upstream[-1:])
    reads = bool(run) and _STDIN_READERS.match(base_name(run[0])) is not None
    return printer in {"echo", "printf", "yes"} and bool(run) and not reads
