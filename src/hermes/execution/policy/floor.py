"""The floor: what no mode, allowlist or grant can make possible.

On another machine or inside a container the same commands only ask: there they do not
destroy the host that Hermes runs on.
"""

import re
from collections.abc import Iterator

from hermes.domain.approvals import Gate
from hermes.execution.policy.command import (
    Finding,
    Ground,
    ShellCommand,
    absolute,
    listed,
    pattern,
    patterns,
    words,
)
from hermes.execution.policy.rules.places import (
    is_device,
    is_ledger,
    is_vital,
    written_paths,
)

FORK_BOMB = Finding("a fork bomb takes the machine down", gate=Gate.BLOCK)
SUDO_PASSWORD = Finding(
    "a password is fed to sudo; Hermes never handles sudo passwords: run it yourself, "
    "or allow the command in sudoers",
    gate=Gate.BLOCK,
)
COMPACT_BOMB = re.compile(r"([^\s(){};|&]{1,40})\s*\(\)\s*\{\s*\1\s*\|\s*\1\s*&\s*\}\s*;\s*\1")
"""A fork bomb as it is often quoted, without the spaces that the grammar wants."""
_UNMISTAKABLE = pattern("unmistakable")
_DISGUISE = re.compile(r"['\"\\]")
_SPACE = re.compile(r"\$\{?IFS\}?|\\n")
_MKFS = pattern("mkfs")
_HALTS = words("shutdown reboot halt poweroff telinit kexec killall5 shutdown.exe")
_HALT_SHAPES = patterns("halts")
_TREE_DELETERS = words("rmtree rimraf srm shred wipe rd del Remove-Item")
_DELETERS = _TREE_DELETERS | words("rm unlink rmdir trash gio erase ri")
_NARROWED = listed("narrowed")
_STDIN_READERS = pattern("stdin-readers")


def mentions_floor(text: str) -> bool:
    """Return whether a text contains one of the floor's unmistakable forms, run or not."""
    return _UNMISTAKABLE.search(_DISGUISE.sub("", _SPACE.sub(" ", text))) is not None


def floor_findings(command: ShellCommand, ground: Ground) -> Iterator[Finding]:
    """Yield the reasons for which `command` is never run."""
    if command.computed:
        # With these words it is never run, whatever it is.
        command = command.with_argv(("rm", *command.args))
    reason = (
        _deletes_vital(command, ground)
        or _stops_machine(command)
        or _kills_everything(command)
        or _writes_vital(command, ground)
    )
    if reason:
        yield Finding(reason, gate=Gate.ASK if command.remote else Gate.BLOCK)
    if command.name == "sudo" and _feeds_sudo(command):
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
    name, args = command.name, command.args
    if name in _DELETERS:
        recursive = command.letters() & {"r", "R"} or command.has_long("recursive")
        if recursive or name in _TREE_DELETERS:
            return [a for a in args if not a.startswith("-")]
        return [
            a for a in command.operands() if any(is_ledger(c, ground) for c in command.where(a))
        ]
    if name in {"find", "gfind"} and _find_deletes(args):
        return _find_roots(args)
    if name == "mv":
        return [t for t in command.operands()[:-1] if absolute(t, command.cwd) != "."]
    if name == "rsync" and any(a.startswith("--del") for a in args):
        return command.operands()[-1:]
    return []


def _find_deletes(args: tuple[str, ...]) -> bool:
    if "-delete" in args:
        return not _NARROWED & set(args)
    for index, arg in enumerate(args[:-1]):
        if arg in {"-exec", "-execdir"} and args[index + 1].rsplit("/", 1)[-1] in _DELETERS:
            return "-name" not in args and "-iname" not in args
    return False


def _find_roots(args: tuple[str, ...]) -> list[str]:
    roots: list[str] = []
    for arg in args:
        if arg in {"-H", "-L", "-P"}:
            continue
        if arg.startswith(("-", "(", "!")):
            break
        roots.append(arg)
    return roots or ["."]


def _stops_machine(command: ShellCommand) -> str:
    name, args = command.name.lower(), set(command.args)
    if _MKFS.match(command.name) and not {"--help", "--version", "-V"} & args:
        return "it makes a new file system over what is there"
    if name in _HALTS and not {"-c", "--help", "--version", "/a"} & args:
        return "it stops or restarts the machine"
    shape = _HALT_SHAPES.get(name)
    if shape is not None and shape.search(command.line):
        return "it stops the machine or erases a disk"
    return ""


def _kills_everything(command: ShellCommand) -> str:
    if command.name != "kill":
        return ""
    args = list(command.args)
    if args != ["-1"]:
        if args[:1] and args[0] in {"-s", "-n", "--signal"}:
            args = args[2:]
        elif args[:1] and args[0].startswith("-") and args[0] != "--":
            args = args[1:]
    return "it signals every process" if "-1" in args else ""


def _writes_vital(command: ShellCommand, ground: Ground) -> str:
    if command.name == "sqlite3":
        wipes = re.search(r"\b(?:drop|delete|truncate)\b", command.line.lower())
        database = command.operands()[:1]
        if wipes and database and any(is_ledger(c, ground) for c in command.where(database[0])):
            return "it wipes the ledger of Hermes"
    for clean in (c for path in written_paths(command) for c in command.where(path)):
        if is_device(clean):
            return f"it writes to the raw device {clean}"
        if clean == "/proc/sysrq-trigger":
            return "it stops or restarts the machine"
        if is_ledger(clean, ground) and command.name != "sqlite3":
            return "it overwrites the ledger of Hermes"
    return ""


def _feeds_sudo(command: ShellCommand) -> bool:
    """Return whether sudo reads a password from its input."""
    for index, arg in enumerate(command.args):
        if arg in {"-S", "--stdin"} and index < 4:
            return True
        if not arg.startswith("-"):
            break
        if re.match(r"-[A-Za-z]*S", arg):
            return True
    upstream = command.feed.upstream
    if not upstream or upstream[-1].name not in {"echo", "printf", "yes"}:
        return False
    run = [a for a in command.operands() if "=" not in a]
    return bool(run) and not _STDIN_READERS.match(run[0].rsplit("/", 1)[-1])
