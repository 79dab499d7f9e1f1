"""The floor: what no mode, allowlist or grant can make possible.

On another machine or inside a container the same commands only ask: there
they do not destroy the host that Hermes runs on.
"""

import re
from collections.abc import Iterator

from hermes.domain.approvals import Gate
from hermes.execution.policy.calls import Call, Danger, Ground
from hermes.execution.policy.places import PlaceKind, absolute, is_device, is_vital, place_of
from hermes.execution.policy.targets import written_paths

__all__ = ["COMPACT_BOMB", "FORK_BOMB", "SUDO_PASSWORD", "floor_dangers"]

FORK_BOMB = Danger("floor", "a fork bomb takes the machine down", gate=Gate.BLOCK)
SUDO_PASSWORD = Danger(
    "sudo-password",
    "a password is fed to sudo; Hermes never handles sudo passwords: run it yourself, "
    "or allow the command in sudoers",
    gate=Gate.BLOCK,
)

COMPACT_BOMB = re.compile(r"([^\s(){};|&]{1,40})\s*\(\)\s*\{\s*\1\s*\|\s*\1\s*&\s*\}\s*;\s*\1")
"""A fork bomb as it is often quoted, without the spaces that the grammar wants."""
_MKFS = re.compile(
    r"(?:mkfs(?:\..+)?|mke2fs|mkntfs|mkdosfs|mkreiserfs|mkswap|wipefs|blkdiscard|newfs(?:_.+)?)$"
)
_HALTS = frozenset({"shutdown", "reboot", "halt", "poweroff", "telinit", "kexec", "killall5",
                    "shutdown.exe"})  # fmt: skip
_HALT_SHAPES: dict[str, re.Pattern[str]] = {
    "init": re.compile(r"[06]\b"),
    "systemctl": re.compile(
        r"(?:^|\s)(?:poweroff|reboot|halt|kexec|soft-reboot|hibernate|suspend|emergency|rescue)\b"
        r"|(?:isolate|start)\s.*(?:reboot|poweroff|halt|rescue|emergency|runlevel[06])"
    ),
    "loginctl": re.compile(r"(?:^|\s)(?:poweroff|reboot|halt)\b"),
    "dbus-send": re.compile(r"login1\.Manager\.(?:PowerOff|Reboot|Halt)"),
    "busctl": re.compile(r"login1.*(?:PowerOff|Reboot|Halt)"),
    "gdbus": re.compile(r"login1\.Manager\.(?:PowerOff|Reboot|Halt)"),
    "diskutil": re.compile(r"(?:erase|zero|secureErase|reformat)", re.IGNORECASE),
    "nvme": re.compile(r"^(?:format|sanitize)"),
    "hdparm": re.compile(r"--security-erase"),
    "format": re.compile(r"^[A-Za-z]:"),
    "format.com": re.compile(r"^[A-Za-z]:"),
    "wmic": re.compile(r"(?:shutdown|reboot)", re.IGNORECASE),
    "sysctl": re.compile(r"kernel\.panic=|kernel\.sysrq.*reboot"),
}
_DELETES = frozenset({"rm", "srm", "unlink", "rmdir", "shred", "trash", "wipe", "gio", "rmtree",
                      "del", "rd", "erase", "Remove-Item", "ri"})  # fmt: skip
_STDIN_READERS = re.compile(
    r"(?:tee|sh|bash|zsh|dash|cat|dd|patch|python[\d.]*|perl|crontab|xargs|apt-key|gpg|psql|mysql|"
    r"docker|kubectl|sponge|chpasswd|debconf-set-selections|tar|nft|iptables-restore|sqlite3|at)$"
)


def floor_dangers(call: Call, ground: Ground) -> Iterator[Danger]:
    """Yield the reasons for which `call` is never run."""
    reason = (
        _deletes_vital(call, ground)
        or _makes_filesystem(call)
        or _stops_machine(call)
        or _kills_everything(call)
        or _writes_vital(call, ground)
    )
    if reason:
        gate = Gate.ASK if call.remote else Gate.BLOCK
        yield Danger("floor", reason, gate=gate)
    if _feeds_sudo(call):
        yield SUDO_PASSWORD


def _deletes_vital(call: Call, ground: Ground) -> str:
    for target in _deleted(call, ground):
        if is_vital(target, call.cwd, ground):
            return f"it deletes {target}: the system, a home or the home of Hermes"
        if _is_ledger(target, call, ground):
            return "it deletes the ledger of Hermes"
    return ""


