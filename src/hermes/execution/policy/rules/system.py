"""Disks, packages, and settings that other programs execute later."""

import re
from collections.abc import Iterator

from hermes.execution.policy.calls import Call, Danger, Ground
from hermes.execution.policy.rules.shapes import Shape, Shapes
from hermes.execution.policy.tools import sed_command

__all__ = ["check"]

_SHAPES = Shapes(
    "system",
    (
        Shape(
            "fdisk sfdisk cfdisk parted gdisk sgdisk partprobe",
            r"^(?!(?:-l|--list|-s|print)\b)\S",
            "it changes partitions",
        ),
        Shape(
            "lvremove vgremove pvremove lvreduce lvresize vgreduce pvcreate vgcreate lvcreate",
            "",
            "it changes volumes",
        ),
        Shape(
            "zpool zfs btrfs",
            r"(?:^|\s)(?:destroy|create|rollback|labelclear|delete|remove|offline)\b",
            "it changes volumes",
        ),
        Shape("mdadm", r"--(?:stop|zero|remove|fail|create)|-S\b", "it changes disks", "mdadm"),
        Shape(
            "cryptsetup",
            r"(?:luksFormat|erase|luksErase|reencrypt|luksRemoveKey)",
            "it changes disks",
        ),
        Shape("badblocks", r"(?:^|\s)-[a-z]*[wn]", "it writes over a disk", "badblocks -w"),
        Shape(
            "fsck e2fsck xfs_repair tune2fs resize2fs debugfs", r"\S", "it changes a file system"
        ),
        Shape(
            "hdparm smartctl nvme",
            r"(?:--(?:security|trim|write|make-bad)|-Y\b|-s\s|\bformat\b)",
            "it changes a disk",
        ),
        Shape(
            "dd dcfldd",
            r"(?:^|\s)if=/dev/(?!zero|null|random|urandom|stdin)",
            "it reads a raw device",
            "dd if=/dev",
        ),
        Shape(
            "apt apt-get aptitude",
            r"(?:^|\s)(?:remove|purge|autoremove|dist-upgrade|full-upgrade|clean|autoclean)\b",
            "it removes packages or upgrades the system",
        ),
        Shape("dpkg", r"(?:^|\s)(?:-r|-P|--remove|--purge|--force\S*)\b", "it removes packages"),
        Shape(
            "yum dnf microdnf zypper",
            r"(?:^|\s)(?:remove|erase|autoremove|rm|downgrade|swap)\b",
            "it removes packages",
        ),
        Shape("rpm", r"(?:^|\s)(?:-e|--erase|--nodeps)", "it removes packages"),
        Shape("pacman", r"(?:^|\s)-R", "it removes packages", "pacman -R"),
        Shape("apk", r"(?:^|\s)del\b", "it removes packages"),
        Shape(
            "brew port snap flatpak nix-env",
            r"(?:^|\s)(?:uninstall|remove|rm|-e|--uninstall|autoremove|cleanup)\b",
            "it removes packages",
        ),
        Shape(
            "pip pip3 pipx uv conda mamba", r"(?:^|\s)(?:uninstall|remove)\b", "it removes packages"
        ),
        Shape("conda mamba", r"^env\s+remove", "it removes an environment"),
        Shape(
            "npm pnpm yarn bun",
            r"^(?:uninstall|remove|rm|un|unpublish|publish|deprecate|cache\s+clean)\b",
            "it removes or publishes packages",
        ),
        Shape(
            "npm pnpm yarn",
            r"^config\s+set\s+(?:registry|script-shell|ignore-scripts|//)",
            "it changes what npm runs",
            "npm config set",
        ),
        Shape(
            "gem cargo go composer",
            r"^(?:uninstall|clean\s+-modcache|yank|publish|remove)\b",
            "it removes or publishes packages",
        ),
        Shape("twine", r"^upload", "it publishes a package"),
        Shape(
            "winget choco scoop msiexec", r"(?i)(?:uninstall|remove|/x)\b", "it removes packages"
        ),
        Shape(
            "pip pip3",
            r"(?:^|\s)(?:install|download)\s.*(?:-U|--upgrade)\s.*hermes-gateway|"
            r"install\s.*hermes-gateway.*--upgrade",
            "it updates Hermes itself",
            "update hermes",
        ),
        Shape(
            "pip pip3",
            r"--(?:extra-)?index-url[= ]http:|--trusted-host|-i\s*http:",
            "packages would come from an unsafe source",
            "pip --index-url",
        ),
        Shape("defaults", r"^(?:write|delete)\b", "it changes settings", "defaults write"),
        Shape("dconf gsettings", r"^(?:reset|write|set)\b", "it changes settings"),
        Shape("xattr", r"com\.apple\.quarantine", "it removes a protection", "xattr -d"),
        Shape(
            "vim vi nvim ex ed view",
            r"(?:^|\s)(?:-c|--cmd|\+)\x03?\S*!",
            "the editor runs a command",
            "vim !",
        ),
        Shape(
            "tar bsdtar",
            r"--(?:checkpoint-action|to-command|use-compress-program|info-script|"
            r"new-volume-script|rsh-command)",
            "tar runs a command",
            "tar exec",
        ),
        Shape(
            "tar",
            r"(?:^|\s)(?:-P|--absolute-names)|--(?:overwrite|unlink-first|recursive-unlink)",
            "tar may replace files anywhere",
            "tar -P",
        ),
        Shape(
            "rsync", r"(?:^|\s)(?:-e|--rsh)[= ]?\x03?(?!ssh\b)", "rsync runs a command", "rsync -e"
        ),
        Shape("zip", r"(?:^|\s)(?:-TT|--unzip-command)", "zip runs a command", "zip -TT"),
        Shape(
            "ssh scp sftp",
            r"(?i)(?:Proxy|Local|KnownHosts)Command|PermitLocalCommand",
            "ssh runs a command",
            "ssh -o",
        ),
        Shape("make gmake", r"--eval", "make runs code from its arguments", "make --eval"),
        Shape("expect tclsh", r"-c", "it types into programs", "expect -c"),
        Shape(
            "sqlite3",
            r"\.(?:shell|system|load|import)\b",
            "sqlite runs a command",
            "sqlite3 .shell",
        ),
        Shape("gdb", r"-ex\s+(?:shell|!|python)|-ex[= ]\x03?call", "gdb runs a command", "gdb -ex"),
        Shape("enable", r"-f", "it loads code into the shell", "enable -f"),
        Shape("hash", r"-p", "it changes what a command name means", "hash -p"),
        Shape("xdotool ydotool", r"(?:key|type)", "it types into other windows", "xdotool"),
        Shape("chattr", r"(?:^|\s)[+-][a-z]*i", "it makes files immutable or undoes it", "chattr"),
        Shape("ulimit", r"^-\w+\s+0$", "it starves the shell", "ulimit"),
    ),
)
_URL_USERS = frozenset({"curl", "wget", "git", "pip", "pip3", "npm", "ssh", "scp", "docker"})
_URL = re.compile(r"[a-z+]+://(?:[^/@\s]*@)?([^/:?#\s]+)")


def check(call: Call, _ground: Ground) -> Iterator[Danger]:
    """Yield dangers for disks, packages and commands in disguise."""
    yield from _SHAPES.check(call)
    if call.name in _URL_USERS:
        for arg in call.args:
            host = _URL.match(arg)
            if host is not None and (not host.group(1).isascii() or "xn--" in host.group(1)):
                yield Danger("homograph", "the address imitates another one with foreign letters")
    if call.name in {"sed", "gsed"}:
        scripts = [*call.values_of("-e", "--expression"), *call.operands()[:1]]
        if any(sed_command(s) is not None for s in scripts):
            yield Danger("system", "sed runs a command", "sed e")