def _deleted(call: Call, ground: Ground) -> list[str]:
    """Return the paths that `call` removes with everything in them, and the ledger."""
    if call.name in _DELETES:
        trees = {"rmtree", "srm", "shred", "wipe", "rd", "del", "Remove-Item"}
        recursive = bool(call.letters() & {"r", "R"}) or call.has_long("recursive")
        if recursive or call.name in trees:
            return [a for a in call.args if not a.startswith("-")]
        return [a for a in call.operands() if _is_ledger(a, call, ground)]
    if call.name in {"find", "gfind"} and _find_deletes(call):
        return _find_roots(call)
    if call.name == "mv":
        return [t for t in call.operands()[:-1] if absolute(t, call.cwd) != "."]
    if call.name == "rsync" and any(a.startswith("--del") for a in call.args):
        return call.operands()[-1:]
    return []


def _find_deletes(call: Call) -> bool:
    if "-delete" in call.args:
        narrow = {"-name", "-iname", "-path", "-mtime", "-mmin", "-newer", "-size", "-regex",
                  "-empty", "-user", "-atime", "-ctime", "-wholename", "-inum"}  # fmt: skip
        return not narrow & set(call.args)
    for index, arg in enumerate(call.args[:-1]):
        if arg in {"-exec", "-execdir"} and call.args[index + 1].rsplit("/", 1)[-1] in _DELETES:
            return "-name" not in call.args and "-iname" not in call.args
    return False


def _find_roots(call: Call) -> list[str]:
    roots: list[str] = []
    for arg in call.args:
        if arg.startswith(("-", "(", "!")):
            if arg in {"-H", "-L", "-P"}:
                continue
            break
        roots.append(arg)
    return roots or ["."]


def _is_ledger(path: str, call: Call, ground: Ground) -> bool:
    place = place_of(path, call.cwd, ground)
    if place is not None and place.kind is PlaceKind.LEDGER:
        return True
    clean = absolute(path, call.cwd)
    return clean.startswith(ground.hermes_home + "/") and clean.endswith(("/*", "state.db*"))


def _makes_filesystem(call: Call) -> str:
    if _MKFS.match(call.name) and not {"--help", "--version", "-V"} & set(call.args):
        return "it makes a new file system over what is there"
    return ""


def _stops_machine(call: Call) -> str:
    name = call.name.lower()
    if name in _HALTS and not {"-c", "--help", "--version", "/a"} & set(call.args):
        return "it stops or restarts the machine"
    shape = _HALT_SHAPES.get(name)
    if shape is not None and shape.search(call.line):
        return "it stops the machine or erases a disk"
    return ""


def _kills_everything(call: Call) -> str:
    if call.name != "kill":
        return ""
    args = list(call.args)
    if args == ["-1"]:
        return "it signals every process"
    if args[:1] and args[0] in {"-s", "-n", "--signal"}:
        args = args[2:]
    elif args[:1] and args[0].startswith("-") and args[0] != "--":
        args = args[1:]
    return "it signals every process" if "-1" in args else ""


def _writes_vital(call: Call, ground: Ground) -> str:
    for path in written_paths(call):
        clean = absolute(path, call.cwd)
        if is_device(clean):
            return f"it writes to the raw device {clean}"
        if clean == "/proc/sysrq-trigger":
            return "it stops or restarts the machine"
        if _is_ledger(path, call, ground) and call.name != "sqlite3":
            return "it overwrites the ledger of Hermes"
    if call.name == "sqlite3" and re.search(r"\b(?:drop|delete|truncate)\b", call.line.lower()):
        operands = call.operands()
        if operands and _is_ledger(operands[0], call, ground):
            return "it wipes the ledger of Hermes"
    return ""


def _feeds_sudo(call: Call) -> bool:
    if call.name == "doas" or call.name != "sudo":
        return False
    options = []
    for arg in call.args:
        if not arg.startswith("-"):
            break
        options.append(arg)
    if any(o == "--stdin" or re.match(r"-[A-Za-z]*S", o) for o in options) or any(
        a in {"-S", "--stdin"} for a in call.args[:4]
    ):
        return True
    fed = call.upstream and call.upstream[-1].name in {"echo", "printf", "yes"}
    if not fed or not call.operands():
        return False
    command = [a for a in call.operands() if "=" not in a]
    return bool(command) and not _STDIN_READERS.match(command[0].rsplit("/", 1)[-1])
